"""Axes of a key: the places that an axis selects in a dataset, and the positions of these places in the result.

A *place* is an index in the dataset, a *position* is an index in the result. An axis covers the dimensions `dims` of
the dataset, and as many dimensions of the result as `shape` has. An axis selects `size` different places, ascending.
Axes of lists are `ListedAxes`; `hsparse.client.indexing.sliced_axis` has the axis of a slice.
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
from hsparse.format.selections.orthogonal import TABLE_LIMIT, Axis

Array: TypeAlias = NDArray[Any]
Columns: TypeAlias = Sequence[Array]
"""The coordinates of n elements: for each dimension, an array of n integers."""


@dataclass(frozen=True, eq=False)
class ListedAxes:
    """Dimensions that have a list each; the lists are paired, and broadcast to the shape `shape`.

    `extent` is the extent of `dims`. `numbers: (n,) uint64` are the row-major numbers in `extent` of the listed places.
    """

    dims: tuple[int, ...]
    extent: tuple[int, ...]
    shape: tuple[int, ...]
    numbers: NDArray[np.uint64]

    @classmethod
    def of(cls, dims: Sequence[int], extent: Sequence[int], lists: Sequence[Array]) -> ListedAxes:
        """Return the axes of lists for the dimensions `dims` of `extent`; lists that cannot pair raise `OutOfRange`."""
        own = tuple(extent[dim] for dim in dims)
        check_countable(own)
        try:
            shape = np.broadcast_shapes(*(one.shape for one in lists))
        except ValueError as error:
            raise OutOfRange(
                "The lists of the key must have shapes that numpy can broadcast to one shape; to combine each index of "
                "a list with each index of another list, use oindex or numpy.ix_."
            ) from error
        whole = [np.broadcast_to(one, shape).reshape(-1) for one in lists]
        return cls(tuple(dims), own, shape, row_numbers(whole, own))

    @cached_property
    def _distinct(self) -> tuple[NDArray[np.uint64], NDArray[np.intp]]:
        """A pair: the distinct numbers, ascending, and for each position the index of its number among these."""
        numbers, which = np.unique(self.numbers, return_inverse=True)
        return numbers, which.reshape(-1)

    @cached_property
    def _positions(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """A pair: the positions grouped by number, and the index at which the group of each number starts."""
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
        """Return the distinct numbers, ascending; if the axis has one dimension, the numbers are the places."""
        return self._distinct[0]

    def order(self) -> Array | None:
        """Return the index of the selected place at each position, or None if positions ascend like the places."""
        which = self._distinct[1]
        return which if self.has_repeats or bool((which[1:] < which[:-1]).any()) else None

    def selected_columns(self) -> list[Array]:
        """Return the places in ascending order: for each dimension, an array of length `size`."""
        return coordinate_columns(self._distinct[0], self.extent)

    def place(self, columns: Columns) -> tuple[list[Array], NDArray[np.intp] | None]:
        """Return a pair: the positions of the places in `columns`, and for each position the row of `columns`.

        The rows are None if each row has exactly one position.
        """
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
        """Return a pair: the places at positions; a mask of each place's last position, or None without repeats."""
        flat = np.ravel_multi_index([column.astype(np.intp) for column in columns], self.shape)
        places = coordinate_columns(self.numbers[flat], self.extent)
        return places, self._last()[self._distinct[1][flat]] == flat if self.has_repeats else None

    def arrange(self, array: Array, axis: int) -> Array:
        """Return `array` with its axis `axis`, along the selected places, replaced by the dimensions of the result."""
        order = self.order()
        if order is not None:
            array = array.take(order, axis)
        return array.reshape(*array.shape[:axis], *self.shape, *array.shape[axis + 1 :])

    def collect(self, array: Array, axis: int) -> Array:
        """Apply the inverse of `arrange`; if a place is listed twice, its last value is used."""
        until = axis + len(self.shape)
        flat = array.reshape(*array.shape[:axis], prod(self.shape), *array.shape[until:])
        return flat.take(self._last(), axis)

    def _last(self) -> NDArray[np.intp]:
        """Return the last position of each number."""
        order, starts = self._positions
        return order[starts[1:] - 1]

    def _which(self, columns: Columns) -> Array:
        """Return the index of each place among the selected numbers."""
        numbers = self._distinct[0]
        if not len(columns[0]):
            return np.zeros(0, np.intp)
        own = columns[0] if len(columns) == 1 else row_numbers(columns, self.extent)
        low, high = int(numbers[0]), int(numbers[-1])
        if high - low > TABLE_LIMIT:
            return np.searchsorted(numbers, own.astype(np.uint64))
        # A narrow integer type makes the table faster.
        table = np.zeros(high - low + 1, np.int32 if len(numbers) < 2**31 else np.intp)
        table[numbers - np.uint64(low)] = np.arange(len(numbers))
        return table[own - own.dtype.type(low)]

    def _unravel(self, positions: Array) -> list[Array]:
        if len(self.shape) == 1:
            return [positions]
        return list(np.unravel_index(positions, self.shape))


def row_numbers(columns: Columns, extent: Sequence[int]) -> NDArray[np.uint64]:
    """Return an array of the row-major numbers in an extent of the places whose coordinates are `columns`."""
    found = np.zeros(len(columns[0]), np.uint64)
    for column, stride in zip(columns, strides(extent), strict=True):
        found += column.astype(np.uint64) * np.uint64(stride)
    return found
