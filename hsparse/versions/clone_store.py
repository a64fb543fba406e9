"""Clones: domains whose objects are those of a snapshot until they are changed.

    db/<u1>/.group.json                        what the clone is of; it needs a feature that no other server knows
    db/<u1>/.clone/v1/own/objects/<rest>       the clone's own objects; an empty one was deleted

An object of a snapshot never changes, so its etag here is always the same. A change of it is a put where there is no
own object yet: one put decides, as for any other domain.
"""

from __future__ import annotations

import builtins
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from hsparse.clock import Clock
from hsparse.compute import gather_each
from hsparse.dn.deletions import DeletionNotes, DeletionState
from hsparse.errors import BadRequest, NotFound, PreconditionFailed
from hsparse.model.ids import domain_prefix, root_id, storage_key
from hsparse.model.schema import Schema
from hsparse.storage.delegating_store import DelegatingStore
from hsparse.storage.object_store import Buffer, Entry, ObjectStore, Page, Stored, no_urls
from hsparse.versions.snapshot_trees import Base
from hsparse.versions.version_keys import (
    ABSENT,
    CLONE_MARK,
    HALF,
    HISTORY,
    NOTE,
    is_kept,
    is_object_key,
    rest_of,
)

TREE = f"db/{CLONE_MARK.hex()}"
OWN = ".clone/v1/own/objects/"
CLONES = "clones"
"""The read feature of a clone's root group."""
MOST_KNOWN = 10_000
AT_ONCE = 32
PAGE = 1000


@dataclass(frozen=True, slots=True)
class Clone:
    """A clone: the root group's id, and what it shares; None once it has all for itself."""

    root: str
    base: Base | None
    source: str = ""
    """The path of the domain that it is a clone of."""

    def own_key(self, rest: str) -> str:
        """Return the key of the clone's own object."""
        return f"{domain_prefix(self.root)}{OWN}{rest}"

    def encode(self, domain: str, created: float) -> bytes:
        """Return the bytes of what says so in the store."""
        base = self.base and {"root": self.base.root, "token": self.base.token, "snapshot": self.base.number}
        return orjson.dumps(
            {
                "id": self.root,
                "root": self.root,
                "created": created,
                "domain": domain,
                "source": self.source,
                "base": base,
                "schema": Schema(read_features=(CLONES,)).to_json(),
            }
        )


class Snapshots(Protocol):
    """Reads what clones share."""

    async def get(self, base: Base, key: str) -> Stored: ...

    async def get_range(self, base: Base, key: str, start: int, length: int | None) -> Stored: ...

    async def entries(self, base: Base, prefix: str) -> builtins.list[Entry]: ...


class CloneStore(DelegatingStore):
    """An `ObjectStore` over another one in which a clone has the keys of an ordinary domain."""

    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        super().__init__(store)
        self.plain = store
        self.snapshots: Snapshots
        """Set by who reads snapshots over this store."""
        self._known: OrderedDict[str, Clone | None] = OrderedDict()
        self._forgotten = 0
        self._notes = DeletionNotes(store, clock)
        self.ended: Callable[[Clone], Awaitable[None]]
        """Called once a clone's objects are deleted."""

    # --- which clones there are -----------------------------------------------------------------------

    async def clone_of(self, key: str) -> Clone | None:
        """Return the clone that an object belongs to, None of any other domain, and for a key of the store below."""
        if not key.startswith(TREE) or not is_object_key(key):
            return None
        if rest_of(key).startswith((HISTORY, NOTE, ".clone/")):
            return None
        half = key[HALF]
        while half not in self._known:
            forgotten = self._forgotten
            clone = await self.stored(root_id(bytes.fromhex(half.replace("-", ""))))
            if forgotten == self._forgotten:  # else it may be what the store said before
                self.learn(half, clone)
        return self._known[half]

    async def stored(self, root: str) -> Clone | None:
        """Return the clone of a root group's id as the store says, None if there is none."""
        try:
            found: Any = orjson.loads((await self._store.get(storage_key(root))).data)
        except NotFound:
            return None
        base = found.get("base")
        if "base" not in found:
            return None
        of = base and Base(base["root"], base["token"], base["snapshot"], root)
        return Clone(root, of, found.get("source", ""))

    def learn(self, half: str, clone: Clone | None) -> None:
        """Know what has the ids with this half."""
        self._known[half] = clone
        if len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)

    def forget(self, root: str) -> None:
        """Ask the store again what a root group's id is."""
        self._forgotten += 1
        self._known.pop(root[2:19], None)

    def forget_all(self) -> None:
        """Ask the store again what each root group's id is."""
        self._forgotten += 1
        self._known.clear()

    # --- what is read ---------------------------------------------------------------------------------

    async def get(self, key: str) -> Stored:
        clone = await self.clone_of(key)
        if clone is None:
            return await self._store.get(key)
        own = await self._own(clone, rest_of(key))
        if own is None and _shares(clone, key):
            assert clone.base is not None
            return await self.snapshots.get(clone.base, key)
        return _there(own, key)

    async def get_range(self, key: str, start: int, length: int | None = None) -> Stored:
        clone = await self.clone_of(key)
        if clone is None:
            return await self._store.get_range(key, start, length)
        try:
            return await self._store.get_range(clone.own_key(rest_of(key)), start, length)
        except NotFound:
            if clone.base is None or not is_kept(rest_of(key)):
                raise NotFound(f"There is no object {key}.") from None
            return await self.snapshots.get_range(clone.base, key, start, length)
        except BadRequest:
            _there(await self._own(clone, rest_of(key)), key)
            raise

    async def list(
        self, prefix: str, *, delimiter: bool = False, start_after: str = ""
    ) -> AsyncIterator[Page]:
        clone = await self.clone_of(f"{prefix}_")
        if clone is None or (not rest_of(prefix) and await self._is_deleted(clone)):
            async for page in self._store.list(prefix, delimiter=delimiter, start_after=start_after):
                yield page
            return
        shared: Sequence[Entry] = (
            () if clone.base is None else await self.snapshots.entries(clone.base, prefix)
        )
        shared = shared[bisect_right(shared, start_after, key=lambda entry: entry.key) :]
        found = {entry.key: entry for entry in shared}
        head, own = domain_prefix(clone.root), clone.own_key("")
        after = own + rest_of(start_after) if start_after.startswith(head) else ""
        async for page in self._store.list(own + rest_of(prefix), start_after=after):
            for entry in page.entries:
                key = head + entry.key.removeprefix(own)
                found[key] = Entry(key, entry.size, entry.etag, entry.modified)
        there = [found[key] for key in sorted(found) if found[key].size]
        for first in range(0, len(there), PAGE):
            yield Page(tuple(there[first : first + PAGE]))

    async def presigned(self, key: str, seconds: int) -> str:
        if await self.clone_of(key) is not None:
            raise no_urls(self.name)
        return await self._store.presigned(key, seconds)

    async def _own(self, clone: Clone, rest: str) -> Stored | None:
        """Return the clone's own object, which is empty if it was deleted; None without one."""
        try:
            return await self._store.get(clone.own_key(rest))
        except NotFound:
            return None

    async def _is_shared(self, clone: Clone, key: str) -> bool:
        """Say whether the snapshot has an object."""
        if not _shares(clone, key):
            return False
        assert clone.base is not None
        try:
            await self.snapshots.get_range(clone.base, key, 0, 1)
        except NotFound:
            return False
        return True

    # --- what is changed ------------------------------------------------------------------------------

    async def put(self, key: str, data: Buffer) -> str:
        clone = await self.clone_of(key)
        return await self._store.put(key if clone is None else clone.own_key(rest_of(key)), data)

    async def put_if_absent(self, key: str, data: Buffer) -> str:
        clone = await self.clone_of(key)
        if clone is None:
            return await self._store.put_if_absent(key, data)
        own = await self._own(clone, rest_of(key))
        if own is not None and not own.size:
            return await self._store.put_if_match(clone.own_key(rest_of(key)), data, own.etag)
        if own is not None or await self._is_shared(clone, key):
            raise PreconditionFailed(f"There is an object {key}.")
        return await self._store.put_if_absent(clone.own_key(rest_of(key)), data)

    async def put_if_match(self, key: str, data: Buffer, etag: str) -> str:
        clone = await self.clone_of(key)
        if clone is None:
            return await self._store.put_if_match(key, data, etag)
        own = clone.own_key(rest_of(key))
        if etag == clone.root:
            return await self._store.put_if_absent(own, data)
        return await self._store.put_if_match(own, data, etag)

    async def delete(self, key: str) -> None:
        clone = await self.clone_of(key)
        if clone is None:
            await self._store.delete(key)
        elif not _shares(clone, key):
            await self._store.delete(clone.own_key(rest_of(key)))
        else:
            await self._store.put(clone.own_key(rest_of(key)), ABSENT)

    async def delete_if_match(self, key: str, etag: str) -> None:
        clone = await self.clone_of(key)
        if clone is None:
            await self._store.delete_if_match(key, etag)
            return
        own = clone.own_key(rest_of(key))
        if etag != clone.root and not await self._is_shared(clone, key):
            await self._store.delete_if_match(own, etag)
            return
        try:
            if etag == clone.root:
                await self._store.put_if_absent(own, ABSENT)
            else:
                await self._store.put_if_match(own, ABSENT, etag)
        except PreconditionFailed:
            now = await self._own(clone, rest_of(key))
            if now is None or now.size:
                raise

    async def delete_all(self, entries: Sequence[Entry]) -> builtins.list[bool]:
        by_clone: dict[str, Clone] = {}
        for entry in entries:
            if (clone := await self.clone_of(entry.key)) is not None:
                by_clone[clone.root] = clone
        gone = {root for root, clone in by_clone.items() if await self._is_deleted(clone)}
        kept = {root for root in by_clone if root not in gone}
        if not kept:
            deleted = await self._store.delete_all(entries)
            for root in gone:  # the root group is the last object
                await self.ended(by_clone[root])
                self.forget(root)
            return deleted

        async def delete(entry: Entry) -> bool:
            try:
                await self.delete_if_match(entry.key, entry.etag)
            except PreconditionFailed:
                return False
            return True

        return list(await gather_each(delete, entries, AT_ONCE))

    async def _is_deleted(self, clone: Clone) -> bool:
        """Say whether all of a clone is being deleted, for good: then it is deleted as it is stored."""
        note = await self._notes.read(clone.root)
        return note is not None and note.state is DeletionState.DECIDED


def _shares(clone: Clone, key: str) -> bool:
    return clone.base is not None and is_kept(rest_of(key))


def _there(own: Stored | None, key: str) -> Stored:
    if own is None or not own.size:
        raise NotFound(f"There is no object {key}.")
    return own
