"""Orthogonal selections: the product of one index set a dimension."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest
from hsparse.format.selections import axis as ax
from hsparse.format.selections.axis import EMPTY_SPAN, Axis, Span
from hsparse.format.selections.extent import check_countable, check_extent, coordinate_columns, strides, widen
from hsparse.format.selections.runs import expand

RUN_COST = 16
"""About how many elements can be tested one by one in the time of one binary search."""


@dataclass(frozen=True, slots=True, eq=False)
class Orthogonal:
    """All, none, regular hyperslabs and index lists: one `Axis` a dimension of `extent`.

    Iteration is row-major over the axes, each in its own order. Rank 0 is the scalar: one element.
    """

    extent: tuple[int, ...]
    axes: tuple[Axis, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "extent", check_extent(self.extent))
        if len(self.axes) != len(self.extent):
            raise BadRequest(f"The selection has {len(self.axes)} dimensions, the extent {len(self.extent)}.")
        checked = zip(self.axes, self.extent, strict=True)
        axes = tuple(ax.check_axis(axis, dim, length) for dim, (axis, length) in enumerate(checked))
        object.__setattr__(self, "axes", axes)

    def __eq__(self, other: object) -> bool:
        """Same extent, and the same elements in the same order."""
        if not isinstance(other, Orthogonal):
            return NotImplemented
        if self.extent != other.extent or self.shape != other.shape:
            return False
        pairs = zip(self.axes, other.axes, strict=True)
        return self.size == 0 or all(ax.same(a, b) for a, b in pairs)

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def all(cls, extent: Sequence[int]) -> Orthogonal:
        return cls(tuple(extent), tuple(Span(0, 1, 1, length) for length in extent))

    @classmethod
    def none(cls, extent: Sequence[int]) -> Orthogonal:
        """Select nothing; `BadRequest` for a scalar, whose only orthogonal selection is all."""
        if not extent:
            raise BadRequest("A scalar has no empty hyperslab; leave the request out.")
        return cls(tuple(extent), (EMPTY_SPAN,) * len(extent))

    @classmethod
    def box(cls, extent: Sequence[int], start: Sequence[int], stop: Sequence[int]) -> Orthogonal:
        """Select the block from corner `start` up to and without corner `stop`."""
        if not len(start) == len(stop) == len(extent):
            raise BadRequest(f"The corners of a block need {len(extent)} coordinates, as the extent has.")
        return cls(tuple(extent), tuple(map(Span.range, start, stop)))

    @classmethod
    def trusted(cls, extent: tuple[int, ...], axes: tuple[Axis, ...]) -> Orthogonal:
        """Build without the checks, from axes that are known to fit."""
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
        """Every element of the extent, in row-major order."""
        return all(map(ax.is_whole, self.axes, self.extent))

    def bounds(self) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Return the lowest corner and one past the highest; None when nothing is selected."""
        if self.size == 0:
            return None
        pairs = [bounds for axis in self.axes if (bounds := ax.bounds(axis))]
        return tuple(low for low, _ in pairs), tuple(high for _, high in pairs)

    def offsets(self) -> NDArray[np.uint64]:
        """Return the row-major linear offsets in the extent, (n,) uint64, in iteration order."""
        check_countable(self.extent)
        result = np.zeros(1, np.uint64)
        for axis, stride in zip(self.axes, strides(self.extent), strict=True):
            result = (result[:, None] + ax.indices(axis) * np.uint64(stride)).ravel()
        return result

    def coords(self) -> NDArray[np.uint64]:
        """Return the coordinates, (n, rank) uint64, in iteration order."""
        result = np.empty((*self.shape, len(self.extent)), np.uint64)
        for dim, axis in enumerate(self.axes):
            column = ax.indices(axis).reshape((-1,) + (1,) * (len(self.extent) - dim - 1))
            result[..., dim] = column
        return result.reshape(self.size, len(self.extent))

    def translate(self, offset: Sequence[int], extent: Sequence[int]) -> Orthogonal:
        """Return the selection moved by `offset`, signed, in another extent; `BadRequest` beyond that."""
        return Orthogonal(tuple(extent), tuple(map(ax.translate, self.axes, offset)))

    def clip(self, start: Sequence[int], stop: Sequence[int]) -> Orthogonal:
        """Return the elements in the block `start..stop` (exclusive), in the same coordinates."""
        return Orthogonal.trusted(self.extent, tuple(map(ax.clip, self.axes, start, stop)))

    def index(self) -> tuple[Any, ...]:
        """Return the numpy index of the selection in an array of the extent's shape."""
        slices = [axis.as_slice() if isinstance(axis, Span) else None for axis in self.axes]
        if slices.count(None) <= 1:
            return tuple(
                ax.indices(axis).astype(np.intp) if cut is None else cut
                for axis, cut in zip(self.axes, slices, strict=True)
            )
        return np.ix_(*(ax.indices(axis).astype(np.intp) for axis in self.axes))

    def contains(self, offsets: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which of `offsets`, ascending unsigned linear offsets in the extent, are selected."""
        mask = np.zeros(len(offsets), np.bool_)
        mask[self.places(offsets)] = True
        return mask

    def places(self, offsets: NDArray[Any]) -> slice | NDArray[np.intp]:
        """Return where in `offsets`, ascending unsigned linear offsets in the extent, the selected ones are.

        An index of `offsets`: a slice where they are adjacent, else ascending places.
        """
        offsets = widen(offsets, self.extent)
        corners = self.bounds()
        if corners is None or not len(offsets):
            return slice(0, 0)
        steps = strides(self.extent)
        low = sum(a * b for a, b in zip(corners[0], steps, strict=True))
        high = sum((a - 1) * b for a, b in zip(corners[1], steps, strict=True))
        first = int(np.searchsorted(offsets, offsets.dtype.type(low), "left"))
        last = int(np.searchsorted(offsets, offsets.dtype.type(high), "right"))
        todo = self._open_axes()
        if not todo or first >= last:
            return slice(first, max(first, last))
        between = offsets[first:last]
        axis = self.axes[todo[-1]]
        pieces = (1 if axis.contiguous else axis.count) if isinstance(axis, Span) else axis.size
        if math.prod(self.shape[: todo[-1]]) * pieces * RUN_COST < len(between):
            found = self._places_by_runs(between, todo[-1])
        else:
            found = np.flatnonzero(self._contains_each(between, todo))
        found += first
        return found

    def _contains_each(self, offsets: NDArray[Any], todo: list[int]) -> NDArray[np.bool_]:
        """`contains` by the coordinates in the dimensions `todo`."""
        mask: NDArray[np.bool_] | None = None
        steps = strides(self.extent)
        kind = offsets.dtype.type
        for dim in todo:
            column = offsets // kind(steps[dim])
            if dim:  # the remainder; numpy divides several times as fast
                column -= column // kind(self.extent[dim]) * kind(self.extent[dim])
            inside = ax.contains(self.axes[dim], column)
            mask = inside if mask is None else mask & inside
        assert mask is not None
        return mask

    def _open_axes(self) -> list[int]:
        """Return the dimensions that the linear range from first to last element leaves to be tested."""
        todo = []
        leading = True
        for dim, axis in enumerate(self.axes):
            settled = leading and isinstance(axis, Span) and axis.contiguous
            leading = leading and axis.size == 1
            if not settled and not leading and not ax.is_whole(axis, self.extent[dim]):
                todo.append(dim)
        return todo

    def _places_by_runs(self, offsets: NDArray[Any], dim: int) -> NDArray[np.intp]:
        """`places` by binary search of each run; the dimensions after `dim` are whole."""
        unit = strides(self.extent)[dim]
        rows = Orthogonal.trusted(self.extent[:dim], self.axes[:dim]).offsets() * np.uint64(self.extent[dim])
        axis = self.axes[dim]
        length = 1
        if isinstance(axis, Span):
            length = axis.size if axis.contiguous else axis.block
            axis = Span(axis.start, axis.stride, 1 if axis.contiguous else axis.count, 1)
        begins = np.unique((rows[:, None] + ax.indices(axis)).ravel()) * np.uint64(unit)
        kind = offsets.dtype
        starts = np.searchsorted(offsets, begins.astype(kind), "left")
        stops = np.searchsorted(offsets, (begins + np.uint64(length * unit - 1)).astype(kind), "right")
        return expand(starts.astype(np.uint64), stops.astype(np.uint64)).astype(np.intp)

    def order_of(self, offsets: NDArray[Any]) -> NDArray[np.intp]:
        """Return the place of each of `offsets`, all selected, in the iteration; the axes have no repeats."""
        if self.is_all:
            return offsets.astype(np.intp)
        offsets = widen(offsets, self.extent)
        result = np.zeros(len(offsets), np.intp)
        for axis, column in zip(self.axes, coordinate_columns(offsets, self.extent), strict=True):
            result *= axis.size
            result += ax.positions(axis, column)
        return result
