"""The mappings of a virtual dataset as reads need them: which may have elements of a box, and each one when it is used.

Mappings without end are resolved to what their sources have now, see `resolve_mappings`. What was made of a layout,
which never changes, is remembered.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Conflict, Corrupt
from hsparse.format.plan.virtual_plan import Ordered, ordered
from hsparse.hdf5.format.parse.mapping_json import mapping_of
from hsparse.hdf5.format.parse.virtual_mapping import block_name
from hsparse.hdf5.importer.mapped_sources import MAX_BLOCKS, MappedSource, resolve_mappings
from hsparse.hdf5.virtual.mappings import has_no_end, is_plain, plain_bounds
from hsparse.model.dataspace import dims_of
from hsparse.model.schema import VIRTUAL_DATA

Record: TypeAlias = dict[str, Any]
Dims = tuple[int, ...]
Name = tuple[str, str]
SourceDims = Callable[[Name], Awaitable[Dims | None]]
MOST_KNOWN = 64
MOST_COMPARED = 4000
"""The most mappings of which each is compared with each other."""


class Mapped:
    """The mappings with an end of a virtual dataset of the extent `dims`, by their numbers, in their order."""

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

    def __len__(self) -> int:
        return len(self._mappings)

    def source(self, number: int) -> MappedSource:
        """Return a mapping."""
        if number not in self._sources:
            one = self._mappings[number]
            if isinstance(one, dict):
                found = mapping_of(one)
                names = block_name(found.file, 0), block_name(found.dataset, 0)
                one = MappedSource(*names, found.virtual, found.source)
            self._sources[number] = one
        return self._sources[number]

    def name(self, number: int) -> Name:
        """Return the name of a mapping's source."""
        one = self.source(number)
        return one.file, one.dataset

    def virtual(self, number: int) -> Ordered:
        """Return the virtual selection of a mapping; `Conflict` if it is beyond the extent."""
        if number not in self._virtual:
            try:
                self._virtual[number] = ordered(self.source(number).virtual, self.dims)
            except Corrupt as error:
                raise Conflict(
                    f"Mapping {number} does not fit the virtual dataset: {error.message}"
                ) from error
        return self._virtual[number]

    def near(self, low: Sequence[int], high: Sequence[int]) -> NDArray[np.intp]:
        """Return the numbers of the mappings that may have elements of a box, ascending."""
        near = (self.low < np.array(high, np.int64)) & (self.high > np.array(low, np.int64))
        return np.flatnonzero(near.all(axis=1))

    def near_each(self, boxes: Sequence[tuple[Dims, Dims] | None]) -> list[list[int]]:
        """Return the same for each of some boxes, of which one may be none."""
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
        """Say whether the boxes around mappings have nothing in common; of too many, that they may have."""
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


_KNOWN: dict[tuple[Any, ...], Mapped] = {}
_BLOCKS: dict[tuple[Any, ...], int] = {}
"""How many sources a pattern had when it was looked at last; there may be more since."""


def grows(mappings: Sequence[Record]) -> bool:
    """Say whether the extent follows that of sources: a mapping has no end."""
    return any(map(has_no_end, mappings))


async def mapped(record: Record, dims_of_source: SourceDims) -> Mapped:
    """Return the mappings of a virtual dataset with what their sources have now."""
    layout = record["creationProperties"]["layout"]
    dims, own = dims_of(record["shape"]) or (), (record["id"], record.get("created"))
    if not record[VIRTUAL_DATA]["grows"]:
        return _remembered(own, lambda: Mapped(layout["mappings"], dims))
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

    return _remembered((*own, tuple(found.items())), make)


async def _count_blocks(key: tuple[Any, ...], file: str, dataset: str, dims_of: SourceDims) -> int:
    """Return the number of sources that a pattern names, up to the first missing one."""

    async def is_there(block: int) -> bool:
        return await dims_of((block_name(file, block), block_name(dataset, block))) is not None

    before = _BLOCKS.get(key, 0)
    first = before if before and await is_there(before - 1) else 0
    for block in count(first):
        if block > MAX_BLOCKS or not await is_there(block):
            _put(_BLOCKS, key, block)
            return block
    raise AssertionError


def _remembered(key: tuple[Any, ...], make: Callable[[], Mapped]) -> Mapped:
    known = _KNOWN.pop(key, None) or make()
    _put(_KNOWN, key, known)
    return known


def _put(table: dict[Any, Any], key: Any, value: Any) -> None:
    """Put an item into a table, in place of the oldest one if that is full."""
    table[key] = value
    if len(table) > MOST_KNOWN:
        table.pop(next(iter(table)))
