"""Clones: domains that share the objects of a snapshot until they change them.

    db/<u1>/.group.json                        the clone's description; it needs a feature that no other server has
    db/<u1>/.clone/v1/own/objects/<rest>       the clone's own objects; an empty object stands for a deleted one

An object of a snapshot never changes, so its etag in the clone is always the same: the id of the clone's root group.
The first change of a shared object puts the clone's own object by a conditional put that fails if one exists already. A
single put thus decides every change, as in any other domain.
"""

from __future__ import annotations

import asyncio
import builtins
from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import orjson

from hsparse.bounded_cache import BoundedCache
from hsparse.clock import Clock
from hsparse.concurrency.gathering import gather_each
from hsparse.dn.deletions import DeletionNotes, DeletionState
from hsparse.errors import BadRequest, NotFound, PreconditionFailed
from hsparse.model.ids import domain_prefix, root_id, storage_key
from hsparse.model.schema import Schema
from hsparse.storage.delegating_store import DelegatingStore
from hsparse.storage.object_store import Buffer, Entry, ObjectStore, Page, Stored, no_urls
from hsparse.versions.snapshot_trees import TreeBase
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

R = TypeVar("R")
TREE = f"db/{CLONE_MARK.hex()}"
OWN = ".clone/v1/own/objects/"
CLONES = "clones"
"""The read feature that the root group of a clone requires."""
MOST_KNOWN = 10_000
AT_ONCE = 32
PAGE_KEYS = 1000


@dataclass(frozen=True, slots=True)
class Clone:
    """A clone: its root group, and the snapshot whose objects it shares (`base`; None after it has copied them all)."""

    root: str
    base: TreeBase | None
    source: str = ""
    """The path of the cloned domain."""

    def own_key(self, rest: str) -> str:
        """Return the key of one of the clone's own objects."""
        return f"{domain_prefix(self.root)}{OWN}{rest}"

    def encode(self, domain: str, created: float) -> bytes:
        """Return the JSON that the store keeps as the clone's root group; `domain` is the clone's path."""
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
    """Reads the objects of snapshots that clones share."""

    async def get(self, base: TreeBase, key: str) -> Stored: ...

    async def get_range(self, base: TreeBase, key: str, start: int, length: int | None) -> Stored: ...

    async def entries(self, base: TreeBase, prefix: str) -> builtins.list[Entry]: ...


class CloneStore(DelegatingStore):
    """An `ObjectStore` over another store, in which a clone looks like an ordinary domain with objects of its own."""

    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        super().__init__(store)
        self.plain = store
        self.snapshots: Snapshots
        """The reader of snapshots, which the store above this one (`PreservingStore`) sets."""
        self._known: BoundedCache[str, Clone | None] = BoundedCache.of_entries(MOST_KNOWN)
        self._forgotten = 0
        self._notes = DeletionNotes(store, clock)
        self.ended: Callable[[Clone], Awaitable[None]]
        """Called after a clone's objects are deleted."""

    async def clone_of(self, key: str) -> Clone | None:
        """Return the clone that an object belongs to, or None if the key is not of an object of a clone."""
        if not key.startswith(TREE) or not is_object_key(key):
            return None
        if rest_of(key).startswith((HISTORY, NOTE, ".clone/")):
            return None
        half = key[HALF]
        while half not in self._known:
            forgotten = self._forgotten
            clone = await self.stored(root_id(bytes.fromhex(half.replace("-", ""))))
            if forgotten == self._forgotten:  # else the answer may be outdated
                self.learn(half, clone)
        return self._known[half]

    async def stored(self, root: str) -> Clone | None:
        """Read the clone with this root group from the store; return None if the root group is not a clone's."""
        try:
            found: Any = orjson.loads((await self._store.get(storage_key(root))).data)
        except NotFound:
            return None
        base = found.get("base")
        if "base" not in found:
            return None
        of = base and TreeBase(base["root"], base["token"], base["snapshot"], root)
        return Clone(root, of, found.get("source", ""))

    def learn(self, half: str, clone: Clone | None) -> None:
        """Remember the clone (None: no clone) whose ids contain `half`, the part that all ids of a domain share."""
        self._known.keep(half, clone)

    def forget(self, root: str) -> None:
        """Forget whether a root group belongs to a clone, so that the store is asked again."""
        self._forgotten += 1
        self._known.forget(root[2:19])

    def forget_all(self) -> None:
        """Forget all clones, so that the store is asked again about each root group."""
        self._forgotten += 1
        self._known.clear()

    async def get(self, key: str) -> Stored:
        clone = await self.clone_of(key)
        if clone is None:
            return await self._store.get(key)
        own = await self._own(clone, rest_of(key))
        if own is None and _shares(clone, key):
            assert clone.base is not None
            return await _alone(self.snapshots.get(clone.base, key))
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
            return await _alone(self.snapshots.get_range(clone.base, key, start, length))
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
            () if clone.base is None else await _alone(self.snapshots.entries(clone.base, prefix))
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
        for first in range(0, len(there), PAGE_KEYS):
            yield Page(tuple(there[first : first + PAGE_KEYS]))

    async def presigned(self, key: str, seconds: int) -> str:
        if await self.clone_of(key) is not None:
            raise no_urls(self.name)
        return await self._store.presigned(key, seconds)

    async def _own(self, clone: Clone, rest: str) -> Stored | None:
        """Return the clone's own object, or None if the clone has no such object; an empty object marks a deletion."""
        try:
            return await self._store.get(clone.own_key(rest))
        except NotFound:
            return None

    async def _is_shared(self, clone: Clone, key: str) -> bool:
        """Return whether the snapshot that a clone shares has the object `key`."""
        if not _shares(clone, key):
            return False
        assert clone.base is not None
        try:
            await _alone(self.snapshots.get_range(clone.base, key, 0, 1))
        except NotFound:
            return False
        return True

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
            for root in gone:  # `clone_of` finds only the root group here, which is deleted last
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
        """Return whether the deletion of a clone is decided; all its stored objects are then deleted directly."""
        note = await self._notes.read(clone.root)
        return note is not None and note.state is DeletionState.DECIDED


async def _alone(read: Coroutine[Any, Any, R]) -> R:
    """Await a read in a separate task: a base may be a clone itself, and a long chain would exhaust the stack."""
    return await asyncio.create_task(read)


def _shares(clone: Clone, key: str) -> bool:
    return clone.base is not None and is_kept(rest_of(key))


def _there(own: Stored | None, key: str) -> Stored:
    if own is None or not own.size:
        raise NotFound(f"There is no object {key}.")
    return own
