"""Which elements of a virtual dataset are which elements of a source: two selections, both in row-major order.

The extents that a virtual dataset without end has are those of libhdf5 (`H5D__virtual_set_extent_unlim`, with its
default view, the last available data).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Corrupt, TooLarge
from hsparse.format.selections.boxes import Boxes
from hsparse.format.selections.orthogonal import Axis, Span, bounds
from hsparse.format.selections.serialized_selection import (
    UNLIMITED,
    AllElements,
    BlockList,
    NoElements,
    PointList,
    Regular,
    Serialized,
)
from hsparse.model.dataspace import MAX_EXTENT

Dims = tuple[int, ...]
Indices: TypeAlias = NDArray[np.int64]
MAX_LISTED = 1 << 23
"""The most elements of a selection that is neither a hyperslab nor a product of index lists."""


# --- selections -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """All combinations of ascending indices in each dimension."""

    axes: tuple[Axis, ...]

    @property
    def counts(self) -> Dims:
        return tuple(axis.size for axis in self.axes)

    @property
    def size(self) -> int:
        return prod(self.counts)

    @property
    def bounds(self) -> tuple[Dims, Dims]:
        """The lowest indices, and one past the highest; equal where there are none."""
        found = [bounds(axis) or (0, 0) for axis in self.axes]
        return tuple(a for a, _ in found), tuple(b for _, b in found)

    def inside(self, start: Dims, stop: Dims) -> tuple[range, ...]:
        """Return the positions in each dimension of the indices in a box."""
        return tuple(_positions(axis, a, b) for axis, a, b in zip(self.axes, start, stop, strict=True))

    def coords(self, numbers: Indices) -> tuple[Indices, ...]:
        """Return the coordinates of elements, numbered in row-major order."""
        places = np.unravel_index(numbers, self.counts) if self.axes else ()
        return tuple(_at(axis, place) for axis, place in zip(self.axes, places, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class Listed:
    """Elements by their row-major offsets in an extent, in the order of the selection."""

    extent: Dims
    offsets: Indices

    @property
    def size(self) -> int:
        return len(self.offsets)

    @property
    def bounds(self) -> tuple[Dims, Dims]:
        """The lowest indices, and one past the highest; equal where there are none."""
        if not self.size:
            return (0,) * len(self.extent), (0,) * len(self.extent)
        coords = self.coords(np.arange(self.size))
        return tuple(int(one.min()) for one in coords), tuple(int(one.max()) + 1 for one in coords)

    def coords(self, numbers: Indices) -> tuple[Indices, ...]:
        """Return the coordinates of elements, numbered in the order of the selection."""
        return tuple(map(np.asarray, np.unravel_index(self.offsets[numbers], self.extent)))


Ordered: TypeAlias = Product | Listed


def ordered(selection: Serialized, dims: Dims) -> Ordered:
    """Return a selection of an extent; `Corrupt` if it is not inside, `TooLarge` for too many single elements."""
    found: Ordered
    match selection:
        case AllElements():
            return Product(tuple(Span.range(0, length) for length in dims))
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
    """Return the union of blocks: a product of index lists where it is one."""
    if len(starts) == 1:
        return Product(tuple(map(Span.range, starts[0].tolist(), stops[0].tolist())))
    pairs = [np.unique(np.stack((starts[:, dim], stops[:, dim]), 1), axis=0) for dim in range(len(dims))]
    if prod(map(len, pairs)) == len(starts) and all((one[1:, 0] >= one[:-1, 1]).all() for one in pairs):
        axes = [_of_ranges(one[:, 0], one[:, 1]) for one in pairs]
        if all(axis is not None for axis in axes):
            return Product(tuple(axis for axis in axes if axis is not None))
    count = sum(map(prod, (stops - starts).tolist()))
    if count > MAX_LISTED:
        raise TooLarge(
            f"An irregular selection of {count} elements is mapped; the limit is {MAX_LISTED}: map it in parts."
        )
    return Listed(
        dims, Boxes(dims, starts.astype(np.uint64), stops.astype(np.uint64)).offsets().astype(np.int64)
    )


def _of_ranges(starts: Indices, stops: Indices) -> Axis | None:
    """Return the union of ascending ranges, None for too long a list of indices."""
    steps, lengths = np.diff(starts), stops - starts
    if (lengths == lengths[0]).all() and (len(steps) == 0 or (steps == steps[0]).all()):
        return Span(int(starts[0]), int(steps[0]) if len(steps) else 1, len(starts), int(lengths[0]))
    if int(lengths.sum()) > MAX_LISTED:
        return None
    pairs = zip(starts.tolist(), stops.tolist(), strict=True)
    return np.concatenate([np.arange(a, b, dtype=np.uint64) for a, b in pairs])


def _check_rank(rank: int, dims: Dims) -> None:
    if rank != len(dims):
        raise Corrupt(f"A selection of {rank} dimensions is mapped; the dataset has {len(dims)}.")


def _check_inside(ends: Sequence[int], dims: Dims) -> None:
    for dim, (end, length) in enumerate(zip(ends, dims, strict=True)):
        if end > length:
            raise Corrupt(
                f"A selection up to {end} in dimension {dim} is mapped; the dataset ends at {length}."
            )


def _ends(coords: NDArray[Any]) -> list[int]:
    """Return one past the last index in each dimension."""
    return [int(column.max()) + 1 if len(column) else 0 for column in coords.T]


def _offsets(coords: Indices, dims: Dims) -> Indices:
    return np.asarray(np.ravel_multi_index(tuple(coords.T), dims), np.int64)


def _positions(axis: Axis, start: int, stop: int) -> range:
    if isinstance(axis, Span):
        first, last = axis.below(np.array([start, stop])).tolist()
    else:
        first, last = np.searchsorted(axis, np.array([start, stop], np.uint64)).tolist()
    return range(first, last)


def _at(axis: Axis, positions: NDArray[Any]) -> Indices:
    """Return the indices at positions."""
    if not isinstance(axis, Span):
        return np.asarray(axis[positions], np.int64)
    blocks, rest = np.divmod(positions.astype(np.int64), axis.block)
    return np.asarray(axis.start + blocks * axis.stride + rest, np.int64)


# --- mappings -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class MappedPart:
    """Elements of a box and of the source that are the same.

    `target` are indices from the box's start, `source` of the source, in each dimension. With `products` these are
    index lists whose combinations are meant, as many in one as in the other; otherwise they are coordinates.
    """

    target: tuple[Indices, ...]
    source: tuple[Indices, ...]
    products: bool


def is_product(virtual: Ordered, source: Ordered) -> bool:
    """Say whether parts of the two selections are products of index lists: they differ only in dimensions of one."""
    if not isinstance(virtual, Product) or not isinstance(source, Product):
        return False
    return [n for n in virtual.counts if n != 1] == [n for n in source.counts if n != 1]


def overlaps(virtual: Ordered, start: Dims, stop: Dims) -> bool:
    """Say whether a box has elements of a selection; of listed ones, whether it may."""
    if isinstance(virtual, Product):
        return all(virtual.inside(start, stop))
    return bool(virtual.size)


def mapped_part(virtual: Ordered, source: Ordered, start: Dims, stop: Dims) -> MappedPart | None:
    """Return what of a box comes from a source, None for nothing; both selections have as many elements."""
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


# --- selections without end -----------------------------------------------------------------------


def slices_before(span: Span, end: int) -> int:
    """Return how many indices of a span without end are below `end`."""
    if end <= span.start:
        return 0
    if span.block == UNLIMITED:
        return end - span.start
    blocks, rest = divmod(end - span.start, span.stride)
    return blocks * span.block + min(rest, span.block)


def end_of_slices(span: Span, slices: int) -> int:
    """Return one past the last of the first `slices` indices of a span without end, 0 for none.

    `Corrupt` if no extent has so many.
    """
    if not slices:
        return 0
    if span.block == UNLIMITED or span.block == span.stride:
        end = span.start + slices
    else:
        blocks, rest = divmod(slices, span.block)
        end = span.start + (blocks * span.stride + rest if rest else (blocks - 1) * span.stride + span.block)
    if end > MAX_EXTENT:
        raise Corrupt(f"A selection up to {end} is mapped; a dataset ends at {MAX_EXTENT}.")
    return end


def clipped(selection: Regular, dim: int, slices: int) -> Serialized:
    """Return the first `slices` slices of a selection without end in `dim`.

    If they end inside a block, the result is a list of blocks.
    """
    span = selection.spans[dim]
    if not slices:
        return NoElements()
    if span.block == UNLIMITED or span.block == span.stride:
        return _with(selection, dim, Span.range(span.start, span.start + slices))
    blocks, rest = divmod(slices, span.block)
    if not rest:
        return _with(selection, dim, replace(span, count=blocks))
    if not blocks:
        return _with(selection, dim, Span.range(span.start, span.start + rest))
    return _blocks(_with(selection, dim, replace(span, count=blocks + 1)), dim, end_of_slices(span, slices))


def block_of(selection: Regular, dim: int, number: int) -> Regular:
    """Return one block of a selection without end in `dim`."""
    span = selection.spans[dim]
    start = span.start + number * span.stride
    return _with(selection, dim, Span.range(start, start + span.block))


def bounds_of(selection: Serialized, rank: int) -> Dims:
    """Return one past the last index of a selection in each dimension; 0 where it has no end, and for all elements.

    `Corrupt` for another rank.
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


def _with(selection: Regular, dim: int, span: Span) -> Regular:
    return Regular((*selection.spans[:dim], span, *selection.spans[dim + 1 :]))


def _blocks(selection: Regular, dim: int, end: int) -> BlockList:
    """Return the blocks of a limited hyperslab, cut at `end` in a dimension."""
    if (count := prod(span.count for span in selection.spans)) > MAX_LISTED:
        raise TooLarge(
            f"A selection of {count} blocks is mapped; the limit is {MAX_LISTED}: map it in parts."
        )
    starts = [span.start + np.arange(span.count) * span.stride for span in selection.spans]
    lasts = [one + span.block - 1 for one, span in zip(starts, selection.spans, strict=True)]
    lasts[dim] = np.minimum(lasts[dim], end - 1)
    return BlockList(_corners(starts), _corners(lasts), 8)


def _corners(lists: list[Indices]) -> NDArray[np.uint64]:
    return np.stack([one.ravel() for one in np.meshgrid(*lists, indexing="ij")], 1).astype(np.uint64)
