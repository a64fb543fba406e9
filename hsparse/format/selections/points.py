"""Point selections, and functions over selections of all types.

A selection says which elements of a dataspace are selected, and in which order. It is one of three immutable types over
an `extent`: `Orthogonal` (none, all, hyperslabs, one index list per dimension), `Boxes` (a union of disjoint boxes) and
`Points` (a list). All have `size`, `shape` (of the result), `is_all`, `bounds`, `offsets`, `coords`, `translate`,
`clip`, `index` and `contains`. Every selection is valid, because the constructors raise `BadRequest` otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest
from hsparse.format.selections.boxes import Boxes
from hsparse.format.selections.extent import (
    as_indices,
    check_extent,
    coordinate_columns,
    ravel,
    unravel,
    widen,
)
from hsparse.format.selections.orthogonal import Axis, Orthogonal, StridedSpan, at


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """The elements at `coordinates: (n, rank) uint64`, in list order, with repeats allowed.

    `shape` is the result's shape, which must have n elements; by default it is `(n,)`.
    """

    extent: tuple[int, ...]
    coordinates: NDArray[np.uint64]
    shape: tuple[int, ...] = (-1,)

    def __post_init__(self) -> None:
        extent = check_extent(self.extent)
        found = as_indices(self.coordinates, "coordinates of points")
        if found.ndim == 1 and len(extent) == 1:
            found = found.reshape(-1, 1)
        if found.ndim != 2 or found.shape[1] != len(extent):
            raise BadRequest(f"Points need {len(extent)} coordinates each, as the extent has.")
        for dim, length in enumerate(extent):
            if len(found) and (highest := int(found[:, dim].max())) >= length:
                raise BadRequest(f"Coordinate {highest} of dimension {dim} is not below its extent {length}.")
        shape = (len(found),) if self.shape == (-1,) else tuple(self.shape)
        if math.prod(shape) != len(found):
            raise BadRequest(
                f"The shape {list(shape)} has {math.prod(shape)} elements; it must have one per point, {len(found)}."
            )
        object.__setattr__(self, "extent", extent)
        object.__setattr__(self, "coordinates", found)
        object.__setattr__(self, "shape", shape)

    def __eq__(self, other: object) -> bool:
        """Return whether both selections have the same extent, points, order and shape."""
        if not isinstance(other, Points):
            return NotImplemented
        same = self.extent == other.extent and self.shape == other.shape
        return same and np.array_equal(self.coordinates, other.coordinates)

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def trusted(
        cls, extent: tuple[int, ...], coordinates: NDArray[np.uint64], shape: tuple[int, ...] | None = None
    ) -> Points:
        """Return `Points` without checks; the coordinates must be inside the extent."""
        self = object.__new__(cls)
        object.__setattr__(self, "extent", extent)
        object.__setattr__(self, "coordinates", coordinates)
        object.__setattr__(self, "shape", (len(coordinates),) if shape is None else shape)
        return self

    @property
    def size(self) -> int:
        return len(self.coordinates)

    @property
    def is_all(self) -> bool:
        """Whether all elements of the extent are selected, in row-major order and the extent's shape."""
        whole = self.size == math.prod(self.extent) and self.shape == self.extent
        return whole and bool(np.array_equal(self.offsets(), np.arange(self.size, dtype=np.uint64)))

    def bounds(self) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Return the lowest and the (exclusive) highest corner, or None if nothing is selected."""
        if not self.size:
            return None
        dims = [self.coordinates[:, dim] for dim in range(len(self.extent))]
        return tuple(int(dim.min()) for dim in dims), tuple(int(dim.max()) + 1 for dim in dims)

    def offsets(self) -> NDArray[np.uint64]:
        """Return the row-major linear offsets in the extent, (n,) uint64, in list order."""
        return ravel(self.coordinates, self.extent)

    def coords(self) -> NDArray[np.uint64]:
        """Return the coordinates, (n, rank) uint64, in list order."""
        return self.coordinates

    def translate(self, offset: Sequence[int], extent: Sequence[int]) -> Points:
        """Return the points moved by the signed `offset` in another `extent`; raise `BadRequest` if any is outside."""
        moved = self.coordinates + np.array([step % 2**64 for step in offset], np.uint64)
        return Points(tuple(extent), moved, self.shape)

    def clip(self, start: Sequence[int], stop: Sequence[int]) -> Points:
        """Return the points in the block `start..stop` (exclusive), in list order and the shape (n,)."""
        keep = np.ones(self.size, np.bool_)
        for dim in range(len(self.extent)):
            column = self.coordinates[:, dim]
            keep &= (column >= start[dim]) & (column < stop[dim])
        return Points.trusted(self.extent, self.coordinates[keep])

    def index(self) -> tuple[Any, ...] | None:
        """Return a numpy index of the points in an array of the extent's shape, or None for a scalar."""
        if not self.extent:
            return None
        return tuple(column.reshape(self.shape).astype(np.intp) for column in self.coordinates.T)

    def contains(self, offsets: NDArray[Any]) -> NDArray[np.bool_]:
        """Return a mask of those `offsets` that are selected; `offsets` must be ascending unsigned linear offsets."""
        offsets = widen(offsets, self.extent)
        mask = np.zeros(len(offsets), np.bool_)
        if len(offsets):
            wanted = self.offsets().astype(offsets.dtype)
            place = np.minimum(np.searchsorted(offsets, wanted), len(offsets) - 1)
            mask[place[offsets[place] == wanted]] = True
        return mask


Columns: TypeAlias = tuple[NDArray[Any], ...]


__all__ = [
    "Axis",
    "Boxes",
    "Orthogonal",
    "Points",
    "Selection",
    "StridedSpan",
    "ascending",
    "coords_at",
    "gather",
    "is_regular",
    "lookup",
    "scatter",
]

Selection: TypeAlias = Orthogonal | Boxes | Points


def lookup(selection: Selection, offsets: NDArray[Any]) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
    """Look up each selected element, in iteration order, in `offsets`, which are ascending and unique.

    Returns a pair of arrays (size,): a mask of the elements found, and each element's index in `offsets`. The index of
    an element that is not found is any valid index, or 0 if there are no offsets.
    """
    if not len(offsets):
        return np.zeros(selection.size, np.bool_), np.zeros(selection.size, np.intp)
    offsets = widen(offsets, selection.extent)
    wanted = selection.offsets().astype(offsets.dtype)
    place = np.minimum(np.searchsorted(offsets, wanted), len(offsets) - 1)
    return offsets[place] == wanted, place


def coords_at(selection: Selection, positions: NDArray[Any]) -> NDArray[np.uint64]:
    """Return the coordinates, (k, rank) uint64, of the elements at `positions: (k,)` in iteration order."""
    if not isinstance(selection, Orthogonal):
        coords: NDArray[np.uint64] = selection.coords()[positions]
        return coords
    coords = np.empty((len(positions), len(selection.extent)), np.uint64)
    places = coordinate_columns(positions.astype(np.uint64), selection.shape)
    for dim, (axis, place) in enumerate(zip(selection.axes, places, strict=True)):
        coords[:, dim] = at(axis, place)
    return coords


def ascending(selection: Selection) -> Selection:
    """Return a selection of the same elements without repeats and in row-major order."""
    if isinstance(selection, Boxes):
        return selection
    if isinstance(selection, Points):
        return Points.trusted(selection.extent, unravel(np.unique(selection.offsets()), selection.extent))
    axes = tuple(axis if isinstance(axis, StridedSpan) else np.unique(axis) for axis in selection.axes)
    return Orthogonal.trusted(selection.extent, axes)


def is_regular(selection: Selection) -> TypeGuard[Orthogonal]:
    """Return whether the selection is a regular hyperslab: elements are unique and in row-major order."""
    return isinstance(selection, Orthogonal) and all(isinstance(axis, StridedSpan) for axis in selection.axes)


def gather(array: NDArray[Any], selection: Selection) -> NDArray[Any]:
    """Return the selected elements of `array`, which has the extent's shape, in the selection's shape.

    The result is a view if numpy can return one.
    """
    index = selection.index()
    if index is not None:
        # `...` keeps a scalar an array: numpy's scalars would drop trailing zeros of a string.
        result: NDArray[Any] = array[(*index, ...)]
        return result
    return array.reshape(-1)[selection.offsets().astype(np.intp)].reshape(selection.shape)


def scatter(array: NDArray[Any], selection: Selection, values: NDArray[Any]) -> None:
    """Set the selected elements of the C-contiguous `array` to `values`, in its shape or one for all.

    The last value of a repeated element wins.
    """
    if isinstance(selection, Orthogonal):
        array[selection.index()] = values
        return
    assert array.flags.c_contiguous
    flat = array.reshape(-1)
    place = selection.offsets().astype(np.intp)
    flat[place] = values.reshape(-1) if values.size != 1 else values.reshape(())
