"""The trees in which snapshots are read: objects of a domain as they were, under ids of their own.

An object at snapshot n is the copy with the smallest epoch from n on or, without one, the object as it is now. That is
read first, and the copies are listed afterwards: a change stores its copy before it is made, so where none is listed
the object was not changed before it was read.

A chunk outside the extent that its dataset had is none of the snapshot's, though it is stored: new chunks there leave
no mark, so that a run that appends costs nothing.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

import orjson

from hsparse.clock import Clock
from hsparse.dn.cache import load_state
from hsparse.dn.record_objects import RecordObjects
from hsparse.errors import BadRequest, Gone, NotFound
from hsparse.model.dataspace import dims_of, lower_of
from hsparse.model.ids import domain_prefix, root_id
from hsparse.model.layout import chunk_dims
from hsparse.storage.object_store import Entry, ObjectStore, Stored, resolve_range
from hsparse.versions.version_keys import (
    HALF,
    base_key,
    chunk_of,
    copy_key,
    history_prefix,
    is_kept,
    moved,
    parsed_copy,
    rest_of,
    to_trim,
    tree_root,
)
from hsparse.wire.message import Record

MOST_KNOWN = 10_000
"""Trees, and extents of datasets, that are remembered."""
MOST_LISTED = 200_000
"""Objects in listings that are remembered, the last listing in any case: of a snapshot they never change."""


@dataclass(frozen=True, slots=True)
class Base:
    """What a tree shows: the domain of `root` at the snapshot `number` of the series `token`.

    `tree` is the root group's id in the tree.
    """

    root: str
    token: str
    number: int
    tree: str

    @property
    def copies(self) -> str:
        """The prefix of the domain's history."""
        return history_prefix(self.root, self.token)

    def head_key(self, rest: str) -> str:
        """Return the key of an object as it is now."""
        return domain_prefix(self.root) + rest

    def encode(self) -> bytes:
        """Return the bytes of what says so in the store."""
        return orjson.dumps({"root": self.root, "token": self.token, "snapshot": self.number})


@dataclass(frozen=True, slots=True)
class Extent:
    """Which chunks a dataset had: those that the box from `lower` to `upper` meets, in chunks of `dims`."""

    lower: tuple[int, ...]
    upper: tuple[int, ...]
    dims: tuple[int, ...]

    @classmethod
    def of(cls, record: Record) -> Extent | None:
        """Return that of a dataset's record, None of a null dataspace, which has no chunks."""
        shape = record["shape"]
        dims = dims_of(shape)
        if dims is None:
            return None
        lower = lower_of(shape) or (0,) * len(dims)
        return cls(lower, tuple(map(int.__add__, lower, dims)), chunk_dims(record))

    def has(self, scaled: Sequence[int]) -> bool:
        """Say whether a chunk was there, or may have been."""
        places = zip(scaled, self.dims, self.lower, self.upper, strict=False)
        return all(at * size < upper and (at + 1) * size > lower for at, size, lower, upper in places)


class SnapshotTrees:
    """Reads the trees of a store's snapshots; `store` has the domains, and these trees, too."""

    def __init__(self, store: ObjectStore, clock: Clock, confirms: Callable[[], bool]) -> None:
        """Ask for a base again after each read if `confirms` says so: this node is not told of deletions."""
        self._store = store
        self._clock = clock
        self._confirms = confirms
        self._bases: OrderedDict[str, Base | None] = OrderedDict()
        self._extents: OrderedDict[tuple[str, str], Extent | None] = OrderedDict()
        self._listed: OrderedDict[tuple[str, str], list[Entry]] = OrderedDict()
        self._gone: OrderedDict[str, None] = OrderedDict()
        """Trees that were deleted, which no other ones are called as."""
        self._reading: dict[str, int] = {}
        self._idle = asyncio.Event()

    # --- which trees there are -----------------------------------------------------------------------

    async def base_of(self, key: str) -> Base | None:
        """Return what the tree of a key shows, None if it is a domain's own."""
        half = key[HALF]
        if half not in self._bases:
            base = await self._stored_base(half)
            if half in self._gone:
                return None
            self._keep(self._bases, half, base)
        return self._bases[half]

    async def _stored_base(self, half: str) -> Base | None:
        tree = root_id(bytes.fromhex(half.replace("-", "")))
        try:
            found = orjson.loads((await self._store.get(base_key(tree))).data)
        except NotFound:
            return None
        return Base(found["root"], found["token"], found["snapshot"], tree)

    async def forget(self, root: str, trees: Sequence[str], ending: Sequence[str]) -> None:
        """Forget all trees of a domain but those of the root groups `trees`, once nobody reads them any more.

        Those of `ending` snapshots are read no more.
        """
        kept = {tree[2:19] for tree in trees}
        gone = {
            half
            for half, base in self._bases.items()
            if half not in kept and (base is None or base.root == root)
        }
        for half in gone:
            del self._bases[half]
        for tree in ending:
            gone.add(tree[2:19])
            self._keep(self._gone, tree[2:19], None)
        for known in (self._extents, self._listed):
            for item in [item for item in known if item[0] in gone]:
                del known[item]
        while any(half in gone for half in self._reading):
            self._idle.clear()
            await self._idle.wait()

    def forget_bases(self) -> None:
        """Ask the store again which trees there are."""
        self._bases.clear()

    # --- what is in them ------------------------------------------------------------------------------

    async def get(self, base: Base, key: str) -> Stored:
        """Return an object as it was; `NotFound` if it was not there."""
        return await self._read(base, key, self._store.get)

    async def get_range(self, base: Base, key: str, start: int, length: int | None) -> Stored:
        """Return a part of an object as it was."""
        if key.endswith(".json"):
            whole = await self.get(base, key)
            first, count = resolve_range(key, start, length, whole.size)
            return Stored(whole.data[first : first + count], whole.etag, whole.size)
        return await self._read(base, key, lambda at: self._store.get_range(at, start, length))

    async def _read(self, base: Base, key: str, read: Callable[[str], Awaitable[Stored]]) -> Stored:
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
        is_own = base.tree == tree_root(base.root, base.token, base.number)  # a clone's is pinned
        if is_own and self._confirms() and await self._stored_base(half) != base:
            raise was_deleted(key)
        if found is None:
            raise NotFound(f"There is no object {key}.")
        if not key.endswith(".json"):
            return Stored(found.data, base.tree, found.size)
        data = moved(found.data if is_own else to_trim(found.data, rest_of(key)), base.root, base.tree)
        return Stored(data, base.tree, len(data))

    async def _found(self, base: Base, rest: str, read: Callable[[str], Awaitable[Stored]]) -> Stored | None:
        if not is_kept(rest) or not await self.had(base, rest):
            return None
        try:
            found: Stored | None = await read(base.head_key(rest))
        except NotFound:
            found = None
        copy = await self.copy_of(base, rest)
        if copy is None:
            return found
        if not copy.size:
            return None
        try:
            return await read(copy.key)
        except BadRequest:
            raise NotFound(f"There is no object {rest}.") from None

    async def copy_of(self, base: Base, rest: str) -> Entry | None:
        """Return the copy of an object as it was at a snapshot, None if it was not changed since."""
        prefix = base.copies
        after = copy_key(prefix, rest, base.number - 1)
        async for page in self._store.list(f"{prefix}{rest}/", start_after=after):
            for entry in page.entries:
                if parsed_copy(prefix, entry.key)[0] == rest:
                    return entry
        return None

    async def had(self, base: Base, rest: str) -> bool:
        """Say whether a chunk was in the extent of its dataset, which was there; True of all that is no chunk."""
        chunk = chunk_of(rest)
        if chunk is None:
            return True
        extent = await self.extent(base, chunk[0])
        return extent is not None and extent.has(chunk[1])

    async def extent(self, base: Base, rest: str) -> Extent | None:
        """Return the extent that a dataset had, by its record; None if it had no chunks, or was not there."""
        if base.tree != (
            own := tree_root(base.root, base.token, base.number)
        ):  # of a clone, which may differ
            base = replace(base, tree=own)
            self.learn(base)
        known = base.tree[2:19], rest
        if known not in self._extents:
            key = domain_prefix(base.tree) + rest
            state = await load_state(RecordObjects(key, self._store, self._clock))
            extent = None if state.value is None else Extent.of(state.value.record)
            self._keep(self._extents, known, extent)
        return self._extents[known]

    async def entries(self, base: Base, prefix: str) -> list[Entry]:
        """Return the objects whose keys begin with a prefix in the tree, in order."""
        known = base.tree[2:19], prefix
        if known not in self._listed:
            found = await self._list(base, rest_of(prefix))
            self._listed[known] = found
            while len(self._listed) > 1 and sum(map(len, self._listed.values())) > MOST_LISTED:
                self._listed.popitem(last=False)
            return found
        return self._listed[known]

    async def _list(self, base: Base, start: str) -> list[Entry]:
        tree, found = domain_prefix(base.tree), await self.sources(base, start)
        return [
            Entry(tree + rest, entry.size, base.tree, entry.modified)
            for rest, entry in sorted(found.items())
            if await self.had(base, rest)
        ]

    async def head_sources(self, root: str, start: str = "") -> dict[str, Entry]:
        """Return the objects of a domain as it is now, by the rest of their keys, which begin with `start`."""
        return {
            rest: entry
            async for page in self._store.list(domain_prefix(root) + start)
            for entry in page.entries
            if is_kept(rest := rest_of(entry.key))
        }

    async def sources(self, base: Base, start: str = "") -> dict[str, Entry]:
        """Return what each object of a snapshot is read from, and chunks that were made outside an extent since."""
        there = await self.head_sources(base.root, start)
        first: dict[str, Entry] = {}
        async for page in self._store.list(base.copies + start):
            for entry in page.entries:
                rest, epoch = parsed_copy(base.copies, entry.key)
                if epoch >= base.number:
                    first.setdefault(rest, entry)
        gone = {rest for rest, entry in first.items() if not entry.size}
        return {rest: entry for rest, entry in (there | first).items() if rest not in gone}

    async def page_after(self, base: Base, prefix: str, start_after: str) -> Sequence[Entry]:
        """Return the objects whose keys begin with a prefix and sort after another key."""
        found = await self.entries(base, prefix)
        return found[bisect_right(found, start_after, key=lambda entry: entry.key) :]

    def learn(self, base: Base) -> None:
        """Know what a tree shows without asking."""
        if base.tree[2:19] not in self._gone:
            self._keep(self._bases, base.tree[2:19], base)

    @staticmethod
    def _keep(known: OrderedDict, item: object, value: object) -> None:  # type: ignore[type-arg]
        known[item] = value
        if len(known) > MOST_KNOWN:
            known.popitem(last=False)


def was_deleted(key: str) -> Gone:
    """Return the error for a read of a snapshot that is there no more."""
    return Gone(f"The snapshot that has {key} was deleted.")
