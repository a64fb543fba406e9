"""Read snapshots as trees. A tree has the objects of a domain as they were at a snapshot, under the tree's own ids.

An object at snapshot n is the copy with the smallest epoch >= n or, without such a copy, the present object. The
present object is read first, and the copies are listed afterwards: a change stores its copy before it is made, so if no
copy is listed, the object had not changed when it was read.

A chunk outside the extent that its dataset had is not part of the snapshot, even if the chunk is stored. A new chunk
outside the extent needs no copy that marks it as absent, so appends need no additional puts.
"""

from __future__ import annotations

import asyncio
import sys
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

import orjson

from hsparse.bounded_cache import BoundedCache
from hsparse.clock import Clock
from hsparse.dn.record_objects import RecordObjects
from hsparse.dn.stored_form import load_state
from hsparse.errors import BadRequest, Gone, NotFound
from hsparse.model.dataspace import dims_of, lower_of
from hsparse.model.ids import domain_prefix, root_id
from hsparse.model.layout import chunk_dims
from hsparse.storage.object_store import Entry, ObjectStore, Stored, resolve_range
from hsparse.versions.moved_ids import moved
from hsparse.versions.version_keys import (
    HALF,
    base_key,
    chunk_of,
    copy_key,
    history_prefix,
    is_kept,
    parsed_copy,
    rest_of,
    to_trim,
    tree_root,
)
from hsparse.wire.message import Record

MOST_KNOWN = 10_000
"""The most trees, and the most extents of datasets, that are cached."""
MOST_LISTED = 200_000
"""The most objects in cached listings, in addition to the last listing; listings of a snapshot never change."""


@dataclass(frozen=True, slots=True)
class TreeBase:
    """The content of a tree: the domain of `root` at the snapshot `number` of the series `token`.

    `tree` is the root group's id in the tree.
    """

    root: str
    token: str
    number: int
    tree: str

    @property
    def copies(self) -> str:
        """The prefix of the copies in the domain's history."""
        return history_prefix(self.root, self.token)

    def head_key(self, rest: str) -> str:
        """Return the key of a present object of the domain, given its key `rest` without the domain's prefix."""
        return domain_prefix(self.root) + rest

    def encode(self) -> bytes:
        """Return the JSON that the store keeps for the tree."""
        return orjson.dumps({"root": self.root, "token": self.token, "snapshot": self.number})


@dataclass(frozen=True, slots=True)
class Extent:
    """The chunks that a dataset had: all chunks of shape `dims` that intersect the box from `lower` to `upper`."""

    lower: tuple[int, ...]
    upper: tuple[int, ...]
    dims: tuple[int, ...]

    @classmethod
    def of(cls, record: Record) -> Extent | None:
        """Return the extent in a dataset's record, or None for a null dataspace, which has no chunks."""
        shape = record["shape"]
        dims = dims_of(shape)
        if dims is None:
            return None
        lower = lower_of(shape) or (0,) * len(dims)
        return cls(lower, tuple(map(int.__add__, lower, dims)), chunk_dims(record))

    def has(self, scaled: Sequence[int]) -> bool:
        """Return whether the extent has the chunk with these scaled coordinates."""
        places = zip(scaled, self.dims, self.lower, self.upper, strict=False)
        return all(at * size < upper and (at + 1) * size > lower for at, size, lower, upper in places)


class SnapshotTrees:
    """Reads the trees of a store's snapshots; `store` contains both the domains and these trees."""

    def __init__(self, store: ObjectStore, clock: Clock, confirms: Callable[[], bool]) -> None:
        """If `confirms()` is true (this node may miss deletions), check after each read that the snapshot exists."""
        self._store = store
        self._clock = clock
        self._confirms = confirms
        self._bases: BoundedCache[str, TreeBase | None] = BoundedCache.of_entries(MOST_KNOWN)
        self._extents: BoundedCache[tuple[str, str], Extent | None] = BoundedCache.of_entries(MOST_KNOWN)
        self._listed: BoundedCache[tuple[str, str], list[Entry]] = BoundedCache(
            MOST_LISTED, sys.maxsize, entry_size=0
        )
        self._gone: BoundedCache[str, None] = BoundedCache.of_entries(MOST_KNOWN)
        """Deleted trees; their names are never used again."""
        self._reading: dict[str, int] = {}
        self._idle = asyncio.Event()

    async def base_of(self, key: str) -> TreeBase | None:
        """Return the `TreeBase` of the tree that a key belongs to, or None if it belongs to an ordinary domain."""
        half = key[HALF]
        if half not in self._bases:
            base = await self._stored_base(half)
            if half in self._gone:
                return None
            self._bases.keep(half, base)
        return self._bases[half]

    async def _stored_base(self, half: str) -> TreeBase | None:
        tree = root_id(bytes.fromhex(half.replace("-", "")))
        try:
            found = orjson.loads((await self._store.get(base_key(tree))).data)
        except NotFound:
            return None
        return TreeBase(found["root"], found["token"], found["snapshot"], tree)

    async def forget(self, root: str, trees: Sequence[str], ending: Sequence[str]) -> None:
        """Forget a domain's trees whose root groups are not in `trees`, and wait until no task reads a forgotten tree.

        The trees with the root groups `ending` are of snapshots that are being deleted, and are never read again.
        """
        kept = {tree[2:19] for tree in trees}
        gone = {
            half
            for half, base in self._bases.items()
            if half not in kept and (base is None or base.root == root)
        }
        for half in gone:
            self._bases.forget(half)
        for tree in ending:
            gone.add(tree[2:19])
            self._gone.keep(tree[2:19], None)
        for known in (self._extents, self._listed):
            for item in [item for item in known if item[0] in gone]:
                known.forget(item)
        while any(half in gone for half in self._reading):
            self._idle.clear()
            await self._idle.wait()

    def forget_bases(self) -> None:
        """Forget which trees exist, so that they are looked up in the store again."""
        self._bases.clear()

    async def get(self, base: TreeBase, key: str) -> Stored:
        """Return an object as it was at the snapshot; raise `NotFound` if the object did not exist."""
        return await self._read(base, key, self._store.get)

    async def get_range(self, base: TreeBase, key: str, start: int, length: int | None) -> Stored:
        """Return a part of an object as it was at the snapshot."""
        if key.endswith(".json"):
            whole = await self.get(base, key)
            first, count = resolve_range(key, start, length, whole.size)
            return Stored(whole.data[first : first + count], whole.etag, whole.size)
        return await self._read(base, key, lambda at: self._store.get_range(at, start, length))

    async def _read(self, base: TreeBase, key: str, read: Callable[[str], Awaitable[Stored]]) -> Stored:
        half = base.tree[2:19]
        if half in self._gone:
            raise was_deleted(key)
        self._reading[half] = self._reading.get(half, 0) + 1
        try:
            found = await self._found(base, rest_of(key), read)
        finally:
            self._reading[half] -= 1
            if not self._reading[half]:
                del self._reading[half]
                self._idle.set()
        if found is None or self._confirms():
            await self._check_kept(base, key)
        if found is None:
            raise NotFound(f"There is no object {key}.")
        if not key.endswith(".json"):
            return Stored(found.data, base.tree, found.size)
        data = moved(found.data if _is_own(base) else to_trim(found.data, rest_of(key)), base.root, base.tree)
        return Stored(data, base.tree, len(data))

    async def _check_kept(self, base: TreeBase, key: str) -> None:
        """Raise `Gone` if a snapshot was deleted, alone or with its domain.

        Without this check, objects of the deleted snapshot would seem absent, or be read in their present state.
        """
        own = replace(base, tree=tree_root(base.root, base.token, base.number))
        if await self._stored_base(own.tree[2:19]) != own:
            raise was_deleted(key)

    async def _found(
        self, base: TreeBase, rest: str, read: Callable[[str], Awaitable[Stored]]
    ) -> Stored | None:
        if not is_kept(rest) or not await self.had(base, rest):
            return None
        try:
            found: Stored | None = await read(base.head_key(rest))
        except NotFound:
            found = None
        copy = await self.copy_of(base, rest)
        if copy is None:
            if found is not None and not self._confirms():  # otherwise `_read` checks it
                await self._check_kept(base, base.head_key(rest))
            return found
        if not copy.size:
            return None
        try:
            return await read(copy.key)
        except NotFound:
            raise was_deleted(copy.key) from None
        except BadRequest:
            raise NotFound(f"There is no object {rest}.") from None

    async def copy_of(self, base: TreeBase, rest: str) -> Entry | None:
        """Return an object's copy that belongs to a snapshot, or None if the object has not changed since."""
        prefix = base.copies
        after = copy_key(prefix, rest, base.number - 1)
        async for page in self._store.list(f"{prefix}{rest}/", start_after=after):
            for entry in page.entries:
                if parsed_copy(prefix, entry.key)[0] == rest:
                    return entry
        return None

    async def had(self, base: TreeBase, rest: str) -> bool:
        """Return whether a chunk was in the extent of its dataset; True for objects that are not chunks."""
        chunk = chunk_of(rest)
        if chunk is None:
            return True
        extent = await self.extent(base, chunk[0])
        return extent is not None and extent.has(chunk[1])

    async def extent(self, base: TreeBase, rest: str) -> Extent | None:
        """Return the extent of a dataset at the snapshot, or None if the dataset did not exist or had no chunks."""
        if base.tree != (
            own := tree_root(base.root, base.token, base.number)
        ):  # a clone's tree, whose dataset may have another extent
            base = replace(base, tree=own)
            self.learn(base)
        known = base.tree[2:19], rest
        if known not in self._extents:
            key = domain_prefix(base.tree) + rest
            state = await load_state(RecordObjects(key, self._store, self._clock))
            extent = None if state.value is None else Extent.of(state.value.record)
            self._extents.keep(known, extent)
        return self._extents[known]

    async def entries(self, base: TreeBase, prefix: str) -> list[Entry]:
        """Return the objects of the tree whose keys begin with a prefix, in key order."""
        known = base.tree[2:19], prefix
        if known not in self._listed:
            found = await self._list(base, rest_of(prefix))
            self._listed.keep(known, found, len(found))
            return found
        return self._listed[known]

    async def _list(self, base: TreeBase, start: str) -> list[Entry]:
        tree, found = domain_prefix(base.tree), await self.sources(base, start)
        entries = [
            Entry(tree + rest, entry.size, base.tree, entry.modified)
            for rest, entry in sorted(found.items())
            if await self.had(base, rest)
        ]
        await self._check_kept(base, tree + start)
        return entries

    async def head_sources(self, root: str, start: str = "") -> dict[str, Entry]:
        """Return a dict that maps keys (without the domain's prefix) that begin with `start` to present objects."""
        return {
            rest: entry
            async for page in self._store.list(domain_prefix(root) + start)
            for entry in page.entries
            if is_kept(rest := rest_of(entry.key))
        }

    async def sources(self, base: TreeBase, start: str = "") -> dict[str, Entry]:
        """Return a dict that maps a snapshot's keys, and later chunks outside extents (`had`), to stored objects."""
        there = await self.head_sources(base.root, start)
        first: dict[str, Entry] = {}
        async for page in self._store.list(base.copies + start):
            for entry in page.entries:
                rest, epoch = parsed_copy(base.copies, entry.key)
                if epoch >= base.number:
                    first.setdefault(rest, entry)
        gone = {rest for rest, entry in first.items() if not entry.size}
        return {rest: entry for rest, entry in (there | first).items() if rest not in gone}

    async def page_after(self, base: TreeBase, prefix: str, start_after: str) -> Sequence[Entry]:
        """Return the objects whose keys begin with `prefix` and sort after `start_after`."""
        found = await self.entries(base, prefix)
        return found[bisect_right(found, start_after, key=lambda entry: entry.key) :]

    def learn(self, base: TreeBase) -> None:
        """Remember the `TreeBase` of a tree, so that it is not read from the store."""
        if base.tree[2:19] not in self._gone:
            self._bases.keep(base.tree[2:19], base)


def _is_own(base: TreeBase) -> bool:
    """Return whether a `TreeBase` belongs to a snapshot's own tree, and not to a clone."""
    return base.tree == tree_root(base.root, base.token, base.number)


def was_deleted(key: str) -> Gone:
    """Return the error for a read of a deleted snapshot."""
    return Gone(f"The snapshot that has {key} was deleted.")
