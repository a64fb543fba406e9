"""One axis of an orthogonal selection: a regular span of indices, or a list of them.

An index list is (n,) uint64, in any order, with repeats allowed. A *position* is an index's place in
the axis: `indices(axis)[position]`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest
from hsparse.format.selections.extent import as_indices

TABLE_LIMIT = 1 << 20
"""Index lists that reach no further than this are inverted by a table, others by a sorted search."""


@dataclass(frozen=True, slots=True)
class Span:
    """A regular hyperslab in one dimension: `count` blocks of `block` indices, `stride` apart."""

    start: int
    stride: int = 1
    count: int = 1
    block: int = 1

    @property
    def size(self) -> int:
        return self.count * self.block

    @property
    def stop(self) -> int:
        """One past the last index; `start` when there is none."""
        return self.start + (self.count - 1) * self.stride + self.block if self.size else self.start

    @property
    def contiguous(self) -> bool:
        return self.count <= 1 or self.stride == self.block

    @classmethod
    def range(cls, start: int, stop: int) -> Span:
        """Return the indices from `start` up to and without `stop`."""
        return cls(start, 1, 1, stop - start) if stop > start else EMPTY_SPAN

    def below(self, bounds: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many of the indices lie below each bound."""
        if self.contiguous:
            return np.clip(bounds - self.start, 0, self.size)
        blocks, rest = np.divmod(bounds - self.start, self.stride)
        found: NDArray[np.int64] = np.clip(blocks * self.block + np.minimum(rest, self.block), 0, self.size)
        return found

    def as_slice(self) -> slice | None:
        """Return the same indices as a slice, None when blocks with gaps forbid it."""
        if self.contiguous:
            return slice(self.start, self.stop)
        return slice(self.start, self.stop, self.stride) if self.block == 1 else None


EMPTY_SPAN = Span(0, 1, 0, 1)

Axis: TypeAlias = Span | NDArray[np.uint64]


def check_axis(axis: Axis, dim: int, length: int) -> Axis:
    """Return the axis, a list as uint64; `BadRequest` naming the dimension when `length` does not hold it."""
    if isinstance(axis, Span):
        _check_span(axis, dim, length)
        return axis
    found = as_indices(axis, f"indices of dimension {dim}")
    if found.ndim != 1:
        raise BadRequest(f"The indices of dimension {dim} must be a flat list.")
    if found.size and found.max() >= length:
        raise BadRequest(f"Index {found.max()} of dimension {dim} is not below its extent {length}.")
    return found


def _check_span(span: Span, dim: int, length: int) -> None:
    if span.start < 0 or span.count < 0 or span.block < 0 or span.stride < 1:
        raise BadRequest(f"Dimension {dim}: start, count and block must not be negative, stride at least 1.")
    if span.count > 1 and span.block > span.stride:
        raise BadRequest(
            f"Dimension {dim}: block {span.block} is larger than stride {span.stride}; blocks overlap."
        )
    if span.size and span.stop > length:
        raise BadRequest(f"Dimension {dim}: the selection ends at {span.stop}, beyond the extent {length}.")


def size(axis: Axis) -> int:
    """Return how many indices the axis has, with repeats."""
    return axis.size


def bounds(axis: Axis) -> tuple[int, int] | None:
    """Return the lowest index and one past the highest; None when there is none."""
    if not axis.size:
        return None
    if isinstance(axis, Span):
        return axis.start, axis.stop
    return int(axis.min()), int(axis.max()) + 1


def covers(axis: Axis, start: int, stop: int) -> bool:
    """Return whether every index in `start..stop-1` is there and no other, in any order."""
    found = bounds(axis)
    if found != (start, stop):
        return found is None and start >= stop
    if isinstance(axis, Span):
        return axis.contiguous
    return axis.size >= stop - start and bool(np.unique(axis).size == stop - start)


def is_whole(axis: Axis, length: int) -> bool:
    """Return whether the axis is `0..length-1` in order."""
    if isinstance(axis, Span):
        return axis.size == length and (length == 0 or (axis.start == 0 and axis.stop == length))
    return axis.size == length and bool(np.array_equal(axis, np.arange(length, dtype=np.uint64)))


def same(one: Axis, other: Axis) -> bool:
    """Return whether two axes have the same indices in the same order."""
    if isinstance(one, Span) and isinstance(other, Span):
        if one == other:
            return True
        if one.contiguous and other.contiguous:
            return one.size == other.size and (one.start == other.start or not one.size)
    return size(one) == size(other) and bool(np.array_equal(indices(one), indices(other)))


def indices(axis: Axis) -> NDArray[np.uint64]:
    """Return the indices, (n,) uint64, in order."""
    if not isinstance(axis, Span):
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
    """Return the indices, (n,) uint64, at `positions`, all below the axis' size."""
    if not isinstance(axis, Span):
        return axis[positions]
    if axis.contiguous:
        return positions + np.uint64(axis.start)
    blocks, rest = np.divmod(positions, np.uint64(axis.block))
    result: NDArray[np.uint64] = blocks * np.uint64(axis.stride) + rest + np.uint64(axis.start)
    return result


def translate(axis: Axis, offset: int) -> Axis:
    """Return the axis with `offset`, which may be negative, added to every index."""
    if isinstance(axis, Span):
        return Span(axis.start + offset, axis.stride, axis.count, axis.block) if axis.size else axis
    return axis + np.uint64(offset % 2**64)


def take(axis: Axis, first: int, last: int) -> Axis:
    """Return the indices at positions `first..last-1`."""
    if not isinstance(axis, Span):
        return axis[first:last]
    if last <= first:
        return EMPTY_SPAN
    if axis.contiguous:
        return Span.range(axis.start + first, axis.start + last)
    left, right = first // axis.block, -(-last // axis.block)
    if right - left == 1:
        base = axis.start + left * (axis.stride - axis.block)
        return Span.range(base + first, base + last)
    if first % axis.block == 0 and last % axis.block == 0:
        return Span(axis.start + left * axis.stride, axis.stride, right - left, axis.block)
    cut = indices(Span(axis.start + left * axis.stride, axis.stride, right - left, axis.block))
    return cut[first - left * axis.block : last - left * axis.block]


def clip(axis: Axis, start: int, stop: int) -> Axis:
    """Return the indices that lie in `start..stop-1`, in order."""
    if isinstance(axis, Span):
        first, last = axis.below(np.array([start, max(start, stop)], np.int64))
        return take(axis, int(first), int(last))
    return axis[(axis >= start) & (axis < stop)] if stop > start else axis[:0]


def contains(axis: Axis, values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which of `values` are indices of the axis; (n,) unsigned, of a dtype that holds the extent."""
    found = bounds(axis)
    if found is None:
        return np.zeros(len(values), np.bool_)
    kind = values.dtype.type
    start, stop = found
    inside: NDArray[np.bool_]
    # one comparison for both bounds: a value below start wraps around to a large number
    shifted = values - kind(start)
    inside = shifted <= kind(stop - 1 - start)
    if isinstance(axis, Span):
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
    """Return the position of each of `values`, all of which the axis has, without repeats in the axis."""
    result: NDArray[np.intp]
    if isinstance(axis, Span):
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


def as_span(axis: Axis) -> Span | None:
    """Return the axis as a span when its indices ascend in equal steps, else None."""
    if isinstance(axis, Span):
        return axis
    if axis.size == 0:
        return EMPTY_SPAN
    start = int(axis[0])
    if axis.size == 1:
        return Span(start)
    if not (axis[1:] > axis[:-1]).all():
        return None
    steps = axis[1:] - axis[:-1]
    if not (steps == steps[0]).all():
        return None
    step = int(steps[0])
    return Span(start, step, axis.size) if step > 1 else Span.range(start, start + axis.size)
