"""Orthogonal selections: the product of one axis per dimension.

An *axis* is a regular span of indices, or an index list: (n,) uint64, in any order, with repeats allowed. A *position*
is a number that locates an index in the axis: `indices(axis)[position]`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest
from hsparse.format.selections.extent import (
    as_indices,
    check_countable,
    check_extent,
    coordinate_columns,
    expand,
    strides,
    widen,
)

TABLE_LIMIT = 1 << 20
"""Index lists with a range of at most this length are inverted by a table, other lists by binary search."""


@dataclass(frozen=True, slots=True)
class StridedSpan:
    """A regular hyperslab in one dimension: `count` blocks of `block` indices that begin `stride` apart."""

    start: int
    stride: int = 1
    count: int = 1
    block: int = 1

    @property
    def size(self) -> int:
        return self.count * self.block

    @property
    def stop(self) -> int:
        """The last index plus one, or `start` if the span has no index."""
        return self.start + (self.count - 1) * self.stride + self.block if self.size else self.start

    @property
    def contiguous(self) -> bool:
        return self.count <= 1 or self.stride == self.block

    @classmethod
    def range(cls, start: int, stop: int) -> StridedSpan:
        """Return the span of the indices from `start` to `stop` (exclusive)."""
        return cls(start, 1, 1, stop - start) if stop > start else EMPTY_SPAN

    def below(self, bounds: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of indices below each of `bounds`."""
        if self.contiguous:
            return np.clip(bounds - self.start, 0, self.size)
        blocks, rest = np.divmod(bounds - self.start, self.stride)
        found: NDArray[np.int64] = np.clip(blocks * self.block + np.minimum(rest, self.block), 0, self.size)
        return found

    def as_slice(self) -> slice | None:
        """Return the same indices as a slice, or None if there are gaps between blocks of several indices."""
        if self.contiguous:
            return slice(self.start, self.stop)
        return slice(self.start, self.stop, self.stride) if self.block == 1 else None


EMPTY_SPAN = StridedSpan(0, 1, 0, 1)

Axis: TypeAlias = StridedSpan | NDArray[np.uint64]


def check_axis(axis: Axis, dim: int, length: int) -> Axis:
    """Return the axis, with lists as uint64; raise `BadRequest` if it is invalid or not inside `length`."""
    if isinstance(axis, StridedSpan):
        _check_span(axis, dim, length)
        return axis
    found = as_indices(axis, f"indices of dimension {dim}")
    if found.ndim != 1:
        raise BadRequest(f"The indices of dimension {dim} must be a flat list.")
    if found.size and found.max() >= length:
        raise BadRequest(f"Index {found.max()} of dimension {dim} is not below its extent {length}.")
    return found


def _check_span(span: StridedSpan, dim: int, length: int) -> None:
    if span.start < 0 or span.count < 0 or span.block < 0 or span.stride < 1:
        raise BadRequest(f"Dimension {dim}: start, count, block must not be negative, stride not below 1.")
    if span.count > 1 and span.block > span.stride:
        raise BadRequest(
            f"Dimension {dim}: block {span.block} is larger than stride {span.stride}; blocks overlap."
        )
    if span.size and span.stop > length:
        raise BadRequest(f"Dimension {dim}: the selection ends at {span.stop}, beyond the extent {length}.")


def size(axis: Axis) -> int:
    """Return the number of indices of the axis, including repeats."""
    return axis.size


def bounds(axis: Axis) -> tuple[int, int] | None:
    """Return the lowest index and the highest index plus one, or None if there is no index."""
    if not axis.size:
        return None
    if isinstance(axis, StridedSpan):
        return axis.start, axis.stop
    return int(axis.min()), int(axis.max()) + 1


def covers(axis: Axis, start: int, stop: int) -> bool:
    """Return whether the axis has exactly the indices `start..stop-1`, in any order."""
    found = bounds(axis)
    if found != (start, stop):
        return found is None and start >= stop
    if isinstance(axis, StridedSpan):
        return axis.contiguous
    return axis.size >= stop - start and bool(np.unique(axis).size == stop - start)


def is_whole(axis: Axis, length: int) -> bool:
    """Return whether the axis is `0..length-1` in order."""
    if isinstance(axis, StridedSpan):
        return axis.size == length and (length == 0 or (axis.start == 0 and axis.stop == length))
    return axis.size == length and bool(np.array_equal(axis, np.arange(length, dtype=np.uint64)))


def same(one: Axis, other: Axis) -> bool:
    """Return whether two axes have the same indices in the same order."""
    if isinstance(one, StridedSpan) and isinstance(other, StridedSpan):
        if one == other:
            return True
        if one.contiguous and other.contiguous:
            return one.size == other.size and (one.start == other.start or not one.size)
    return size(one) == size(other) and bool(np.array_equal(indices(one), indices(other)))


def indices(axis: Axis) -> NDArray[np.uint64]:
    """Return the indices of the axis, (n,) uint64, in order."""
    if not isinstance(axis, StridedSpan):
        return axis
    if axis.contiguous:
        return np.arange(axis.start, axis.stop, dtype=np.uint64)
    if axis.block == 1:
        return np.arange(axis.start, axis.stop, axis.stride, dtype=np.uint64)
    firsts: NDArray[np.uint64] = np.arange(axis.start, axis.stop, axis.stride, dtype=np.uint64)
    steps: NDArray[np.uint64] = np.arange(axis.block, dtype=np.uint64)
    result: NDArray[np.uint64] = (firsts[:, None] + steps).ravel()
    return result


def at(axis: Axis, positions: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the indices, (n,) uint64, at `positions: (n,) uint64`, all below the axis's size."""
    if not isinstance(axis, StridedSpan):
        return axis[positions]
    if axis.contiguous:
        return positions + np.uint64(axis.start)
    blocks, rest = np.divmod(positions, np.uint64(axis.block))
    result: NDArray[np.uint64] = blocks * np.uint64(axis.stride) + rest + np.uint64(axis.start)
    return result


def translate(axis: Axis, offset: int) -> Axis:
    """Return the axis with the signed `offset` added to every index."""
    if isinstance(axis, StridedSpan):
        return StridedSpan(axis.start + offset, axis.stride, axis.count, axis.block) if axis.size else axis
    return axis + np.uint64(offset % 2**64)


def take(axis: Axis, first: int, last: int) -> Axis:
    """Return an axis of the indices at positions `first..last-1`."""
    if not isinstance(axis, StridedSpan):
        return axis[first:last]
    if last <= first:
        return EMPTY_SPAN
    if axis.contiguous:
        return StridedSpan.range(axis.start + first, axis.start + last)
    left, right = first // axis.block, -(-last // axis.block)
    if right - left == 1:
        base = axis.start + left * (axis.stride - axis.block)
        return StridedSpan.range(base + first, base + last)
    if first % axis.block == 0 and last % axis.block == 0:
        return StridedSpan(axis.start + left * axis.stride, axis.stride, right - left, axis.block)
    cut = indices(StridedSpan(axis.start + left * axis.stride, axis.stride, right - left, axis.block))
    return cut[first - left * axis.block : last - left * axis.block]


def clip(axis: Axis, start: int, stop: int) -> Axis:
    """Return an axis of the indices that lie in `start..stop-1`, in order."""
    if isinstance(axis, StridedSpan):
        first, last = axis.below(np.array([start, max(start, stop)], np.int64))
        return take(axis, int(first), int(last))
    return axis[(axis >= start) & (axis < stop)] if stop > start else axis[:0]


def contains(axis: Axis, values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return a mask, (n,), of the `values` that are indices of the axis; their unsigned dtype must hold the extent."""
    found = bounds(axis)
    if found is None:
        return np.zeros(len(values), np.bool_)
    kind = values.dtype.type
    start, stop = found
    inside: NDArray[np.bool_]
    # One comparison checks both bounds, because a value below `start` wraps around to a large number.
    shifted = values - kind(start)
    inside = shifted <= kind(stop - 1 - start)
    if isinstance(axis, StridedSpan):
        if axis.contiguous:
            return inside
        inside &= shifted % kind(axis.stride) < kind(axis.block)
        return inside
    if stop - start <= TABLE_LIMIT:
        table = np.zeros(stop - start, np.bool_)
        table[axis - np.uint64(start)] = True
        inside[inside] = table[shifted[inside]]
        return inside
    inside &= np.isin(values, axis)
    return inside


def positions(axis: Axis, values: NDArray[Any]) -> NDArray[np.intp]:
    """Return the position of each value in `values`; all must be in the axis, which must have no repeats."""
    result: NDArray[np.intp]
    if isinstance(axis, StridedSpan):
        shifted = values - values.dtype.type(axis.start)
        if axis.contiguous:
            result = shifted.astype(np.intp)
            return result
        blocks, rest = np.divmod(shifted, values.dtype.type(axis.stride))
        result = (blocks * values.dtype.type(axis.block) + rest).astype(np.intp)
        return result
    found = bounds(axis)
    if found is not None and found[1] - found[0] <= TABLE_LIMIT:
        table = np.empty(found[1] - found[0], np.intp)
        table[axis - np.uint64(found[0])] = np.arange(axis.size)
        result = table[values - values.dtype.type(found[0])]
        return result
    order = np.argsort(axis, kind="stable")
    result = order[np.searchsorted(axis[order], values)]
    return result


def as_span(axis: Axis) -> StridedSpan | None:
    """Return the axis as a span if its indices ascend in equal steps, or else None."""
    if isinstance(axis, StridedSpan):
        return axis
    if axis.size == 0:
        return EMPTY_SPAN
    start = int(axis[0])
    if axis.size == 1:
        return StridedSpan(start)
    if not (axis[1:] > axis[:-1]).all():
        return None
    steps = axis[1:] - axis[:-1]
    if not (steps == steps[0]).all():
        return None
    step = int(steps[0])
    return StridedSpan(start, step, axis.size) if step > 1 else StridedSpan.range(start, start + axis.size)


RUN_COST = 16
"""The approximate number of elements that are tested one by one in the time of one binary search."""


@dataclass(frozen=True, slots=True, eq=False)
class Orthogonal:
    """A selection by one `Axis` per dimension of `extent`: all, none, regular hyperslabs and index lists.

    Iteration is row-major over the axes, each in its own order. A selection of rank 0 has the only element of a scalar.
    """

    extent: tuple[int, ...]
    axes: tuple[Axis, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "extent", check_extent(self.extent))
        if len(self.axes) != len(self.extent):
            raise BadRequest(f"The selection must have {len(self.extent)} dimensions, not {len(self.axes)}.")
        checked = zip(self.axes, self.extent, strict=True)
        axes = tuple(check_axis(axis, dim, length) for dim, (axis, length) in enumerate(checked))
        object.__setattr__(self, "axes", axes)

    def __eq__(self, other: object) -> bool:
        """Return whether both selections have the same extent, and the same elements in the same order."""
        if not isinstance(other, Orthogonal):
            return NotImplemented
        if self.extent != other.extent or self.shape != other.shape:
            return False
        pairs = zip(self.axes, other.axes, strict=True)
        return self.size == 0 or all(same(a, b) for a, b in pairs)

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def all(cls, extent: Sequence[int]) -> Orthogonal:
        return cls(tuple(extent), tuple(StridedSpan(0, 1, 1, length) for length in extent))

    @classmethod
    def none(cls, extent: Sequence[int]) -> Orthogonal:
        """Return an empty selection; raise `BadRequest` for a scalar, whose only orthogonal selection is all."""
        if not extent:
            raise BadRequest("A scalar has no empty hyperslab: select all, or do not send the request.")
        return cls(tuple(extent), (EMPTY_SPAN,) * len(extent))

    @classmethod
    def box(cls, extent: Sequence[int], start: Sequence[int], stop: Sequence[int]) -> Orthogonal:
        """Return the selection of the block from corner `start` to corner `stop` (exclusive)."""
        if not len(start) == len(stop) == len(extent):
            raise BadRequest(f"The corners of a block need {len(extent)} coordinates, as the extent has.")
        return cls(tuple(extent), tuple(map(StridedSpan.range, start, stop)))

    @classmethod
    def trusted(cls, extent: tuple[int, ...], axes: tuple[Axis, ...]) -> Orthogonal:
        """Return a selection without checks; the axes must be valid and inside the extent."""
        self = object.__new__(cls)
        object.__setattr__(self, "extent", extent)
        object.__setattr__(self, "axes", axes)
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(axis.size for axis in self.axes)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def is_all(self) -> bool:
        """Whether all elements of the extent are selected, in row-major order."""
        return all(map(is_whole, self.axes, self.extent))

    def bounds(self) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Return the lowest and the (exclusive) highest corner, or None if nothing is selected."""
        if self.size == 0:
            return None
        pairs = [ends for axis in self.axes if (ends := bounds(axis))]
        return tuple(low for low, _ in pairs), tuple(high for _, high in pairs)

    def offsets(self) -> NDArray[np.uint64]:
        """Return the row-major linear offsets in the extent, (n,) uint64, in iteration order."""
        check_countable(self.extent)
        result = np.zeros(1, np.uint64)
        for axis, stride in zip(self.axes, strides(self.extent), strict=True):
            result = (result[:, None] + indices(axis) * np.uint64(stride)).ravel()
        return result

    def coords(self) -> NDArray[np.uint64]:
        """Return the coordinates, (n, rank) uint64, in iteration order."""
        result = np.empty((*self.shape, len(self.extent)), np.uint64)
        for dim, axis in enumerate(self.axes):
            column = indices(axis).reshape((-1,) + (1,) * (len(self.extent) - dim - 1))
            result[..., dim] = column
        return result.reshape(self.size, len(self.extent))

    def translate(self, offset: Sequence[int], extent: Sequence[int]) -> Orthogonal:
        """Return the selection moved by the signed `offset` in another extent; raise `BadRequest` if outside."""
        return Orthogonal(tuple(extent), tuple(map(translate, self.axes, offset)))

    def clip(self, start: Sequence[int], stop: Sequence[int]) -> Orthogonal:
        """Return the selected elements in the block `start..stop` (exclusive), in the same coordinates."""
        return Orthogonal.trusted(self.extent, tuple(map(clip, self.axes, start, stop)))

    def index(self) -> tuple[Any, ...]:
        """Return a numpy index that selects the elements from an array of the extent's shape."""
        slices = [axis.as_slice() if isinstance(axis, StridedSpan) else None for axis in self.axes]
        if slices.count(None) <= 1:
            return tuple(
                indices(axis).astype(np.intp) if cut is None else cut
                for axis, cut in zip(self.axes, slices, strict=True)
            )
        return np.ix_(*(indices(axis).astype(np.intp) for axis in self.axes))

    def contains(self, offsets: NDArray[Any]) -> NDArray[np.bool_]:
        """Return a mask of those `offsets` that are selected; `offsets` must be ascending unsigned linear offsets."""
        mask = np.zeros(len(offsets), np.bool_)
        mask[self.places(offsets)] = True
        return mask

    def places(self, offsets: NDArray[Any]) -> slice | NDArray[np.intp]:
        """Return a numpy index of those `offsets` that are selected; they must be ascending unsigned linear offsets.

        The index is a slice if the selected offsets are adjacent, or else an ascending array.
        """
        offsets, steps = widen(offsets, self.extent), strides(self.extent)
        low = high = 0
        for axis, step in zip(self.axes, steps, strict=True):
            ends = bounds(axis)
            if ends is None:
                return slice(0, 0)
            low, high = low + ends[0] * step, high + (ends[1] - 1) * step
        first = int(np.searchsorted(offsets, offsets.dtype.type(low), "left"))
        last = int(np.searchsorted(offsets, offsets.dtype.type(high), "right"))
        todo = self._open_axes()
        if not todo or first >= last:
            return slice(first, max(first, last))
        between = offsets[first:last]
        axis = self.axes[todo[-1]]
        pieces = (1 if axis.contiguous else axis.count) if isinstance(axis, StridedSpan) else axis.size
        if math.prod(self.shape[: todo[-1]]) * pieces * RUN_COST < len(between):
            found = self._places_by_runs(between, todo[-1])
        else:
            found = np.flatnonzero(self._contains_each(between, todo, steps))
        found += first
        return found

    def _contains_each(
        self, offsets: NDArray[Any], todo: list[int], steps: Sequence[int]
    ) -> NDArray[np.bool_]:
        """Return the same as `contains`, testing coordinates in the dimensions `todo`; `steps` are the strides."""
        mask: NDArray[np.bool_] | None = None
        kind = offsets.dtype.type
        for dim in todo:
            column = offsets // kind(steps[dim])
            if dim:  # compute the remainder by a division, which is several times as fast in numpy
                column -= column // kind(self.extent[dim]) * kind(self.extent[dim])
            inside = contains(self.axes[dim], column)
            mask = inside if mask is None else mask & inside
        assert mask is not None
        return mask

    def _open_axes(self) -> list[int]:
        """Return the dimensions to test for offsets that are between the first and the last selected element."""
        todo = []
        leading = True
        for dim, axis in enumerate(self.axes):
            settled = leading and isinstance(axis, StridedSpan) and axis.contiguous
            leading = leading and axis.size == 1
            if not settled and not leading and not is_whole(axis, self.extent[dim]):
                todo.append(dim)
        return todo

    def _places_by_runs(self, offsets: NDArray[Any], dim: int) -> NDArray[np.intp]:
        """Return the same as `places`, by binary search of each run; the dimensions after `dim` must be whole."""
        unit = strides(self.extent)[dim]
        rows = Orthogonal.trusted(self.extent[:dim], self.axes[:dim]).offsets() * np.uint64(self.extent[dim])
        axis = self.axes[dim]
        length = 1
        if isinstance(axis, StridedSpan):
            length = axis.size if axis.contiguous else axis.block
            axis = StridedSpan(axis.start, axis.stride, 1 if axis.contiguous else axis.count, 1)
        begins = np.unique((rows[:, None] + indices(axis)).ravel()) * np.uint64(unit)
        kind = offsets.dtype
        starts = np.searchsorted(offsets, begins.astype(kind), "left")
        stops = np.searchsorted(offsets, (begins + np.uint64(length * unit - 1)).astype(kind), "right")
        return expand(starts.astype(np.uint64), stops.astype(np.uint64)).astype(np.intp)

    def order_of(self, offsets: NDArray[Any]) -> NDArray[np.intp]:
        """Return the position of each offset in iteration order; all must be selected, and axes have no repeats."""
        if self.is_all:
            return offsets.astype(np.intp)
        offsets = widen(offsets, self.extent)
        result = np.zeros(len(offsets), np.intp)
        for axis, column in zip(self.axes, coordinate_columns(offsets, self.extent), strict=True):
            result *= axis.size
            result += positions(axis, column)
        return result
