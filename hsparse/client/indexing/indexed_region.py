"""The elements that a key selects in a dataset, and the positions of these elements in the result."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from hsparse.client.errors import InvalidValue, ResultTooLarge
from hsparse.client.indexing.key_axes import Array, Columns, ListedAxes
from hsparse.client.indexing.sliced_axis import SlicedAxis
from hsparse.format.selections.extent import strides, unravel
from hsparse.format.selections.orthogonal import EMPTY_SPAN, indices
from hsparse.format.selections.points import Boxes, Orthogonal, Points, Selection
from hsparse.format.selections.select_syntax import most_paired

KeyAxis: TypeAlias = SlicedAxis | ListedAxes


@dataclass(frozen=True, slots=True, eq=False)
class IndexedRegion:
    """The elements that a key selects in a dataset of extent `extent`, and the `shape` of the result.

    `axes` cover the dimensions of the dataset, in the order of the first dimension of each axis. The dimensions of the
    result have the same order, unless `lists_first` is true.
    """

    extent: tuple[int, ...]
    axes: tuple[KeyAxis, ...]
    lists_first: bool
    """Whether the dimensions of lists are the first dimensions of the result; at most one axis has lists then."""
    is_scalar: bool
    """Whether numpy would return a scalar for the key instead of an array of rank 0."""
    cut_off: frozenset[int]
    """The dimensions in which a slice exceeds the extent, or an index counts from the end of the extent."""
    selection: Selection
    """The selected elements in row-major order; an element that the key selects twice is here only once."""

    @classmethod
    def of(
        cls,
        extent: tuple[int, ...],
        axes: tuple[KeyAxis, ...],
        *,
        lists_first: bool,
        has_ellipsis: bool,
        cut_off: frozenset[int],
    ) -> IndexedRegion:
        """Return the region of these axes; raise `ResultTooLarge` if lists and slices with steps select too much."""
        is_scalar = not has_ellipsis and not any(axis.shape for axis in axes)
        is_scalar &= all(isinstance(axis, SlicedAxis) for axis in axes)
        return cls(extent, axes, lists_first, is_scalar, cut_off, _selection(extent, axes))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the result."""
        return tuple(length for axis in self._result_axes() for length in axis.shape)

    @property
    def size(self) -> int:
        """The number of elements of the result, including repeats."""
        return prod(self.shape)

    @property
    def is_list(self) -> bool:
        """Whether the key has a list for each of two or more dimensions, so that the result is a list of elements."""
        return any(
            isinstance(axis, ListedAxes) and len(axis.dims) == len(self.extent) > 1 for axis in self.axes
        )

    def place(self, columns: Columns, values: Array) -> tuple[tuple[Array, ...], Array]:
        """Return a pair: the positions of elements in the result, an array for each dimension, and their values.

        `columns` are the coordinates of the elements in the dataset, an array of length n for each dimension. An
        element that the key selects twice is returned twice.
        """
        found: list[list[Array]] = []
        rest = list(columns)
        for axis in self.axes:
            positions, rows = axis.place([rest[dim] for dim in axis.dims])
            if rows is not None:
                rest = [column[rows] for column in rest]
                found = [[column[rows] for column in some] for some in found]
                values = values[rows]
            found.append(positions)
        return tuple(column for number in self._order() for column in found[number]), values

    def locate(self, columns: Columns, values: Array) -> tuple[tuple[Array, ...], Array]:
        """Apply the inverse of `place`; return a pair: the coordinates of elements in the dataset, and their values.

        If the key selects an element twice, only the value at its last position is returned.
        """
        found: list[Array | None] = [None] * len(self.extent)
        keep = np.ones(len(values), np.bool_)
        first = 0
        for axis in self._result_axes():
            until = first + len(axis.shape)
            if isinstance(axis, SlicedAxis) and axis.is_index:
                found[axis.dim] = np.full(len(values), axis.cut[0], np.int64)
                continue
            places, is_last = axis.locate(columns[first:until])
            first = until
            for dim, column in zip(axis.dims, places, strict=True):
                found[dim] = column
            if is_last is not None:
                keep &= is_last
        if keep.all():
            return tuple(column for column in found if column is not None), values
        return tuple(column[keep] for column in found if column is not None), values[keep]

    def arrange(self, values: Array) -> Array:
        """Return the result as an array; `values` are the values of the elements, in the order of `selection`."""
        sizes = tuple(axis.size for axis in self.axes)
        order = self._product_order()
        if order is not None:
            product = np.empty(values.size, values.dtype)
            product[order] = values.reshape(-1)
            values = product
        array = values.reshape(sizes)
        for number in reversed(range(len(self.axes))):
            array = self.axes[number].arrange(array, number)
        before, count = self._dims_before_lists()
        return np.moveaxis(array, range(before, before + count), range(count)) if before else array

    def collect(self, values: Array) -> Array:
        """Apply the inverse of `arrange`: convert values in the shape of the result to values in that of `selection`.

        Values are broadcast to `shape`; if this fails, `InvalidValue` is raised. If the key selects an element twice,
        the last value is used.
        """
        while values.ndim > len(self.shape) and len(values) == 1:
            values = values[0]
        try:
            array = np.broadcast_to(values, self.shape)
        except ValueError as error:
            raise InvalidValue(
                f"Values of shape {list(values.shape)} must broadcast to the selected shape {list(self.shape)}."
            ) from error
        before, count = self._dims_before_lists()
        if before:
            array = np.moveaxis(array, range(count), range(before, before + count))
        for number, axis in enumerate(self.axes):
            array = axis.collect(array, number)
        order = self._product_order()
        flat = array.reshape(-1)
        return (flat if order is None else flat[order]).reshape(self.selection.shape)

    def orders(self) -> list[Array | None] | None:
        """Return for each dimension the order of the indices in the result, or None if the order is ascending.

        Returns None instead of a list if the result is not a product of dimensions.
        """
        if self.lists_first or any(len(axis.dims) != 1 or len(axis.shape) != 1 for axis in self.axes):
            return None
        return [axis.order() for axis in self.axes]

    def _order(self) -> list[int]:
        """Return the indices in `axes` of all axes, in the order in which the result has their dimensions."""
        numbers = range(len(self.axes))
        if not self.lists_first:
            return list(numbers)
        return sorted(numbers, key=lambda number: not isinstance(self.axes[number], ListedAxes))

    def _result_axes(self) -> list[KeyAxis]:
        return [self.axes[number] for number in self._order()]

    def _dims_before_lists(self) -> tuple[int, int]:
        """Return a pair: how many dimensions of the result the lists move in front of, and how many the lists have."""
        if not self.lists_first:
            return 0, 0
        place = next(number for number, axis in enumerate(self.axes) if isinstance(axis, ListedAxes))
        return sum(len(axis.shape) for axis in self.axes[:place]), len(self.axes[place].shape)

    def _product_order(self) -> NDArray[np.intp] | None:
        """Return the position of each element of `selection` in the product of the axes, or None if all agree."""
        if isinstance(self.selection, Orthogonal) or _is_ascending(self.axes):
            return None
        return np.argsort(_offsets(self.extent, self.axes))


def _selection(extent: tuple[int, ...], axes: tuple[KeyAxis, ...]) -> Selection:
    """Return the elements that axes select: a product; or points for paired lists; or boxes if slices extend these."""
    if all(len(axis.dims) == 1 for axis in axes):
        return Orthogonal.trusted(extent, tuple(axis.selected() for axis in axes))
    if any(not axis.size for axis in axes):
        return Orthogonal.trusted(extent, (EMPTY_SPAN,) * len(extent))
    sliced = [axis for axis in axes if isinstance(axis, SlicedAxis)]
    if not all(abs(axis.cut.step) == 1 or axis.size == 1 for axis in sliced):
        size = prod(axis.size for axis in axes)
        most = most_paired(len(extent))
        if size > most:
            raise ResultTooLarge(
                f"Paired lists with slices that have a step may select at most {most} elements, not {size}: omit "
                "the step, or select less."
            )
        return Points.trusted(extent, unravel(np.sort(_offsets(extent, axes)), extent))
    paired = next(axis for axis in axes if isinstance(axis, ListedAxes))
    starts = np.empty((paired.size, len(extent)), np.uint64)
    for dim, column in zip(paired.dims, paired.selected_columns(), strict=True):
        starts[:, dim] = column
    stops = starts + np.uint64(1)
    for axis in sliced:
        starts[:, axis.dim] = min(axis.cut[0], axis.cut[-1])
        stops[:, axis.dim] = max(axis.cut[0], axis.cut[-1]) + 1
    if all(axis.size == 1 for axis in sliced):
        return Points.trusted(extent, starts)
    return Boxes.trusted(extent, starts, stops)


def _is_ascending(axes: tuple[KeyAxis, ...]) -> bool:
    """Return whether the product of the axes is in row-major order: no slice is between paired dimensions."""
    paired = next(axis for axis in axes if isinstance(axis, ListedAxes))
    between = range(paired.dims[0], paired.dims[-1])
    return all(axis.size == 1 for axis in axes if isinstance(axis, SlicedAxis) and axis.dim in between)


def _offsets(extent: tuple[int, ...], axes: tuple[KeyAxis, ...]) -> NDArray[np.uint64]:
    """Return the row-major offset in the extent of each element of the product of the axes, in the order of axes."""
    steps = strides(extent)
    found = np.zeros(1, np.uint64)
    for axis in axes:
        own = np.zeros(axis.size, np.uint64)
        columns = [indices(axis.selected())] if isinstance(axis, SlicedAxis) else axis.selected_columns()
        for dim, column in zip(axis.dims, columns, strict=True):
            own += column.astype(np.uint64) * np.uint64(steps[dim])
        found = (found[:, None] + own).ravel()
    return found
