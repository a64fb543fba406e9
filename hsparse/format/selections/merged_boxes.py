"""A set of offsets as hyperslabs: one regular hyperslab where it is one, or few disjoint boxes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hsparse.format.selections.axis import Span
from hsparse.format.selections.extent import strides, unravel

DENSE = 64
"""Elements of a chunk, for each run in it, up to which looking up in a table is faster than searching."""


@dataclass(frozen=True, slots=True, eq=False)
class RowRuns:
    """Maximal runs along the last dimension: first offset and length of each, (k,) uint32, ascending."""

    begins: NDArray[np.uint32]
    lengths: NDArray[np.uint32]


def row_runs(offsets: NDArray[np.uint32], width: int) -> RowRuns:
    """Return the runs of ascending offsets, (n,) uint32 and n > 0, in rows of `width` elements."""
    breaks = offsets[1:] - offsets[:-1] != 1
    near = np.flatnonzero(~breaks) + 1
    breaks[near[offsets[near] % np.uint32(width) == 0] - 1] = True
    firsts = np.concatenate(([0], np.flatnonzero(breaks) + 1))
    lengths = np.diff(firsts, append=len(offsets)).astype(np.uint32)
    return RowRuns(offsets[firsts], lengths)


def find_regular(runs: RowRuns, dims: Sequence[int]) -> tuple[Span, ...] | None:
    """Return the regular hyperslab that the runs are, one span a dimension, or None."""
    if not (runs.lengths == runs.lengths[0]).all():
        return None
    width = np.uint32(dims[-1])
    rows = runs.begins // width
    count = int(np.searchsorted(rows, rows[0], "right"))
    if len(rows) % count or (rows[::count] != rows[count - 1 :: count]).any():
        return None
    columns = (runs.begins - rows * width).reshape(-1, count)
    if (columns != columns[0]).any():
        return None
    stride = int(columns[0, 1] - columns[0, 0]) if count > 1 else 1
    if count > 2 and (np.diff(columns[0]) != stride).any():
        return None
    block = int(runs.lengths[0])
    start = int(columns[0, 0])
    span = Span.range(start, start + block) if count == 1 else Span(start, stride, count, block)
    if len(dims) == 1:
        return (span,)
    leading = find_regular(row_runs(rows[::count], dims[-2]), dims[:-1])
    return None if leading is None else (*leading, span)


def count_mergers(runs: RowRuns, dims: Sequence[int], limit: int) -> int:
    """Return how many runs continue one of equal length a step back, over all dimensions but the last.

    Merging cannot leave fewer boxes than runs less this. Stops counting a dimension beyond `limit`.
    """
    total = 0
    volume = math.prod(dims)
    table = None
    if volume <= DENSE * len(runs.begins):
        table = np.zeros(volume, np.uint32)
        table[runs.begins] = runs.lengths
    for dim, stride in list(enumerate(strides(dims)))[:-1]:
        if table is None:
            total += int((_continued(runs.begins, runs.lengths[:, None], dims, dim, stride) >= 0).sum())
        else:
            total += _count_continued(table, runs, dims[dim], stride)
        if total >= limit:
            break
    return total


def _count_continued(table: NDArray[np.uint32], runs: RowRuns, length: int, stride: int) -> int:
    """Return how many runs have one of equal length a step further; `table`: the length of the run at each offset."""
    inside = (runs.begins // np.uint32(stride)) % np.uint32(length) != length - 1
    begins, lengths = runs.begins[inside], runs.lengths[inside]
    return int(np.count_nonzero(table[begins + np.uint32(stride)] == lengths))


def merge(runs: RowRuns, dims: Sequence[int]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return disjoint boxes, corners `starts` and `stops` (exclusive), (m, rank) uint64, of the runs.

    Runs, then boxes, of equal shape that follow each other in a dimension become one, from the last
    dimension but one to the first. Ascending by first offset.
    """
    rank = len(dims)
    begins = runs.begins
    shape = np.ones((len(begins), rank), np.uint32)
    shape[:, -1] = runs.lengths
    for dim in range(rank - 2, -1, -1):
        following = _continued(begins, shape, dims, dim, strides(dims)[dim])
        heads = np.ones(len(begins), np.bool_)
        heads[following[following >= 0]] = False
        shape[:, dim] = _chain_lengths(following)
        begins, shape = begins[heads], shape[heads]
    starts = unravel(begins, dims)
    return starts, starts + shape


def _continued(
    begins: NDArray[np.uint32], shape: NDArray[np.uint32], dims: Sequence[int], dim: int, stride: int
) -> NDArray[np.intp]:
    """Return for each box the number of the box of equal shape one step further in `dim`, -1 if none."""
    targets = begins.astype(np.uint64) + np.uint64(stride)
    place = np.minimum(
        np.searchsorted(begins, np.minimum(targets, 2**32 - 1).astype(np.uint32)), len(begins) - 1
    )
    found = begins[place] == targets
    hits = np.flatnonzero(found)
    # one step past the last index of the dimension is another row, not a neighbour
    inside = (targets[hits] // np.uint64(stride)) % np.uint64(dims[dim]) != 0
    equal = (shape[hits] == shape[place[hits]]).all(axis=1)
    result = np.full(len(begins), -1, np.intp)
    kept = hits[inside & equal]
    result[kept] = place[kept]
    return result


def _chain_lengths(following: NDArray[np.intp]) -> NDArray[np.uint32]:
    """Return the length of the chain of boxes that begins at each: pointer doubling, log steps."""
    lengths = (following >= 0).astype(np.uint32)
    jump = following.copy()
    active = np.flatnonzero(jump >= 0)
    while len(active):
        onward = jump[active]
        add, further = lengths[onward], jump[onward]
        lengths[active] += add
        jump[active] = further
        active = active[further >= 0]
    return lengths + np.uint32(1)


def box_count(spans: Sequence[Span]) -> int:
    """Return how many boxes a regular hyperslab consists of."""
    return math.prod(1 if span.contiguous else span.count for span in spans)
