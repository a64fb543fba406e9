"""A key resolved against an extent: the elements that it selects, and their positions in the result."""

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
    """The elements that a key selects in a dataset of extent `extent`, and the result's `shape`.

    `axes` cover the dataset's dimensions, ordered by the first dimension of each. The result's dimensions have the same
    order, unless `lists_first`.
    """

    extent: tuple[int, ...]
    axes: tuple[KeyAxis, ...]
    lists_first: bool
    """Whether the dimensions of lists precede the others, as in numpy; at most one axis has lists then."""
    is_scalar: bool
    """Whether numpy returns a scalar, not an array of rank 0."""
    cut_off: frozenset[int]
    """The dimensions in which a slice exceeds the extent, or an index counts from its end."""
    selection: Selection
    """The selected elements, ascending, without repeats."""

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
        """Return the region of axes; raise `ResultTooLarge` if lists and stepped slices select too many points."""
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
        """Return the positions of selected elements in the result, a column for each dimension, and their values.

        `columns` are the coordinates in the dataset, (n,) for each of its dimensions. An element selected twice is
        returned twice.
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
        """Apply the inverse of `place`; return the elements' coordinates in the dataset, and their values.

        If the key selects a place twice, only the element at the last position is returned.
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
        """Return the result array from the values of the selection, given in the selection's order."""
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
        """Apply the inverse of `arrange`; return the values of the selection, in its shape, from values for the result.

        Values are broadcast to `shape`; raises `InvalidValue` if that fails. For an element selected twice, the last
        value counts.
        """
        while values.ndim > len(self.shape) and len(values) == 1:
            values = values[0]
        try:
            array = np.broadcast_to(values, self.shape)
        except ValueError as error:
            raise InvalidValue(
                f"Values of shape {list(values.shape)} do not fit a selection of shape {list(self.shape)}."
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
        """Return, for each dimension, the order of the selected indices in the result, or None if it is ascending.

        Returns None instead of a list if the result is not a product of dimensions.
        """
        if self.lists_first or any(len(axis.dims) != 1 or len(axis.shape) != 1 for axis in self.axes):
            return None
        return [axis.order() for axis in self.axes]

    def _order(self) -> list[int]:
        """Return the numbers of the axes in the order of the result."""
        numbers = range(len(self.axes))
        if not self.lists_first:
            return list(numbers)
        return sorted(numbers, key=lambda number: not isinstance(self.axes[number], ListedAxes))

    def _result_axes(self) -> list[KeyAxis]:
        return [self.axes[number] for number in self._order()]

    def _dims_before_lists(self) -> tuple[int, int]:
        """Return the number of result dimensions that the lists move in front of, and the number of list dimensions."""
        if not self.lists_first:
            return 0, 0
        place = next(number for number, axis in enumerate(self.axes) if isinstance(axis, ListedAxes))
        return sum(len(axis.shape) for axis in self.axes[:place]), len(self.axes[place].shape)

    def _product_order(self) -> NDArray[np.intp] | None:
        """Return the position of each selected element in the product of the axes, or None if the orders agree."""
        if isinstance(self.selection, Orthogonal) or _is_ascending(self.axes):
            return None
        return np.argsort(_offsets(self.extent, self.axes))


def _selection(extent: tuple[int, ...], axes: tuple[KeyAxis, ...]) -> Selection:
    """Return the selection of axes: a product or, for paired lists, points, or boxes if slices extend the points."""
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
                f"Lists paired with slices that have a step may select {most} elements, not {size}; leave out "
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
    """Return whether the product of the axes is in row-major order, with no slice between paired dimensions."""
    paired = next(axis for axis in axes if isinstance(axis, ListedAxes))
    between = range(paired.dims[0], paired.dims[-1])
    return all(axis.size == 1 for axis in axes if isinstance(axis, SlicedAxis) and axis.dim in between)


def _offsets(extent: tuple[int, ...], axes: tuple[KeyAxis, ...]) -> NDArray[np.uint64]:
    """Return the row-major offsets in the extent of the product of the axes, in the order of the axes."""
    steps = strides(extent)
    found = np.zeros(1, np.uint64)
    for axis in axes:
        own = np.zeros(axis.size, np.uint64)
        columns = [indices(axis.selected())] if isinstance(axis, SlicedAxis) else axis.selected_columns()
        for dim, column in zip(axis.dims, columns, strict=True):
            own += column.astype(np.uint64) * np.uint64(steps[dim])
        found = (found[:, None] + own).ravel()
    return found
