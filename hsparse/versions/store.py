"""A store with snapshots of its domains: changes preserve the previous state, and snapshots are read like domains.

Until a store has its first snapshot, this costs one read of the store's schema, at the first change. If a process owns
the store alone and finds no snapshots, it replaces the methods of this store by those of the store below.
"""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

import orjson

from hsparse.clock import Clock
from hsparse.concurrency.gathering import gather_each
from hsparse.dn.deletions import DeletionNotes, DeletionState
from hsparse.dn.membership.ownership import Ownership
from hsparse.dn.record_form import RecordCodec
from hsparse.errors import Conflict, Forbidden, NotFound, PreconditionFailed, Unanswered
from hsparse.model.ids import (
    deletion_key,
    heads_of,
    id_of_deletion_key,
    is_root,
    storage_key,
    tree_of_key,
)
from hsparse.model.schema import SCHEMA_KEY, VERSIONS, parse_schema
from hsparse.storage.delegating_store import DelegatingStore
from hsparse.storage.object_store import Buffer, Entry, ObjectStore, Page, Stored, current_etag, no_urls
from hsparse.versions.clone_store import CloneStore
from hsparse.versions.preserving import DomainVersions, Preserved
from hsparse.versions.snapshot_path import snapshot_path
from hsparse.versions.snapshot_trees import SnapshotTrees, TreeBase, was_deleted
from hsparse.versions.version_keys import (
    HISTORY,
    NOTE,
    TREE,
    base_key,
    is_object_key,
    rest_of,
    snapshot_of_key,
)
from hsparse.versions.version_note import read_note

R = TypeVar("R")
LEASE_CHECK_SECONDS = 0.05
"""Seconds between two checks of the lease while the store has not answered a change."""
AT_ONCE = 32
"""The number of objects that are preserved concurrently."""
PAGE_KEYS = 1000
METHODS = ("get", "get_range", "put", "put_if_absent", "put_if_match", "delete", "delete_if_match")
ROOT_GROUP = ".group.json"


class PreservingStore(DelegatingStore):
    """An `ObjectStore` over another store, with snapshots of its domains."""

    def __init__(self, store: ObjectStore, ownership: Ownership, clock: Clock) -> None:
        super().__init__(store)
        self.below = CloneStore(store, clock)
        self.clock = clock
        self.ownership = ownership
        self.used: bool | None = None
        """Whether the store has snapshots, or None if the schema has not been read yet."""
        self.trees = self.below.snapshots = SnapshotTrees(self, clock, self._may_be_untold)
        self.versions = DomainVersions(self._preserved)
        self.notes = DeletionNotes(store, clock)
        self.began: Callable[[], None] = lambda: None
        """Called when the store begins to have snapshots."""
        self._era: object = None
        self._confirmed = False

    async def is_used(self, *, confirm: bool = False) -> bool:
        """Return whether any domain of the store may have snapshots; with `confirm`, read the store's schema again."""
        self._notice_era()
        confirm = confirm or not self._confirmed
        if self.used or (self.used is False and not confirm):
            return self.used
        era = self._era
        try:
            schema = parse_schema(orjson.loads((await self.below.get(SCHEMA_KEY)).data), SCHEMA_KEY)
            found = VERSIONS in schema.write_features
        except NotFound:
            found = False
        if found:
            self.begin_use()
        elif not self.used:
            self.used = False
            if self.ownership.always:
                self._step_aside()
        self._confirmed = era == self._era
        return bool(self.used)

    def _notice_era(self) -> None:
        """Forget all snapshots and clones in a new `Ownership.era`: this node may have missed messages about them."""
        if (era := self.ownership.era) != self._era:
            self._era, self._confirmed = era, False
            self.versions.forget()
            self.trees.forget_bases()
            self.below.forget_all()

    def _may_be_untold(self) -> bool:
        """Return whether a snapshot may be deleted before this node receives the message about the deletion."""
        return not (self.ownership.hears_all and self.ownership.may_change(self.ownership.term))

    def begin_use(self) -> None:
        """Begin to preserve objects before changes, because a domain has, or is about to have, a snapshot."""
        self.used = True
        self.began()
        for name in METHODS:
            self.__dict__.pop(name, None)

    def _step_aside(self) -> None:
        for name in METHODS:
            setattr(self, name, getattr(self.below.plain, name))

    async def _preserved(self, root: str) -> Preserved:
        return Preserved(await read_note(self.below, root), self, self.below, self.trees)

    async def get(self, key: str) -> Stored:
        self._notice_era()
        if (base := await self._base_read(key)) is not None:
            return await self.trees.get(base, key)
        if (found := await self._snapshot_domain(key)) is not None:
            return found
        return await self.below.get(key)

    async def get_range(self, key: str, start: int, length: int | None = None) -> Stored:
        self._notice_era()
        if (base := await self._base_read(key)) is not None:
            return await self.trees.get_range(base, key, start, length)
        if (found := await self._snapshot_domain(key)) is not None:
            return found
        return await self.below.get_range(key, start, length)

    async def list(
        self, prefix: str, *, delimiter: bool = False, start_after: str = ""
    ) -> AsyncIterator[Page]:
        self._notice_era()
        base = await self._base_read(f"{prefix}.")
        if base is None:
            async for page in self.below.list(prefix, delimiter=delimiter, start_after=start_after):
                yield page
            return
        found = await self.trees.page_after(base, prefix, start_after)
        if delimiter:
            yield _with_prefixes(found, prefix, start_after)
            return
        for first in range(0, len(found), PAGE_KEYS):
            yield Page(tuple(found[first : first + PAGE_KEYS]))

    async def presigned(self, key: str, seconds: int) -> str:
        if await self._base(key) is not None:
            raise no_urls(self.name)
        return await self.below.presigned(key, seconds)

    async def _base(self, key: str) -> TreeBase | None:
        """Return the `TreeBase` of the snapshot's tree that a key belongs to, or None for any other key."""
        return await self.trees.base_of(key) if key.startswith(TREE) and is_object_key(key) else None

    async def _base_read(self, key: str) -> TreeBase | None:
        """Return `_base(key)`; raise `Gone` for objects of a deleted snapshot, which would read as never written."""
        base = await self._base(key)
        if base is None and key.startswith(TREE) and is_object_key(key):
            root = storage_key(root_of(key))
            if key != root and await current_etag(self.below, root) is None:
                raise was_deleted(key)
        return base

    async def _snapshot_domain(self, key: str) -> Stored | None:
        """Return the domain record of a snapshot, at the path `<path>@<number>`, or None for any other key.

        Its rights are the present rights of the domain `<path>`. An ordinary domain may have a path of this form.
        """
        named = snapshot_of_key(key)
        if named is None or await current_etag(self.below, key) is not None:
            return None
        path, number = named
        stored = await self.get(f"{path}/.domain.json")
        record = RecordCodec(f"{path}/.domain.json").decode(stored.data)
        root = record.get("root")
        note = None if root is None else await read_note(self.below, root)
        if note is None:
            raise NotFound(f"/{path} has no snapshots.")
        snapshot = note.find(number)
        self.trees.learn(TreeBase(note.root, note.token, number, snapshot.root))
        record |= {"before": heads_of(record), "root": snapshot.root, "head": root}
        record |= {"lastModified": snapshot.time, "snapshot": number}
        record.pop("secondNames", None)
        if "firstName" in record:  # the first name's rights count, too
            first = record["firstName"]
            record["firstName"] = first | {"path": snapshot_path(first["path"], number)}
        data = RecordCodec(key).encode(record)
        return Stored(data, f"{stored.etag} {snapshot.root}", len(data))

    async def put(self, key: str, data: Buffer) -> str:
        return await self._carry_out(key, lambda etag: True, lambda: self.below.put(key, data))

    async def put_if_absent(self, key: str, data: Buffer) -> str:
        if is_object_key(key) and rest_of(key) == ROOT_GROUP:
            etag = await self.below.put_if_absent(key, data)
            self.versions.learn(root_of(key), Preserved(None, self, self.below, self.trees))
            return etag
        etag = await self._carry_out(
            key, lambda found: found is None, lambda: self.below.put_if_absent(key, data)
        )
        if (deleted := id_of_deletion_key(key)) is not None and is_root(deleted):
            await self._check_deletable(deleted)
        return etag

    async def put_if_match(self, key: str, data: Buffer, etag: str) -> str:
        return await self._carry_out(
            key, lambda found: found == etag, lambda: self.below.put_if_match(key, data, etag)
        )

    async def delete(self, key: str) -> None:
        if await self._base(key) is None:  # unconditional deletions never concern objects of a snapshot
            await self._carry_out(key, lambda etag: True, lambda: self.below.delete(key))

    async def delete_if_match(self, key: str, etag: str) -> None:
        await self._carry_out(
            key, lambda found: found in (None, etag), lambda: self.below.delete_if_match(key, etag)
        )

    async def delete_all(self, entries: Sequence[Entry]) -> builtins.list[bool]:
        if not await self.is_used(confirm=True):
            return await self.below.delete_all(entries)
        for entry in entries:
            await self._refuse(entry.key)
        by_root: dict[str, builtins.list[Entry]] = {}
        for entry in entries:
            if is_object_key(entry.key):
                by_root.setdefault(root_of(entry.key), []).append(entry)
        kept: set[str] = set()
        for root, some in by_root.items():
            kept |= await self._before_deletion(root, some)
        left = iter(await self.below.delete_all([entry for entry in entries if entry.key not in kept]))
        return [entry.key not in kept and next(left) for entry in entries]

    async def _before_deletion(self, root: str, entries: builtins.list[Entry]) -> set[str]:
        """Preserve listed objects of a domain; return the keys of those that have changed since they were listed.

        If the domain is deleted, its objects are not preserved, because its snapshots are deleted as well. The note is
        read again, because another node may have been told of a snapshot before this one.
        """
        known = await self.versions.of(root, confirm=True)
        if known.note is None:
            return set()
        deletion = await self.notes.read(root)
        if deletion is not None and deletion.state is DeletionState.DECIDED:
            if any(rest_of(entry.key).startswith((HISTORY, NOTE)) for entry in entries):  # the first page
                for snapshot in known.note.snapshots:
                    await self.below.delete(base_key(snapshot.root))
            return set()
        changed: set[str] = set()

        async def preserve(entry: Entry) -> None:
            try:
                await known.keep(rest_of(entry.key), lambda etag: etag in (None, entry.etag))
            except PreconditionFailed:
                changed.add(entry.key)

        await gather_each(preserve, entries, AT_ONCE)
        return changed

    async def _carry_out(
        self, key: str, is_expected: Callable[[str | None], bool], change: Callable[[], Awaitable[R]]
    ) -> R:
        """Preserve an object and then change it; raise `Forbidden` for an object of a snapshot."""
        await self._refuse(key)
        if not is_object_key(key):
            return await change()
        term = self.ownership.term
        if await self.is_used():
            known = await self.versions.of(root_of(key), confirm=not self.ownership.hears_all)
            await known.keep(rest_of(key), is_expected)
        return await (change() if self.ownership.always else self._in_term(term, key, change()))

    async def _in_term(self, term: int, key: str, change: Awaitable[R]) -> R:
        """Await a change while this node has its lease, needed to hear of snapshots; raise `Unanswered` if it ends."""
        task = asyncio.ensure_future(change)
        try:
            while not task.done():
                if not self.ownership.may_change(term):
                    raise Unanswered(f"This node lost its lease, and another may own {key}: send it again.")
                await asyncio.wait([task], timeout=LEASE_CHECK_SECONDS)
            return task.result()
        finally:
            task.cancel()
            del task  # breaks the cycle task -> error -> traceback -> this frame

    async def _refuse(self, key: str) -> None:
        deleted = id_of_deletion_key(key)
        base = await self._base(key if deleted is None else storage_key(deleted))
        if base is not None and "/.map/" in key:  # the chunk map of a snapshot is kept in memory only
            raise PreconditionFailed(f"{key} is not stored: it belongs to a snapshot.")
        if base is not None:
            raise never_changes(base.number)
        named = snapshot_of_key(key)
        if named is not None and await self._shows(key):
            raise never_changes(named[1])

    async def _shows(self, key: str) -> bool:
        try:
            return await self._snapshot_domain(key) is not None
        except NotFound:
            return False

    async def _check_deletable(self, root: str) -> None:
        """Remove the note of a domain's deletion and raise `Conflict` if a clone needs a snapshot of the domain."""
        note = await read_note(self.below, root) if await self.is_used() else None
        if note is not None:
            try:
                note.check_unpinned()
            except Conflict:
                await self.below.delete(deletion_key(root))
                raise


def never_changes(number: int) -> Forbidden:
    """Return the error for a change of a snapshot."""
    return Forbidden(
        f"The snapshot {number} never changes: change the domain itself, or a clone of the snapshot."
    )


def root_of(key: str) -> str:
    """Return the root group's id of the domain that an object belongs to."""
    tree = tree_of_key(key)
    assert tree is not None
    return tree[0]


def _with_prefixes(entries: Sequence[Entry], prefix: str, start_after: str) -> Page:
    """Return a page in which all entries below a folder are replaced by the folder's prefix."""
    there: list[Entry] = []
    folders: dict[str, None] = {}
    for entry in entries:
        name, slash, _ = entry.key[len(prefix) :].partition("/")
        if not slash:
            there.append(entry)
        elif prefix + name + slash > start_after:
            folders[prefix + name + slash] = None
    return Page(tuple(there), tuple(folders))
