"""Axes of a key: which places of a dataset they select, and where these stand in the result.

A *position* is a place in the result, a *place* one in the dataset. An axis stands for the dimensions `dims` of the
dataset, and for as many of the result as `shape` has. It selects `size` different places, in ascending order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hsparse.client.errors import OutOfRange
from hsparse.format.selections.extent import check_countable, coordinate_columns, strides
from hsparse.format.selections.orthogonal import EMPTY_SPAN, TABLE_LIMIT, Axis, Span

Array: TypeAlias = NDArray[Any]
Columns: TypeAlias = Sequence[Array]
"""Coordinates, one (n,) array of integers for each dimension."""


@dataclass(frozen=True, slots=True)
class SlicedAxis:
    """A dimension with the slice `cut`, whose step may be negative, or with a single index, which has no dimension."""

    dim: int
    cut: range
    is_index: bool = False

    @property
    def dims(self) -> tuple[int, ...]:
        return (self.dim,)

    @property
    def shape(self) -> tuple[int, ...]:
        return () if self.is_index else (len(self.cut),)

    @property
    def size(self) -> int:
        return len(self.cut)

    def selected(self) -> Axis:
        """Return the places, ascending."""
        if not self.cut:
            return EMPTY_SPAN
        low, step = min(self.cut[0], self.cut[-1]), abs(self.cut.step)
        return Span.range(low, low + self.size) if step == 1 else Span(low, step, self.size)

    def order(self) -> Array | None:
        """Return which of the selected places each position has; None if they are the same."""
        return np.arange(self.size - 1, -1, -1) if self.cut.step < 0 and self.size > 1 else None

    def place(self, columns: Columns) -> tuple[list[Array], None]:
        """Return the positions of selected places."""
        (column,) = columns
        if self.is_index:
            return [], None
        cut = self.cut
        if not len(column) or (cut.start == 0 and cut.step == 1):
            return [column], None
        shifted = column - column.dtype.type(cut[0]) if cut.step > 0 else column.dtype.type(cut[0]) - column
        if abs(cut.step) > 1 and len(cut) > 1:
            shifted //= shifted.dtype.type(abs(cut.step))
        return [shifted], None

    def locate(self, columns: Columns) -> tuple[list[Array], None]:
        """Return the places at positions."""
        if self.is_index:
            return [], None
        return [columns[0].astype(np.int64) * self.cut.step + self.cut.start], None

    def arrange(self, array: Array, axis: int) -> Array:
        """Return an array in whose place `axis` the result's dimensions are, instead of the selected places."""
        if self.is_index:
            return array.squeeze(axis)
        return np.flip(array, axis) if self.cut.step < 0 else array

    def collect(self, array: Array, axis: int) -> Array:
        """Return the inverse of `arrange`."""
        if self.is_index:
            return np.expand_dims(array, axis)
        return np.flip(array, axis) if self.cut.step < 0 else array


@dataclass(frozen=True, eq=False)
class ListedAxes:
    """Dimensions with a list each; the lists have the shape `shape` and are paired.

    `extent` is that of `dims`. Places are numbered in it, row-major: `numbers: (n,) uint64`, in the order of the lists.
    """

    dims: tuple[int, ...]
    extent: tuple[int, ...]
    shape: tuple[int, ...]
    numbers: NDArray[np.uint64]

    @classmethod
    def of(cls, dims: Sequence[int], extent: Sequence[int], lists: Sequence[Array]) -> ListedAxes:
        """Return the axes of one list or more, for `dims` of `extent`; `OutOfRange` if they cannot be paired."""
        own = tuple(extent[dim] for dim in dims)
        check_countable(own)
        try:
            shape = np.broadcast_shapes(*(one.shape for one in lists))
        except ValueError as error:
            raise OutOfRange(
                "The lists of the key have shapes that numpy cannot broadcast to one; use oindex, or numpy.ix_, to "
                "combine each index of one with each of the other."
            ) from error
        whole = [np.broadcast_to(one, shape).reshape(-1) for one in lists]
        return cls(tuple(dims), own, shape, row_numbers(whole, own))

    @cached_property
    def _distinct(self) -> tuple[NDArray[np.uint64], NDArray[np.intp]]:
        """The selected numbers, ascending, and which of them each position has."""
        numbers, which = np.unique(self.numbers, return_inverse=True)
        return numbers, which.reshape(-1)

    @cached_property
    def _positions(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The positions, those of one number side by side; and where those of each number begin."""
        numbers, which = self._distinct
        order = np.argsort(which, kind="stable")
        return order, np.searchsorted(which[order], np.arange(len(numbers) + 1))

    @property
    def size(self) -> int:
        return len(self._distinct[0])

    @property
    def has_repeats(self) -> bool:
        return self.size < len(self.numbers)

    def selected(self) -> Axis:
        """Return the numbers, ascending: the places, if there is one dimension."""
        return self._distinct[0]

    def order(self) -> Array | None:
        """Return which of the selected places each position has; None if they are the same."""
        which = self._distinct[1]
        return which if self.has_repeats or bool((which[1:] < which[:-1]).any()) else None

    def selected_columns(self) -> list[Array]:
        """Return the places, (size,) for each dimension, in ascending order."""
        return coordinate_columns(self._distinct[0], self.extent)

    def place(self, columns: Columns) -> tuple[list[Array], NDArray[np.intp] | None]:
        """Return the positions of selected places, and the rows that these are of; None for each row once."""
        which = self._which(columns)
        order, starts = self._positions
        if not self.has_repeats:
            ascends = bool((order[1:] > order[:-1]).all())
            return self._unravel(which if ascends else order[which]), None
        counts = np.diff(starts)[which]
        rows = np.repeat(np.arange(len(which)), counts)
        nth = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        return self._unravel(order[starts[which][rows] + nth]), rows

    def locate(self, columns: Columns) -> tuple[list[Array], NDArray[np.bool_] | None]:
        """Return the places at positions, and which of these are the last of their place; None for all of them."""
        flat = np.ravel_multi_index([column.astype(np.intp) for column in columns], self.shape)
        places = coordinate_columns(self.numbers[flat], self.extent)
        return places, self._last()[self._distinct[1][flat]] == flat if self.has_repeats else None

    def arrange(self, array: Array, axis: int) -> Array:
        """Return an array in whose place `axis` the result's dimensions are, instead of the selected places."""
        order = self.order()
        if order is not None:
            array = array.take(order, axis)
        return array.reshape(*array.shape[:axis], *self.shape, *array.shape[axis + 1 :])

    def collect(self, array: Array, axis: int) -> Array:
        """Return the inverse of `arrange`; of a place that is listed twice the last value counts."""
        until = axis + len(self.shape)
        flat = array.reshape(*array.shape[:axis], prod(self.shape), *array.shape[until:])
        return flat.take(self._last(), axis)

    def _last(self) -> NDArray[np.intp]:
        """Return the last position of each number."""
        order, starts = self._positions
        return order[starts[1:] - 1]

    def _which(self, columns: Columns) -> Array:
        """Return which of the selected numbers each place has."""
        numbers = self._distinct[0]
        if not len(columns[0]):
            return np.zeros(0, np.intp)
        own = columns[0] if len(columns) == 1 else row_numbers(columns, self.extent)
        low, high = int(numbers[0]), int(numbers[-1])
        if high - low > TABLE_LIMIT:
            return np.searchsorted(numbers, own.astype(np.uint64))
        # Narrow ones are faster.
        table = np.zeros(high - low + 1, np.int32 if len(numbers) < 2**31 else np.intp)
        table[numbers - np.uint64(low)] = np.arange(len(numbers))
        return table[own - own.dtype.type(low)]

    def _unravel(self, positions: Array) -> list[Array]:
        if len(self.shape) == 1:
            return [positions]
        return list(np.unravel_index(positions, self.shape))


def row_numbers(columns: Columns, extent: Sequence[int]) -> NDArray[np.uint64]:
    """Return the row-major numbers, (n,), of places in an extent, whose coordinates are in columns."""
    found = np.zeros(len(columns[0]), np.uint64)
    for column, stride in zip(columns, strides(extent), strict=True):
        found += column.astype(np.uint64) * np.uint64(stride)
    return found
