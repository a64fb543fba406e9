"""The description of a reduction over axes of a selection, and the place in the result to which an element counts.

The result has one dimension for each axis that is not reduced, in order and with the selection's length. The grouped
axis, if there is one, also stays, with one index per group. A group is the set of positions with the same code.

A place is the row-major index of a value in the result. A box is a block of positions of the selection, such as those
in one chunk. A box has its own result, with its own places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest
from hsparse.format.selections.extent import coordinate_columns, strides

Places: TypeAlias = NDArray[np.int64]
Codes: TypeAlias = NDArray[np.int32]
NO_GROUP = -1
"""The code of a position that is in no group; its elements are ignored."""

OPERATIONS: dict[str, tuple[str, ...]] = {
    "count": (),
    "nnz": ("nonzero",),
    "sum": ("total",),
    "mean": ("total",),
    "var": ("total", "squares"),
    "min": ("least",),
    "max": ("greatest",),
}
"""The operations, and the columns of `Partials` that each needs besides `count`."""


@dataclass(frozen=True, slots=True)
class Reduction:
    """A reduction over ascending `axes` of a selection of shape `shape`; it needs the `columns` of `Partials`.

    `grouped` is the axis, one of `axes`, with `groups` groups, or -1 if there is none. `field` is the reduced field.
    """

    shape: tuple[int, ...]
    axes: tuple[int, ...]
    columns: tuple[str, ...]
    field: str = ""
    grouped: int = -1
    groups: int = 0

    @property
    def result_shape(self) -> tuple[int, ...]:
        return self.box_shape(self.shape)

    @property
    def places(self) -> int:
        """The number of places of the result."""
        return prod(self.result_shape)

    @property
    def kept(self) -> tuple[int, ...]:
        """The dimensions of the selection that the result has, including the grouped axis."""
        return tuple(dim for dim in range(len(self.shape)) if dim == self.grouped or dim not in self.axes)

    def box_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of the result for a box of the selection with this shape."""
        return tuple(self.groups if dim == self.grouped else shape[dim] for dim in self.kept)

    def numbers(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the numbers to reduce: the `field` of `values`, or `values` themselves."""
        return values[self.field] if self.field else values

    def box_places(self, positions: NDArray[Any], shape: Sequence[int], codes: Codes | None) -> Places:
        """Return the place in a box's result of each position (row-major offset in the box), or -1 if it has no group.

        `codes` has the groups of the box's indices along the grouped axis.
        """
        kept = self.kept
        if not kept:
            return np.zeros(len(positions), np.int64)
        if self.grouped < 0 and kept == tuple(range(len(shape) - len(kept), len(shape))):
            return _rest(positions, prod(shape[dim] for dim in kept))
        if self.grouped < 0 and kept == tuple(range(len(kept))):
            step = positions.dtype.type(prod(shape[len(kept) :]) or 1)
            return np.asarray(positions // step, np.int64)
        columns = coordinate_columns(positions, shape)
        places, outside = np.zeros(len(positions), np.int64), None
        for dim, stride in zip(kept, strides(self.box_shape(shape)), strict=True):
            column = columns[dim]
            if dim == self.grouped:
                assert codes is not None
                column = codes[column.astype(np.intp)]
                outside = column < 0
            places += column.astype(np.int64) * stride
        if outside is not None:
            places[outside] = -1
        return places

    def result_places(self, places: Places, shape: Sequence[int], origin: Sequence[int]) -> Places:
        """Convert places in the result of a box at `origin` of the selection to places in the whole result."""
        inner, whole = self.box_shape(shape), self.result_shape
        if inner == whole:
            return places
        found = np.zeros(len(places), np.int64)
        columns = coordinate_columns(places, inner)
        for column, dim, stride in zip(columns, self.kept, strides(whole), strict=True):
            found += (column if dim == self.grouped else column + origin[dim]) * stride
        return found


def parse_axes(text: str | Sequence[Any] | int | None, rank: int) -> tuple[int, ...]:
    """Return the axes given as text such as `0,2`, as a number or as a list, in the order given; None means all axes.

    Negative numbers count from the last axis. Raises `BadRequest` for an axis that is missing or named twice.
    """
    if text is None or text == "":
        return tuple(range(rank))
    items = text.split(",") if isinstance(text, str) else [text] if isinstance(text, int) else list(text)
    found = []
    for item in items:
        digits = str(item).strip()
        number = int(digits) if digits.removeprefix("-").isdecimal() and len(digits) < 4 else rank
        if isinstance(item, bool) or not -rank <= number < rank:
            raise BadRequest(f"There is no axis {str(item)[:40]!r}; the dataset has {rank} dimensions.")
        found.append(number % rank)
    if len(set(found)) < len(found):
        raise BadRequest("The parameter axis names an axis twice: name each axis once.")
    return tuple(found)


def check_numbers(dtype: np.dtype[Any], field: str, operations: Sequence[str]) -> None:
    """Raise `BadRequest` unless the operations can be applied to elements of `dtype`, or to their `field`."""
    if field and field not in (dtype.names or ()):
        known = ", ".join(dtype.names or ())[:200] or "none"
        raise BadRequest(f"There is no field {field[:40]!r}; the fields are: {known}.")
    kind = dtype[field] if field else dtype
    if any(name != "count" for name in operations) and (kind.subdtype is not None or kind.kind not in "biuf"):
        which = "name a field that is a number" if kind.names else "these elements can only be counted"
        raise BadRequest(f"The operation {operations[-1]} needs numbers: {which}.")


def _rest(positions: NDArray[Any], size: int) -> Places:
    """Return positions modulo `size`; in numpy division is several times as fast as the remainder."""
    step = positions.dtype.type(size or 1)
    return np.asarray(positions - positions // step * step, np.int64)
