"""Runs: maximal pieces of boxes that are contiguous in row-major order, as linear offsets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hsparse.format.selections.extent import check_countable, strides


def count_runs(starts: NDArray[np.uint64], stops: NDArray[np.uint64], extent: Sequence[int]) -> float:
    """Return about how many runs `runs_of` would give, without making them."""
    lengths = (stops - starts).astype(np.float64)
    return float(lengths[:, : _run_dim(starts, stops, extent)].prod(axis=1).sum())


def runs_of(
    starts: NDArray[np.uint64], stops: NDArray[np.uint64], extent: Sequence[int]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return first offsets and ends (exclusive), (k,) uint64, of the runs of boxes, ascending.

    `starts`, `stops`: (m, rank) uint64 corners inside `extent`, rank at least 1. Boxes that overlap give
    runs that overlap.
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
    """Return the offsets of the runs `begins..ends` (exclusive), (n,) uint64, run by run."""
    sizes = (ends - begins).astype(np.intp)
    shifts = begins - (np.cumsum(sizes) - sizes).astype(np.uint64)
    result: NDArray[np.uint64] = np.repeat(shifts, sizes)
    result += np.arange(len(result), dtype=np.uint64)
    return result


def _run_dim(starts: NDArray[np.uint64], stops: NDArray[np.uint64], extent: Sequence[int]) -> int:
    """Return the dimension in which a run lies: the last but for those that every box covers whole."""
    last = len(extent) - 1
    while last > 0 and bool((starts[:, last] == 0).all()) and bool((stops[:, last] == extent[last]).all()):
        last -= 1
    return last
