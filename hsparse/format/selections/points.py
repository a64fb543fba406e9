"""Point selections: a list of coordinates, in any order, with repeats allowed.

Points or blocks in section 0 of a structured chunk, by columns, as the shuffle filter has left them.

HDF5 File Format Specification, "Dataspace Selection", points of version 2 and hyperslabs of version 3, as hsparse
writes them.

Selections: which elements of a dataspace, in which order.

A selection is one of three frozen values over an `extent`: `Orthogonal` (none, all, hyperslabs, index
lists a dimension), `Boxes` (a union of disjoint boxes) and `Points` (a list). All have `size`, `shape`
(of the result), `is_all`, `bounds`, `offsets`, `coords`, `translate`, `clip`, `index` and `contains`.
A selection that exists is valid: the constructors raise `BadRequest`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest
from hsparse.format.byte_planes import BytePlanes
from hsparse.format.dataspace_message import encode_image
from hsparse.format.selections.boxes import Boxes
from hsparse.format.selections.extent import (
    as_indices,
    check_extent,
    coordinate_columns,
    ravel,
    unravel,
    widen,
)
from hsparse.format.selections.orthogonal import Axis, Orthogonal, Span, at
from hsparse.format.selections.selection_encoding import width_for
from hsparse.format.selections.serialized_selection import HYPERSLABS, POINTS, WIDTHS


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Elements at `coordinates: (n, rank) uint64`, iterated in list order.

    `shape` is the result's shape, of n elements; by default it is `(n,)`.
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
                f"The shape {list(shape)} has {math.prod(shape)} elements for {len(found)} points."
            )
        object.__setattr__(self, "extent", extent)
        object.__setattr__(self, "coordinates", found)
        object.__setattr__(self, "shape", shape)

    def __eq__(self, other: object) -> bool:
        """Same extent, points, order and shape."""
        if not isinstance(other, Points):
            return NotImplemented
        same = self.extent == other.extent and self.shape == other.shape
        return same and np.array_equal(self.coordinates, other.coordinates)

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def trusted(
        cls, extent: tuple[int, ...], coordinates: NDArray[np.uint64], shape: tuple[int, ...] | None = None
    ) -> Points:
        """Build without the checks, from coordinates that are known to fit."""
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
        """Every element of the extent, in row-major order and the extent's shape."""
        whole = self.size == math.prod(self.extent) and self.shape == self.extent
        return whole and bool(np.array_equal(self.offsets(), np.arange(self.size, dtype=np.uint64)))

    def bounds(self) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Return the lowest corner and one past the highest; None when nothing is selected."""
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
        """Return the points moved by `offset`, signed, in another extent; `BadRequest` when one leaves it."""
        moved = self.coordinates + np.array([step % 2**64 for step in offset], np.uint64)
        return Points(tuple(extent), moved, self.shape)

    def clip(self, start: Sequence[int], stop: Sequence[int]) -> Points:
        """Return the points in the block `start..stop` (exclusive), in list order and one dimension."""
        keep = np.ones(self.size, np.bool_)
        for dim in range(len(self.extent)):
            column = self.coordinates[:, dim]
            keep &= (column >= start[dim]) & (column < stop[dim])
        return Points.trusted(self.extent, self.coordinates[keep])

    def index(self) -> tuple[Any, ...] | None:
        """Return the numpy index of the points in an array of the extent's shape; None for a scalar."""
        if not self.extent:
            return None
        return tuple(column.reshape(self.shape).astype(np.intp) for column in self.coordinates.T)

    def contains(self, offsets: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which of `offsets`, ascending unsigned linear offsets in the extent, are selected."""
        offsets = widen(offsets, self.extent)
        mask = np.zeros(len(offsets), np.bool_)
        if len(offsets):
            wanted = self.offsets().astype(offsets.dtype)
            place = np.minimum(np.searchsorted(offsets, wanted), len(offsets) - 1)
            mask[place[offsets[place] == wanted]] = True
        return mask


Columns: TypeAlias = tuple[NDArray[Any], ...]


def planar_points(data: BytePlanes, dims: Sequence[int], count: int) -> Columns | None:
    """Return `count` points inside `dims`, one column of unsigned coordinates a dimension, in list order.

    `data` is the section without its checksum. None for anything but points in the form that hsparse writes, with the
    dimensions of the chunk for maximum dimensions: it is for `decode_serialized` to judge. Columns have one byte below
    256, two below 65536.
    """
    rank, width = len(dims), width_for(max(*dims, count)) if dims else 0
    expected = _head(tuple(dims), width)
    begin = len(expected) + width
    step = rank * width
    if begin + step * count != data.size or not rank:
        return None
    head = data.head(begin)
    if head != expected + count.to_bytes(width, "little"):
        return None
    return _columns(data, dims, begin, step, count, width)


def planar_blocks(data: BytePlanes, dims: Sequence[int]) -> tuple[Columns, Columns] | None:
    """Return the first and the last coordinates of blocks inside `dims`, as `planar_points` returns points.

    None for anything but blocks in the form that hsparse writes.
    """
    rank = len(dims)
    for width in WIDTHS:
        expected = _head_of_blocks(tuple(dims), width)
        begin, step = len(expected) + width, 2 * rank * width
        if data.head(len(expected)) != expected:
            continue
        count = int.from_bytes(data.head(begin)[-width:], "little")
        if begin + step * count != data.size or not count:
            return None
        columns = _columns(data, (*dims, *dims), begin, step, count, width)
        if columns is None:
            return None
        starts, ends = columns[:rank], columns[rank:]
        is_right = all((start <= end).all() for start, end in zip(starts, ends, strict=True))
        return (starts, ends) if is_right else None
    return None


def _columns(
    data: BytePlanes, extents: Sequence[int], begin: int, step: int, count: int, width: int
) -> Columns | None:
    """Return the columns of a table of coordinates below `extents`, None if one of them is not."""
    columns = []
    for place, extent in enumerate(extents):
        narrow = 1 if extent < 1 << 8 else 2 if extent < 1 << 16 else width
        column = data.column(begin + place * width, step, count, width, narrow)
        if column is None or (count and int(column.max()) >= extent):
            return None
        columns.append(column)
    return tuple(columns)


@lru_cache(maxsize=1024)
def _head(dims: tuple[int, ...], width: int) -> bytes:
    """Return the section before the number of its points."""
    return encode_image(dims, None, struct.pack("<IIBI", POINTS, 2, width, len(dims)))


@lru_cache(maxsize=1024)
def _head_of_blocks(dims: tuple[int, ...], width: int) -> bytes:
    """Return the section before the number of its blocks."""
    return encode_image(dims, None, struct.pack("<IIBBI", HYPERSLABS, 3, 0, width, len(dims)))


__all__ = [
    "Axis",
    "Boxes",
    "Orthogonal",
    "Points",
    "Selection",
    "Span",
    "ascending",
    "coords_at",
    "gather",
    "is_regular",
    "lookup",
    "scatter",
]

Selection: TypeAlias = Orthogonal | Boxes | Points


def lookup(selection: Selection, offsets: NDArray[Any]) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
    """Find each selected element, in iteration order, among `offsets`, ascending and without repeats.

    Returns which are there, (size,) bool, and where, (size,) index into `offsets`; the index of one that
    is not there is any valid one (or 0 when there are no offsets).
    """
    if not len(offsets):
        return np.zeros(selection.size, np.bool_), np.zeros(selection.size, np.intp)
    offsets = widen(offsets, selection.extent)
    wanted = selection.offsets().astype(offsets.dtype)
    place = np.minimum(np.searchsorted(offsets, wanted), len(offsets) - 1)
    return offsets[place] == wanted, place


def coords_at(selection: Selection, positions: NDArray[Any]) -> NDArray[np.uint64]:
    """Return the coordinates, (k, rank) uint64, at `positions: (k,)` of the iteration, unsigned integers."""
    if not isinstance(selection, Orthogonal):
        coords: NDArray[np.uint64] = selection.coords()[positions]
        return coords
    coords = np.empty((len(positions), len(selection.extent)), np.uint64)
    places = coordinate_columns(positions.astype(np.uint64), selection.shape)
    for dim, (axis, place) in enumerate(zip(selection.axes, places, strict=True)):
        coords[:, dim] = at(axis, place)
    return coords


def ascending(selection: Selection) -> Selection:
    """Return the same elements, each once and in row-major order."""
    if isinstance(selection, Boxes):
        return selection
    if isinstance(selection, Points):
        return Points.trusted(selection.extent, unravel(np.unique(selection.offsets()), selection.extent))
    axes = tuple(axis if isinstance(axis, Span) else np.unique(axis) for axis in selection.axes)
    return Orthogonal.trusted(selection.extent, axes)


def is_regular(selection: Selection) -> TypeGuard[Orthogonal]:
    """Say whether the selection is a hyperslab: each element once, in row-major order, a view in numpy."""
    return isinstance(selection, Orthogonal) and all(isinstance(axis, Span) for axis in selection.axes)


def gather(array: NDArray[Any], selection: Selection) -> NDArray[Any]:
    """Return the selected elements of `array`, which has the extent's shape, in the selection's shape.

    A view where numpy can give one.
    """
    index = selection.index()
    if index is not None:
        # With `...` a scalar is an array too: as a scalar numpy would drop the zeros at the end of a string.
        result: NDArray[Any] = array[(*index, ...)]
        return result
    return array.reshape(-1)[selection.offsets().astype(np.intp)].reshape(selection.shape)


def scatter(array: NDArray[Any], selection: Selection, values: NDArray[Any]) -> None:
    """Set the selected elements of `array`, C-contiguous, to `values`: the selection's shape, or one for all.

    Of an element given twice the last value wins.
    """
    if isinstance(selection, Orthogonal):
        array[selection.index()] = values
        return
    assert array.flags.c_contiguous
    flat = array.reshape(-1)
    place = selection.offsets().astype(np.intp)
    flat[place] = values.reshape(-1) if values.size != 1 else values.reshape(())
