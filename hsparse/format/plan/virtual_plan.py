"""Mappings of virtual datasets.

A mapping has a selection of the dataset and a selection of a source, of equal sizes. Elements at the same
position in the two selections correspond.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Corrupt, TooLarge
from hsparse.format.selections.boxes import Boxes
from hsparse.format.selections.orthogonal import Axis, StridedSpan, bounds
from hsparse.format.selections.serialized_selection import (
    UNLIMITED,
    AllElements,
    BlockList,
    NoElements,
    PointList,
    Regular,
    Serialized,
)

Dims = tuple[int, ...]
Indices: TypeAlias = NDArray[np.int64]
MAX_LISTED = 1 << 23
"""The most elements of a mapped selection that is neither a hyperslab nor a product of index lists."""


# --- selections -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """A selection of all combinations of ascending indices in each dimension."""

    axes: tuple[Axis, ...]

    @property
    def counts(self) -> Dims:
        return tuple(axis.size for axis in self.axes)

    @property
    def size(self) -> int:
        return prod(self.counts)

    @property
    def bounds(self) -> tuple[Dims, Dims]:
        """A pair: the lowest index, and the highest index plus one, per dimension; both are 0 if there is none."""
        found = [bounds(axis) or (0, 0) for axis in self.axes]
        return tuple(a for a, _ in found), tuple(b for _, b in found)

    def inside(self, start: Dims, stop: Dims) -> tuple[range, ...]:
        """Return per dimension the positions of the indices that are at least `start` and below `stop`."""
        return tuple(_positions(axis, a, b) for axis, a, b in zip(self.axes, start, stop, strict=True))

    def coords(self, numbers: Indices) -> tuple[Indices, ...]:
        """Return the coordinates, one array per dimension, of the elements at these positions in row-major order."""
        places = np.unravel_index(numbers, self.counts) if self.axes else ()
        return tuple(_at(axis, place) for axis, place in zip(self.axes, places, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class Listed:
    """A selection of elements by their row-major offsets in `extent`, in the order of the selection."""

    extent: Dims
    offsets: Indices

    @property
    def size(self) -> int:
        return len(self.offsets)

    @property
    def bounds(self) -> tuple[Dims, Dims]:
        """A pair: the lowest index, and the highest index plus one, per dimension; all are 0 without elements."""
        if not self.size:
            return (0,) * len(self.extent), (0,) * len(self.extent)
        coords = self.coords(np.arange(self.size))
        return tuple(int(one.min()) for one in coords), tuple(int(one.max()) + 1 for one in coords)

    def coords(self, numbers: Indices) -> tuple[Indices, ...]:
        """Return the coordinates, one array per dimension, of the elements at these positions in the selection."""
        return tuple(map(np.asarray, np.unravel_index(self.offsets[numbers], self.extent)))


Ordered: TypeAlias = Product | Listed


def ordered(selection: Serialized, dims: Dims) -> Ordered:
    """Convert a selection of extent `dims`; raise `Corrupt` if it is outside, and `TooLarge` beyond `MAX_LISTED`."""
    found: Ordered
    match selection:
        case AllElements():
            return Product(tuple(StridedSpan.range(0, length) for length in dims))
        case NoElements():
            return Listed(dims, np.zeros(0, np.int64))
        case Regular(spans):
            _check_rank(len(spans), dims)
            found, ends = Product(spans), [span.stop for span in spans]
        case PointList(coords):
            _check_rank(coords.shape[1], dims)
            ends = _ends(coords)
            _check_inside(ends, dims)
            return Listed(dims, _offsets(coords.astype(np.int64), dims))
        case BlockList(starts, last):
            _check_rank(starts.shape[1], dims)
            ends = _ends(last)
            _check_inside(ends, dims)
            found = _of_blocks(starts.astype(np.int64), last.astype(np.int64) + 1, dims)
    _check_inside(ends, dims)
    return found


def _of_blocks(starts: Indices, stops: Indices, dims: Dims) -> Ordered:
    """Return the union of blocks, as a `Product` if the union is a product of ranges."""
    if len(starts) == 1:
        return Product(tuple(map(StridedSpan.range, starts[0].tolist(), stops[0].tolist())))
    pairs = [np.unique(np.stack((starts[:, dim], stops[:, dim]), 1), axis=0) for dim in range(len(dims))]
    if prod(map(len, pairs)) == len(starts) and all((one[1:, 0] >= one[:-1, 1]).all() for one in pairs):
        axes = [_of_ranges(one[:, 0], one[:, 1]) for one in pairs]
        if all(axis is not None for axis in axes):
            return Product(tuple(axis for axis in axes if axis is not None))
    count = sum(map(prod, (stops - starts).tolist()))
    if count > MAX_LISTED:
        raise TooLarge(
            f"An irregular mapped selection has {count} elements; the limit is {MAX_LISTED}: map parts."
        )
    return Listed(
        dims, Boxes(dims, starts.astype(np.uint64), stops.astype(np.uint64)).offsets().astype(np.int64)
    )


def _of_ranges(starts: Indices, stops: Indices) -> Axis | None:
    """Return the union of ascending ranges as an axis, or None if it would list more than `MAX_LISTED` indices."""
    steps, lengths = np.diff(starts), stops - starts
    if (lengths == lengths[0]).all() and (len(steps) == 0 or (steps == steps[0]).all()):
        return StridedSpan(int(starts[0]), int(steps[0]) if len(steps) else 1, len(starts), int(lengths[0]))
    if int(lengths.sum()) > MAX_LISTED:
        return None
    pairs = zip(starts.tolist(), stops.tolist(), strict=True)
    return np.concatenate([np.arange(a, b, dtype=np.uint64) for a, b in pairs])


def _check_rank(rank: int, dims: Dims) -> None:
    if rank != len(dims):
        raise Corrupt(f"A mapped selection has {rank} dimensions; its dataset has {len(dims)}.")


def _check_inside(ends: Sequence[int], dims: Dims) -> None:
    for dim, (end, length) in enumerate(zip(ends, dims, strict=True)):
        if end > length:
            raise Corrupt(
                f"A mapped selection reaches {end} in dimension {dim}; its dataset ends at {length}."
            )


def _ends(coords: NDArray[Any]) -> list[int]:
    """Return the highest index plus one in each dimension."""
    return [int(column.max()) + 1 if len(column) else 0 for column in coords.T]


def _offsets(coords: Indices, dims: Dims) -> Indices:
    return np.asarray(np.ravel_multi_index(tuple(coords.T), dims), np.int64)


def _positions(axis: Axis, start: int, stop: int) -> range:
    if isinstance(axis, StridedSpan):
        first, last = axis.below(np.array([start, stop])).tolist()
    else:
        first, last = np.searchsorted(axis, np.array([start, stop], np.uint64)).tolist()
    return range(first, last)


def _at(axis: Axis, positions: NDArray[Any]) -> Indices:
    """Return the indices at these positions of an axis."""
    if not isinstance(axis, StridedSpan):
        return np.asarray(axis[positions], np.int64)
    blocks, rest = np.divmod(positions.astype(np.int64), axis.block)
    return np.asarray(axis.start + blocks * axis.stride + rest, np.int64)


# --- mappings -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class MappedPart:
    """Elements of a box of a virtual dataset, and the corresponding elements of a source.

    `target` has coordinates relative to the box's start; `source` has coordinates of the source; each has one array per
    dimension. If `products`, the elements are all combinations of the indices; else each array has one per element.
    """

    target: tuple[Indices, ...]
    source: tuple[Indices, ...]
    products: bool


def is_product(virtual: Ordered, source: Ordered) -> bool:
    """Return whether both selections are products whose counts are equal, apart from dimensions with count 1."""
    if not isinstance(virtual, Product) or not isinstance(source, Product):
        return False
    return [n for n in virtual.counts if n != 1] == [n for n in source.counts if n != 1]


def overlaps(virtual: Ordered, start: Dims, stop: Dims) -> bool:
    """Return whether a box has elements of a selection, or may have some if the selection is `Listed`."""
    if isinstance(virtual, Product):
        return all(virtual.inside(start, stop))
    return bool(virtual.size)


def mapped_part(virtual: Ordered, source: Ordered, start: Dims, stop: Dims) -> MappedPart | None:
    """Return the elements of a box that map to a source, or None if there are none; the selections have equal sizes."""
    if not overlaps(virtual, start, stop):
        return None
    if isinstance(virtual, Product):
        positions = virtual.inside(start, stop)
        lists = tuple(_at(axis, np.array(some)) for axis, some in zip(virtual.axes, positions, strict=True))
        target = tuple(one - a for one, a in zip(lists, start, strict=True))
        if is_product(virtual, source):
            assert isinstance(source, Product)
            left = iter([some for some, count in zip(positions, virtual.counts, strict=True) if count != 1])
            places = [range(1) if count == 1 else next(left) for count in source.counts]
            found = tuple(_at(axis, np.array(some)) for axis, some in zip(source.axes, places, strict=True))
            return MappedPart(target, found, True)
        grid = np.meshgrid(*map(np.array, positions), indexing="ij")
        numbers = np.ravel_multi_index(tuple(one.ravel() for one in grid), virtual.counts)
        grid = np.meshgrid(*target, indexing="ij")
        return MappedPart(tuple(one.ravel() for one in grid), source.coords(np.asarray(numbers)), False)
    coords = virtual.coords(np.arange(virtual.size))
    inside = np.ones(virtual.size, np.bool_)
    for one, a, b in zip(coords, start, stop, strict=True):
        inside &= (one >= a) & (one < b)
    numbers = np.flatnonzero(inside)
    if not len(numbers):
        return None
    target = tuple(one[numbers] - a for one, a in zip(coords, start, strict=True))
    return MappedPart(target, source.coords(numbers), False)


# --- unlimited selections -------------------------------------------------------------------------


def bounds_of(selection: Serialized, rank: int) -> Dims:
    """Return the highest index of a selection plus one, per dimension, or 0 if it is unlimited or has all elements.

    Raises `Corrupt` if the selection has another rank.
    """
    match selection:
        case Regular(spans):
            found = [0 if UNLIMITED in (span.count, span.block) else span.stop for span in spans]
        case PointList(coords):
            found = _ends(coords)
        case BlockList(_, ends):
            found = _ends(ends)
        case _:
            found = [0] * rank
    _check_rank(len(found), (0,) * rank)
    return tuple(found)
