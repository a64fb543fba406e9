"""Cut a selection of a virtual dataset by one mapping: find the source's elements that it needs, and their positions.

`virtual_coords` is the inverse: it returns the coordinates of a source's elements in the virtual dataset.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import TooLarge
from hsparse.format.plan.virtual_plan import Listed, Ordered, Product, is_product
from hsparse.format.selections import orthogonal as ax
from hsparse.format.selections.orthogonal import Axis, Orthogonal, StridedSpan
from hsparse.format.selections.points import Points, Selection, coords_at

Indices: TypeAlias = NDArray[np.int64]
Place: TypeAlias = slice | NDArray[np.intp]
MAX_LISTED = 1 << 24
"""Most elements of a selection, if each element is looked up in the mapping."""


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """The part of a selection that one mapping covers.

    `source` selects the part in the source dataset. Its values, reshaped to `shape`, are assigned at the numpy index
    `place` of an array with the shape of the whole selection; they may be broadcast along dimensions of length 1.
    """

    source: Selection
    place: tuple[Any, ...]
    shape: tuple[int, ...]

    def is_whole(self, shape: tuple[int, ...]) -> bool:
        """Return whether the part is the whole selection, which has this shape, in the selection's order."""
        return self.shape == shape and all(isinstance(place, slice) for place in self.place)


def cut(selection: Selection, virtual: Ordered, source: Ordered, extent: tuple[int, ...]) -> Cut | None:
    """Return the part of `selection` that a mapping covers, or None; `extent` is the source dataset's extent."""
    if isinstance(selection, Orthogonal) and isinstance(virtual, Product) and is_product(virtual, source):
        assert isinstance(source, Product)
        return _cut_product(selection, virtual, source, extent)
    if selection.size > MAX_LISTED:
        raise TooLarge(
            f"At most {MAX_LISTED} elements of an irregular mapping can be read at a time, not {selection.size}: "
            "select less, or give the layout smaller dims."
        )
    coords = coords_at(selection, np.arange(selection.size, dtype=np.uint64))
    numbers = numbers_of(virtual, coords)
    there = np.flatnonzero(numbers >= 0)
    if not len(there):
        return None
    points = Points.trusted(extent, _stacked(source.coords(numbers[there]), len(extent)))
    return Cut(points, np.unravel_index(there, selection.shape), (len(there),))


def _cut_product(
    selection: Orthogonal, virtual: Product, source: Product, extent: tuple[int, ...]
) -> Cut | None:
    places: list[Place] = []
    shape: list[int] = []
    chosen: list[tuple[int, int] | NDArray[np.intp]] = []
    for axis, mapped in zip(selection.axes, virtual.axes, strict=True):
        found = _cut_axis(axis, mapped)
        if found is None:
            return None
        positions, place, size = found
        places.append(place)
        # If the mapping has one index here, the selection may repeat it: one value is then broadcast.
        shape.append(size if mapped.size != 1 else 1)
        if mapped.size != 1:
            chosen.append(positions)
    left = iter(chosen)
    axes = [axis if axis.size == 1 else _taken(axis, next(left)) for axis in source.axes]
    lists = sum(not isinstance(place, slice) for place in places)
    index = tuple(places) if lists < 2 else np.ix_(*map(_listed, places, selection.shape))
    return Cut(Orthogonal.trusted(extent, tuple(axes)), index, tuple(shape))


def _cut_axis(axis: Axis, mapped: Axis) -> tuple[tuple[int, int] | NDArray[np.intp], Place, int] | None:
    """Intersect two axes; return a triple: the common indices' positions in `mapped` and in `axis`, and their number.

    Consecutive positions are returned as (first, last + 1). Returns None if the axes have no common index.
    """
    if (
        isinstance(axis, StridedSpan)
        and isinstance(mapped, StridedSpan)
        and axis.contiguous
        and mapped.contiguous
    ):
        low, high = max(axis.start, mapped.start), min(axis.stop, mapped.stop)
        if low >= high:
            return None
        place = slice(low - axis.start, high - axis.start)
        return (low - mapped.start, high - mapped.start), place, high - low
    bounds, first = ax.bounds(mapped), 0
    if bounds is None:
        return None
    if isinstance(axis, StridedSpan):  # list only the part of a long axis that may be mapped
        first = int(axis.below(np.array([bounds[0]], np.int64))[0])
        axis = ax.clip(axis, *bounds)
    values = ax.indices(axis)
    there = np.flatnonzero(ax.contains(mapped, values))
    if not len(there):
        return None
    return ax.positions(mapped, values[there]), there + first, len(there)


def _taken(axis: Axis, positions: tuple[int, int] | NDArray[np.intp]) -> Axis:
    if isinstance(positions, tuple):
        return ax.take(axis, *positions)
    return ax.at(axis, positions.astype(np.uint64))


def _listed(place: Place, length: int) -> NDArray[np.intp]:
    return np.arange(length)[place] if isinstance(place, slice) else place


# --- coordinates ------------------------------------------------------------------------------------


def numbers_of(selection: Ordered, coords: NDArray[np.uint64]) -> Indices:
    """Return the position of each of `coords` (n, rank) in a selection's order, (n,), or -1 if it is not selected."""
    if isinstance(selection, Listed):
        return _listed_numbers(selection, coords)
    numbers = np.zeros(len(coords), np.int64)
    outside = np.zeros(len(coords), np.bool_)
    for dim, axis in enumerate(selection.axes):
        column = coords[:, dim]
        inside = ax.contains(axis, column)
        outside |= ~inside
        numbers *= axis.size
        numbers[inside] += ax.positions(axis, column[inside])
    numbers[outside] = -1
    return numbers


def _listed_numbers(selection: Listed, coords: NDArray[np.uint64]) -> Indices:
    numbers = np.full(len(coords), -1, np.int64)
    if not selection.size:
        return numbers
    inside = (coords < np.array(selection.extent, np.uint64)).all(axis=1)
    offsets = np.ravel_multi_index(tuple(coords[inside].T.astype(np.int64)), selection.extent)
    order = np.argsort(selection.offsets, kind="stable")
    known = selection.offsets[order]
    # If an element is selected twice, its last occurrence counts.
    at = np.searchsorted(known, offsets, "right") - 1
    found = order[np.maximum(at, 0)]
    numbers[inside] = np.where(selection.offsets[found] == offsets, found, -1)
    return numbers


def virtual_coords(virtual: Ordered, source: Ordered, coords: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the coordinates (n, rank) in the virtual dataset of source coordinates, which must all be mapped."""
    return _stacked(virtual.coords(numbers_of(source, coords)), len(virtual.bounds[0]))


def repeats(selection: Ordered) -> bool:
    """Return whether a selection contains an element more than once."""
    return isinstance(selection, Listed) and len(np.unique(selection.offsets)) < selection.size


def _stacked(columns: tuple[Any, ...], rank: int) -> NDArray[np.uint64]:
    if not rank:
        return np.zeros((1, 0), np.uint64)
    return np.stack([np.asarray(column) for column in columns], axis=1).astype(np.uint64)
