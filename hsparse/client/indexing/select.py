"""Resolves the selections that the methods of a dataset accept (see `Select`) to regions of the dataset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from hsparse.client.errors import InvalidValue, OutOfRange
from hsparse.client.indexing.index_key import parse_key, parse_orthogonal_key
from hsparse.client.indexing.indexed_region import IndexedRegion, KeyAxis
from hsparse.client.indexing.key_axes import Array, Columns, ListedAxes, row_numbers
from hsparse.client.indexing.key_items import Key
from hsparse.client.indexing.sliced_axis import SlicedAxis
from hsparse.errors import BadRequest
from hsparse.format.selections.orthogonal import Axis, StridedSpan, indices
from hsparse.format.selections.points import Boxes, Orthogonal, Points, Selection, coords_at
from hsparse.format.selections.select_syntax import parse_axes
from hsparse.format.selections.signed_extent import SignedExtent


@dataclass(frozen=True, slots=True)
class ArrayKey:
    """A numpy key; if `orthogonal`, each list or mask applies to its own dimension."""

    key: Key
    orthogonal: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class BoxRegion:
    """The region of a union of boxes; the result has one dimension. It has the interface of `IndexedRegion`."""

    selection: Boxes
    cut_off: frozenset[int] = frozenset()
    is_list = False

    @property
    def extent(self) -> tuple[int, ...]:
        return self.selection.extent

    @property
    def shape(self) -> tuple[int, ...]:
        return self.selection.shape

    @property
    def size(self) -> int:
        return self.selection.size

    def place(self, columns: Columns, values: Array) -> tuple[tuple[Array, ...], Array]:
        return (self.selection.order_of(row_numbers(columns, self.extent)),), values

    def locate(self, columns: Columns, values: Array) -> tuple[tuple[Array, ...], Array]:
        return tuple(coords_at(self.selection, columns[0]).T), values

    def arrange(self, values: Array) -> Array:
        return values.reshape(-1)

    def collect(self, values: Array) -> Array:
        if values.size not in (1, self.selection.size):
            raise InvalidValue(f"The selection needs {self.selection.size} values, not {values.size}.")
        return np.broadcast_to(values.reshape(-1), self.shape)


Select: TypeAlias = str | Selection | Key | ArrayKey | None
"""A selection: a numpy key, a text in the syntax of the REST API, `"[0:100,5,[1,3]]"`, a `Selection`, or None (all)."""
Region: TypeAlias = IndexedRegion | BoxRegion


def select_region(select: Select, extent: Sequence[int]) -> Region:
    """Return the region that a selection selects in an extent; an invalid selection raises `OutOfRange`.

    If the selection is a text, an index keeps its dimension, and paired lists become one dimension, at the position of
    the first list.
    """
    with _as_out_of_range():
        return _select_region(select, extent if isinstance(extent, tuple) else tuple(extent))


def select_points(coords: ArrayLike, extent: Sequence[int]) -> Points:
    """Return the points at `coords: (n, rank)` in an extent; raise `OutOfRange` unless all are integers inside it."""
    with _as_out_of_range():
        try:
            found = np.asarray(coords)
            if found.shape == (0,):
                found = np.empty((0, len(extent)), np.uint64)
            if isinstance(extent, SignedExtent):
                return Points.trusted(extent, extent.points(found).coordinates)
            return Points(tuple(extent), found)
        except ValueError as error:
            raise OutOfRange(f"The coordinates must have the shape (n, {len(extent)}).") from error


@contextmanager
def _as_out_of_range() -> Iterator[None]:
    """Convert each `BadRequest` to an `OutOfRange`, which is an `IndexError`, as numpy raises for invalid indices."""
    try:
        yield
    except OutOfRange:
        raise
    except BadRequest as error:
        raise OutOfRange(error.message) from error


def _select_region(select: Select, extent: tuple[int, ...]) -> Region:
    if isinstance(select, ArrayKey):
        return (parse_orthogonal_key if select.orthogonal else parse_key)(select.key, extent)
    if select is None:
        return parse_key(..., extent)
    if isinstance(select, str):
        return _region(extent, parse_axes(select, extent), paired=True)
    if isinstance(extent, SignedExtent) and isinstance(select, Orthogonal | Boxes | Points):
        raise OutOfRange(
            "A Selection cannot select from a dataset with lower bounds, as it counts from 0: give a key or a text."
        )
    if isinstance(select, Orthogonal):
        corners = select.bounds()
        if corners is not None and any(
            high > length for high, length in zip(corners[1], extent, strict=True)
        ):
            raise OutOfRange(f"The selection must be inside the extent {list(extent)}: select less.")
        return _region(extent, select.axes, paired=False)
    if isinstance(select, Orthogonal | Boxes | Points) and len(select.extent) != len(extent):
        raise OutOfRange(f"The selection must have {len(extent)} dimensions, not {len(select.extent)}.")
    if isinstance(select, Points) and len(extent):
        if (select.coordinates >= np.array(extent, np.uint64)).any():
            raise OutOfRange(f"All points of the selection must be inside the extent {list(extent)}.")
        dims = range(len(extent))
        lists = [select.coordinates[:, dim].reshape(select.shape) for dim in dims]
        return _of_axes(extent, (ListedAxes.of(dims, extent, lists),))
    if isinstance(select, Boxes):
        return BoxRegion(select)
    return parse_key((), extent) if isinstance(select, Points) else parse_key(select, extent)


def _region(extent: tuple[int, ...], axes: Sequence[Axis], *, paired: bool) -> IndexedRegion:
    """Return the region of the axes of a selection; lists are `paired`, or each list applies to its dimension."""
    lists = {
        dim: axis
        for dim, axis in enumerate(axes)
        if not isinstance(axis, StridedSpan) or axis.as_slice() is None
    }
    found: list[KeyAxis] = []
    for dim, axis in enumerate(axes):
        cut = axis.as_slice() if isinstance(axis, StridedSpan) else None
        if cut is not None:
            found.append(SlicedAxis(dim, range(cut.start, cut.stop, cut.step or 1)))
        elif not paired:
            found.append(ListedAxes.of([dim], extent, [indices(axis)]))
        elif dim == min(lists):
            found.append(ListedAxes.of(list(lists), extent, [indices(one) for one in lists.values()]))
    return _of_axes(extent, tuple(found))


def _of_axes(extent: tuple[int, ...], axes: tuple[KeyAxis, ...]) -> IndexedRegion:
    return IndexedRegion.of(extent, axes, lists_first=False, has_ellipsis=True, cut_off=frozenset())
