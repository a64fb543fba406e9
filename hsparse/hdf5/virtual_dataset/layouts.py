"""Parse the mappings of a virtual dataset for reads, and find the mappings that may intersect a box.

Unlimited mappings are resolved to the current extents of their sources, see `resolve_mappings`. Results are cached,
because a layout never changes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Any, TypeAlias

import numpy as np
import orjson
from numpy.typing import NDArray

from hsparse.bounded_cache import BoundedCache
from hsparse.compute import compute
from hsparse.concurrency.keyed_lock import KeyedLock
from hsparse.errors import Conflict, Corrupt
from hsparse.format.plan.virtual_plan import Ordered, ordered
from hsparse.hdf5.format.parse.mapping_json import mapping_of
from hsparse.hdf5.format.parse.virtual_mapping import block_name
from hsparse.hdf5.importer.mapped_sources import MAX_BLOCKS, MappedSource, resolve_mappings
from hsparse.hdf5.virtual_dataset.mappings import has_no_end, is_plain, plain_bounds
from hsparse.model.dataspace import dims_of
from hsparse.model.schema import VIRTUAL_DATA

Record: TypeAlias = dict[str, Any]
Dims = tuple[int, ...]
Name = tuple[str, str]
SourceDims = Callable[[Name], Awaitable[Dims | None]]
MOST_KNOWN = 64
KNOWN_BYTES = 128 * 1024 * 1024
"""Bytes of the cache of mappings."""
MAPPING_BYTES = 12
"""Bytes of memory per byte of the mappings' JSON, for the stored and the parsed form."""
RESOLVED_BYTES = 2048
"""Bytes of memory per resolved mapping."""
MAPPING_WORK = 64
"""Cost of parsing one mapping, in elements, see `compute`."""
MOST_COMPARED = 4000
"""Most mappings that are compared pairwise."""


class Mapped:
    """The n resolved mappings of a virtual dataset; `low[i]:high[i]` is the bounding box of virtual selection i."""

    def __init__(self, mappings: Sequence[Record | MappedSource], dims: Dims) -> None:
        self.dims = dims
        self._mappings = mappings
        self._sources: dict[int, MappedSource] = {}
        self._virtual: dict[int, Ordered] = {}
        rank = len(dims)
        self.low = np.zeros((len(mappings), rank), np.int64)
        self.high = np.broadcast_to(np.array(dims, np.int64), self.low.shape).copy()
        plain = [n for n, one in enumerate(mappings) if isinstance(one, dict) and is_plain(one["virtual"])]
        if plain:
            low, high = plain_bounds([_json(mappings[n])["virtual"] for n in plain], rank)
            self.low[plain], self.high[plain] = low, high
        for number in set(range(len(mappings))).difference(plain):
            self.low[number], self.high[number] = self.virtual(number).bounds
        numbers: dict[Name, int] = {}
        names = map(self.name, range(len(mappings)))
        self.source_numbers = np.fromiter(
            (numbers.setdefault(name, len(numbers)) for name in names), np.intp, len(mappings)
        )
        """Source number of each mapping, (n,) intp: mappings of the same source have the same number."""

    def __len__(self) -> int:
        return len(self._mappings)

    def source(self, number: int) -> MappedSource:
        """Return mapping `number`, decoded and cached."""
        if number not in self._sources:
            one = self._mappings[number]
            if isinstance(one, dict):
                found = mapping_of(one)
                names = block_name(found.file, 0), block_name(found.dataset, 0)
                one = MappedSource(*names, found.virtual, found.source)
            self._sources[number] = one
        return self._sources[number]

    def name(self, number: int) -> Name:
        """Return a pair: the name of the file and the path of the dataset that are a mapping's source."""
        one = self.source(number)
        return one.file, one.dataset

    def virtual(self, number: int) -> Ordered:
        """Return the virtual selection of a mapping; raise `Conflict` if it exceeds the extent."""
        if number not in self._virtual:
            try:
                self._virtual[number] = ordered(self.source(number).virtual, self.dims)
            except Corrupt as error:
                raise Conflict(
                    f"Mapping {number} does not fit the virtual dataset: {error.message}"
                ) from error
        return self._virtual[number]

    def near(self, low: Sequence[int], high: Sequence[int]) -> NDArray[np.intp]:
        """Return the ascending numbers of the mappings whose bounding boxes intersect the box `low:high`."""
        near = (self.low < np.array(high, np.int64)) & (self.high > np.array(low, np.int64))
        return np.flatnonzero(near.all(axis=1))

    def near_each(self, boxes: Sequence[tuple[Dims, Dims] | None]) -> list[list[int]]:
        """Return the result of `near` for each box (low, high), or an empty list for a box that is None."""
        there = [box for box in boxes if box is not None]
        if not there:
            return [[] for _ in boxes]
        lows, highs = (np.array([box[end] for box in there], np.int64) for end in (0, 1))
        some = self.near(lows.min(axis=0).tolist(), highs.max(axis=0).tolist())
        low, high = self.low[some], self.high[some]
        return [
            []
            if box is None
            else some[((low < np.array(box[1])) & (high > np.array(box[0]))).all(axis=1)].tolist()
            for box in boxes
        ]

    def are_apart(self, numbers: Sequence[int]) -> bool:
        """Return whether the bounding boxes of mappings are disjoint; False for more than `MOST_COMPARED`."""
        some = sorted(set(numbers))
        if len(some) > MOST_COMPARED:
            return False
        low, high = self.low[some], self.high[some]
        return not any(
            ((low[n + 1 :] < high[n]) & (high[n + 1 :] > low[n])).all(axis=1).any() for n in range(len(some))
        )


def _json(one: Record | MappedSource) -> Record:
    assert isinstance(one, dict)
    return one


_KNOWN: BoundedCache[tuple[Any, ...], Mapped] = BoundedCache(KNOWN_BYTES, KNOWN_BYTES)
_PARSED = KeyedLock()
_BLOCKS: BoundedCache[tuple[Any, ...], int] = BoundedCache.of_entries(MOST_KNOWN)
"""Maps name patterns (%b) to the number of sources at the last count; there may be more sources by now."""


def grows(mappings: Sequence[Record]) -> bool:
    """Return whether a mapping is unlimited, so that the dataset's extent follows the extents of its sources."""
    return any(map(has_no_end, mappings))


async def mapped(record: Record, dims_of_source: SourceDims) -> Mapped:
    """Return a virtual dataset's mappings; unlimited mappings are resolved to the current extents of the sources."""
    layout = record["creationProperties"]["layout"]
    dims, own = dims_of(record["shape"]) or (), (record["id"], record.get("created"))
    if not record[VIRTUAL_DATA]["grows"]:
        return await _remembered(own, layout["mappings"], lambda: Mapped(layout["mappings"], dims))
    mappings = [mapping_of(one) for one in layout["mappings"]]
    found: dict[Name, Dims | None] = {}
    for number, one in enumerate(mappings):
        if not has_no_end(layout["mappings"][number]):
            continue
        if one.by_blocks:
            blocks = await _count_blocks((*own, number), one.file, one.dataset, dims_of_source)
            found |= {(block_name(one.file, n), block_name(one.dataset, n)): () for n in range(blocks)}
        else:
            name = block_name(one.file, 0), block_name(one.dataset, 0)
            found[name] = await dims_of_source(name)
    stored = tuple(record[VIRTUAL_DATA].get("dims", dims))

    def make() -> Mapped:
        try:
            return Mapped(*resolve_mappings(mappings, stored, lambda *name: found.get(name)))
        except Corrupt as error:
            raise Conflict(f"The virtual dataset {record['id']}: {error.message}") from error

    return await _remembered((*own, tuple(found.items())), layout["mappings"], make)


async def _count_blocks(key: tuple[Any, ...], file: str, dataset: str, dims_of: SourceDims) -> int:
    """Return the number of sources that a name pattern yields before the first missing source."""

    async def is_there(block: int) -> bool:
        return await dims_of((block_name(file, block), block_name(dataset, block))) is not None

    before = _BLOCKS.get(key, 0)
    first = before if before and await is_there(before - 1) else 0
    for block in count(first):
        if block > MAX_BLOCKS or not await is_there(block):
            _BLOCKS.keep(key, block)
            return block
    raise AssertionError


async def _remembered(key: tuple[Any, ...], mappings: Sequence[Record], make: Callable[[], Mapped]) -> Mapped:
    def parsed() -> tuple[Mapped, int]:
        found = make()
        return found, MAPPING_BYTES * len(orjson.dumps(mappings)) + RESOLVED_BYTES * len(found)

    if (known := _KNOWN.use(key)) is not None:
        return known
    async with _PARSED.hold(key):  # single flight: concurrent reads share one parse
        if (known := _KNOWN.use(key)) is not None:
            return known
        found, nbytes = await compute(MAPPING_WORK * len(mappings), parsed)
        _KNOWN.keep(key, found, nbytes)
        return found
