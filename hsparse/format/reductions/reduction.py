"""A reduction of the elements of a selection over some of its axes, and the place of the result of each element.

The result has a dimension for each axis that is kept, in order, of the selection's length; the grouped axis, if there
is one, has one place for each group instead. A group is the set of its positions that have the same code.
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
"""The code of a position that is in no group: its elements are left out."""

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
    """What is reduced: `axes` of a selection of shape `shape`, ascending; `columns` are those of `Partials`.

    `grouped` is the one of `axes` that has groups, -1 without one. Of compounds `field` is reduced.
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
        """The dimensions of the selection that the result has, the grouped one among them."""
        return tuple(dim for dim in range(len(self.shape)) if dim == self.grouped or dim not in self.axes)

    def box_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of the result of a box of the selection of this shape."""
        return tuple(self.groups if dim == self.grouped else shape[dim] for dim in self.kept)

    def numbers(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return what is reduced of elements: their field, if one is named."""
        return values[self.field] if self.field else values

    def box_places(self, positions: NDArray[Any], shape: Sequence[int], codes: Codes | None) -> Places:
        """Return the place in a box's result of each of `positions`, row-major in the box; -1 for one in no group.

        `codes` are the groups of the box's positions along the grouped axis.
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
        """Return places in the result of a box at `origin` of the selection as places in the whole result."""
        inner, whole = self.box_shape(shape), self.result_shape
        if inner == whole:
            return places
        found = np.zeros(len(places), np.int64)
        columns = coordinate_columns(places, inner)
        for column, dim, stride in zip(columns, self.kept, strides(whole), strict=True):
            found += (column if dim == self.grouped else column + origin[dim]) * stride
        return found


def parse_axes(text: str | Sequence[Any] | int | None, rank: int) -> tuple[int, ...]:
    """Return the axes that `0,2` or a list of numbers names, in its order; all without one.

    Negative numbers count from the last one. `BadRequest` for an axis that there is not, or one named twice.
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
        raise BadRequest("axis names one of the axes twice.")
    return tuple(found)


def check_numbers(dtype: np.dtype[Any], field: str, operations: Sequence[str]) -> None:
    """Raise `BadRequest` unless the operations have a meaning for elements, or their field."""
    if field and field not in (dtype.names or ()):
        known = ", ".join(dtype.names or ())[:200] or "none"
        raise BadRequest(f"There is no field {field[:40]!r}; there are: {known}.")
    kind = dtype[field] if field else dtype
    if any(name != "count" for name in operations) and (kind.subdtype is not None or kind.kind not in "biuf"):
        which = "name one of its fields that is a number" if kind.names else "they can be counted only"
        raise BadRequest(f"The elements are no numbers, so that they have no {operations[-1]}: {which}.")


def _rest(positions: NDArray[Any], size: int) -> Places:
    """Return positions modulo `size`; numpy divides several times as fast as it takes remainders."""
    step = positions.dtype.type(size or 1)
    return np.asarray(positions - positions // step * step, np.int64)
