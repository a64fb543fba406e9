"""Selections: which elements of a dataspace, in which order.

A selection is one of three frozen values over an `extent`: `Orthogonal` (none, all, hyperslabs, index
lists a dimension), `Boxes` (a union of disjoint boxes) and `Points` (a list). All have `size`, `shape`
(of the result), `is_all`, `bounds`, `offsets`, `coords`, `translate`, `clip`, `index` and `contains`.
A selection that exists is valid: the constructors raise `BadRequest`.
"""

from __future__ import annotations

from typing import Any, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from hsparse.format.selections.axis import Axis, Span, at
from hsparse.format.selections.boxes import Boxes
from hsparse.format.selections.extent import coordinate_columns, unravel, widen
from hsparse.format.selections.orthogonal import Orthogonal
from hsparse.format.selections.points import Points

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
