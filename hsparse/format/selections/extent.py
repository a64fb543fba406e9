"""Extents (the current dimensions of a dataspace), row-major linear offsets in an extent, and runs.

A run is a maximal part of a box that is contiguous in row-major order, as linear offsets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest, TooLarge

MAX_RANK = 32
MAX_OFFSET = 2**64


def check_extent(extent: Sequence[int]) -> tuple[int, ...]:
    """Return `extent` as a tuple of ints; raise `BadRequest` beyond rank 32 or for a length not in 0..2^63-1."""
    if len(extent) > MAX_RANK:
        raise BadRequest(f"The extent has {len(extent)} dimensions; HDF5 allows at most {MAX_RANK}.")
    for dim, length in enumerate(extent):
        if not 0 <= length < 2**63:
            raise BadRequest(f"Dimension {dim} of the extent is {length}; it must lie in 0..2^63-1.")
    return tuple(map(int, extent))


def strides(extent: Sequence[int]) -> tuple[int, ...]:
    """Return the row-major strides of an array of shape `extent`, in elements."""
    result = [1] * len(extent)
    for dim in range(len(extent) - 2, -1, -1):
        result[dim] = result[dim + 1] * extent[dim + 1]
    return tuple(result)


def ravel(coords: NDArray[np.uint64], extent: Sequence[int]) -> NDArray[np.uint64]:
    """Return the linear offsets (n,) of `coords: (n, rank)` in `extent`; raise `TooLarge` if one may exceed 64 bits."""
    check_countable(extent)
    offsets = np.zeros(len(coords), np.uint64)
    for dim, stride in enumerate(strides(extent)):
        offsets += coords[:, dim] * np.uint64(stride) if stride != 1 else coords[:, dim]
    return offsets


def coordinate_columns(offsets: NDArray[Any], extent: Sequence[int]) -> list[NDArray[Any]]:
    """Return the coordinates of linear `offsets: (n,)`, one array (n,) of the same dtype per dimension."""
    result: list[NDArray[Any]] = []
    rest = offsets
    for dim, stride in enumerate(strides(extent)):
        if dim == len(extent) - 1:
            result.append(rest)
        else:
            column = rest // rest.dtype.type(stride or 1)
            rest = rest - column * rest.dtype.type(stride)
            result.append(column)
    return result


def unravel(offsets: NDArray[Any], extent: Sequence[int]) -> NDArray[np.uint64]:
    """Return the coordinates, (n, rank) uint64, of linear `offsets: (n,)` of any unsigned dtype."""
    coords = np.empty((len(offsets), len(extent)), np.uint64)
    for dim, column in enumerate(coordinate_columns(offsets, extent)):
        coords[:, dim] = column
    return coords


def widen(offsets: NDArray[Any], extent: Sequence[int]) -> NDArray[Any]:
    """Return `offsets` in a dtype that holds every linear offset, and every stride, of `extent`."""
    check_countable(extent)
    if offsets.dtype == np.uint64 or math.prod(extent) <= int(np.iinfo(offsets.dtype).max):
        return offsets
    return offsets.astype(np.uint64)


def check_countable(extent: Sequence[int]) -> None:
    """Raise `TooLarge` if linear offsets in `extent` do not fit 64 bits."""
    if math.prod(extent) > MAX_OFFSET:
        raise TooLarge("The extent has more than 2^64 elements: select a part by blocks.")


def as_indices(values: Any, what: str) -> NDArray[np.uint64]:
    """Return `values` as uint64; raise `BadRequest`, naming `what`, unless they are non-negative integers."""
    array = np.asarray(values)
    if array.dtype == np.uint64:
        return array
    if array.size == 0:
        return array.astype(np.uint64)
    if array.dtype.kind not in "iu":
        raise BadRequest(f"The {what} must be non-negative integers below 2^64.")
    if array.dtype.kind == "i" and array.min() < 0:
        raise BadRequest(f"The {what} must not be negative, but one is {array.min()}.")
    return array.astype(np.uint64)


def count_runs(starts: NDArray[np.uint64], stops: NDArray[np.uint64], extent: Sequence[int]) -> float:
    """Return, as a float, the number of runs that `runs_of` would return, without computing them."""
    lengths = (stops - starts).astype(np.float64)
    return float(lengths[:, : _run_dim(starts, stops, extent)].prod(axis=1).sum())


def runs_of(
    starts: NDArray[np.uint64], stops: NDArray[np.uint64], extent: Sequence[int]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return a pair: the first offsets and the (exclusive) ends of the boxes' runs, (k,) uint64 each, ascending.

    `starts` and `stops` (exclusive) are (m, rank) uint64 corners inside `extent`, of rank at least 1. Overlapping boxes
    give overlapping runs.
    """
    check_countable(extent)
    last = _run_dim(starts, stops, extent)
    steps = np.array(strides(extent), np.uint64)
    lengths = stops - starts
    begins = starts @ steps
    sizes = lengths[:, last] * steps[last]
    counts = lengths[:, :last].prod(axis=1, dtype=np.uint64).astype(np.intp)
    if (counts != 1).any():
        total = int(counts.sum())
        box = np.repeat(np.arange(len(counts)), counts)
        rest = (np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)).astype(np.uint64)
        begins, sizes = begins[box], sizes[box]
        for dim in range(last - 1, -1, -1):
            rest, step = np.divmod(rest, lengths[box, dim]) if dim else (rest, rest)
            begins += step * steps[dim]
    if len(begins) > 1 and (begins[1:] < begins[:-1]).any():
        order = np.argsort(begins, kind="stable")
        begins, sizes = begins[order], sizes[order]
    return begins, begins + sizes


def expand(begins: NDArray[np.uint64], ends: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return all offsets, (n,) uint64, in the runs `begins..ends` (exclusive), run by run."""
    sizes = (ends - begins).astype(np.intp)
    shifts = begins - (np.cumsum(sizes) - sizes).astype(np.uint64)
    result: NDArray[np.uint64] = np.repeat(shifts, sizes)
    result += np.arange(len(result), dtype=np.uint64)
    return result


def _run_dim(starts: NDArray[np.uint64], stops: NDArray[np.uint64], extent: Sequence[int]) -> int:
    """Return the dimension along which runs extend: every box covers the whole of each later dimension."""
    last = len(extent) - 1
    while last > 0 and bool((starts[:, last] == 0).all()) and bool((stops[:, last] == extent[last]).all()):
        last -= 1
    return last
