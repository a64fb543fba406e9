"""Partial results of the elements of a box of a selection, as an array or by their positions.

Places are those in the box's result.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Unsupported
from hsparse.format.reductions.partials import Partials
from hsparse.format.reductions.reduction import Codes, Reduction

REDUCTION_BYTES = 48
"""The most bytes that an element takes while it is reduced, by measurement: its place, as a double, its deviation."""


def reduce_array(values: NDArray[Any], reduction: Reduction, codes: Codes | None) -> Partials:
    """Return what all elements of a box reduce to, `values` of the box's shape."""
    if reduction.grouped >= 0:
        positions = np.arange(values.size, dtype=np.uint64)
        return reduce_positions(positions, values.reshape(-1), values.shape, reduction, codes)
    numbers = reduction.numbers(values)
    kept = reduction.kept
    rows = numbers.transpose(*kept, *reduction.axes)
    places = prod(values.shape[dim] for dim in kept)
    return Partials.of_rows(rows.reshape(places, values.size // max(places, 1)), reduction.columns)


def reduce_positions(
    positions: NDArray[Any],
    values: NDArray[Any],
    shape: tuple[int, ...],
    reduction: Reduction,
    codes: Codes | None,
) -> Partials:
    """Return what elements at `positions: (n,)`, row-major in a box of this shape and unsigned, reduce to."""
    places = reduction.box_places(positions, shape, codes)
    return Partials.of(places, reduction.numbers(values), prod(reduction.box_shape(shape)), reduction.columns)


def count_positions(
    positions: NDArray[Any], shape: tuple[int, ...], reduction: Reduction, codes: Codes | None
) -> Partials:
    """Return how many elements of variable length are at each place; `Unsupported` where more is asked for."""
    if reduction.columns or reduction.field:
        raise Unsupported("Elements of variable length have no reduction but their count.")
    return reduce_positions(positions, np.zeros(len(positions), np.uint8), shape, reduction, codes)
