"""Irregular hyperslabs: unions of disjoint boxes, and the search for overlapping boxes.

The search usually takes about as long as sorting the boxes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest, TooLarge
from hsparse.format.selections.extent import (
    MAX_OFFSET,
    as_indices,
    check_extent,
    count_runs,
    expand,
    runs_of,
    unravel,
    widen,
)


@dataclass(frozen=True, slots=True, eq=False)
class Boxes:
    """A union of boxes with corners `starts` and `stops` (exclusive), both (m, rank) uint64.

    Boxes are not empty and do not overlap. Iteration is row-major over the union, not box by box: elements of boxes
    that share rows interleave (RFC "File Format Changes for Enabling Sparse Storage in HDF5", order of the fixed-size
    section).
    """

    extent: tuple[int, ...]
    starts: NDArray[np.uint64]
    stops: NDArray[np.uint64]

    def __post_init__(self) -> None:
        extent = check_extent(self.extent)
        starts, stops = (
            as_indices(self.starts, "corners of boxes"),
            as_indices(self.stops, "corners of boxes"),
        )
        if starts.shape != stops.shape or starts.ndim != 2 or starts.shape[1] != len(extent) or not extent:
            raise BadRequest(f"Boxes need two corners of {len(extent)} coordinates (at least 1) each.")
        for dim, length in enumerate(extent):
            if len(stops) and (highest := int(stops[:, dim].max())) > length:
                raise BadRequest(f"A box ends at {highest} in dimension {dim}, beyond the extent {length}.")
            if (starts[:, dim] >= stops[:, dim]).any():
                raise BadRequest(f"A box is empty in dimension {dim}; its stop must be above its start.")
        pair = overlapping(starts, stops, extent)
        if pair is not None:
            raise BadRequest(f"Boxes {pair[0]} and {pair[1]} overlap; give disjoint boxes.")
        object.__setattr__(self, "extent", extent)
        object.__setattr__(self, "starts", starts)
        object.__setattr__(self, "stops", stops)

    def __eq__(self, other: object) -> bool:
        """Return whether both selections have the same extent and the same boxes in the same order."""
        if not isinstance(other, Boxes):
            return NotImplemented
        same = self.extent == other.extent and np.array_equal(self.starts, other.starts)
        return same and np.array_equal(self.stops, other.stops)

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def trusted(cls, extent: tuple[int, ...], starts: NDArray[np.uint64], stops: NDArray[np.uint64]) -> Boxes:
        """Return `Boxes` without checks; the boxes must be disjoint, not empty, and inside the extent."""
        self = object.__new__(cls)
        object.__setattr__(self, "extent", extent)
        object.__setattr__(self, "starts", starts)
        object.__setattr__(self, "stops", stops)
        return self

    @property
    def size(self) -> int:
        lengths = self.stops - self.starts
        if math.prod(self.extent) < 2**63:
            return int(lengths.prod(axis=1, dtype=np.uint64).sum())
        return sum(math.prod(row) for row in lengths.tolist())

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size,)

    @property
    def is_all(self) -> bool:
        """Whether all elements are selected in the extent's shape; only in rank 1, because boxes have shape (n,)."""
        return len(self.extent) == 1 and self.size == self.extent[0]

    def bounds(self) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Return the lowest and the (exclusive) highest corner, or None if nothing is selected."""
        if not len(self.starts):
            return None
        return tuple(self.starts.min(axis=0).tolist()), tuple(self.stops.max(axis=0).tolist())

    def runs(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Return a pair: the first offsets and the (exclusive) ends of contiguous runs, (k,) uint64 each, ascending."""
        return runs_of(self.starts, self.stops, self.extent)

    def offsets(self) -> NDArray[np.uint64]:
        """Return the row-major linear offsets in the extent, (n,) uint64, ascending."""
        return expand(*self.runs())

    def coords(self) -> NDArray[np.uint64]:
        """Return the coordinates, (n, rank) uint64, in iteration order."""
        return unravel(self.offsets(), self.extent)

    def translate(self, offset: Sequence[int], extent: Sequence[int]) -> Boxes:
        """Return the boxes moved by the signed `offset` in another extent; raise `BadRequest` if a box is outside."""
        steps = np.array([step % 2**64 for step in offset], np.uint64)
        return Boxes(tuple(extent), self.starts + steps, self.stops + steps)

    def clip(self, start: Sequence[int], stop: Sequence[int]) -> Boxes:
        """Return the selected elements in the block `start..stop` (exclusive), in the same coordinates."""
        starts = np.maximum(self.starts, np.array(start, np.uint64))
        stops = np.minimum(self.stops, np.array(stop, np.uint64))
        keep = (starts < stops).all(axis=1)
        return Boxes.trusted(self.extent, starts[keep], stops[keep])

    def index(self) -> None:
        """Return None, because numpy has no index for a union of boxes; use `offsets` on the flat array."""

    def contains(self, offsets: NDArray[Any]) -> NDArray[np.bool_]:
        """Return a mask of those `offsets` that are selected; `offsets` must be ascending unsigned linear offsets."""
        offsets = widen(offsets, self.extent)
        begins, ends = self.runs()
        starts = np.searchsorted(offsets, begins.astype(offsets.dtype), "left")
        stops = np.searchsorted(offsets, (ends - np.uint64(1)).astype(offsets.dtype), "right")
        change = np.bincount(starts, minlength=len(offsets) + 1) - np.bincount(
            stops, minlength=len(offsets) + 1
        )
        result: NDArray[np.bool_] = np.cumsum(change)[: len(offsets)] > 0
        return result

    def order_of(self, offsets: NDArray[Any]) -> NDArray[np.intp]:
        """Return the position in iteration order of each of `offsets`, which must all be selected."""
        begins, ends = self.runs()
        places = np.concatenate(([0], np.cumsum((ends - begins).astype(np.intp))[:-1]))
        run = np.searchsorted(begins, offsets.astype(np.uint64), "right") - 1
        result: NDArray[np.intp] = places[run] + (offsets.astype(np.uint64) - begins[run]).astype(np.intp)
        return result


RUNS = 1 << 20
RUNS_PER_BOX = 16
"""Sets of boxes with at most `RUNS` runs in all, or `RUNS_PER_BOX` runs per box, are compared run by run."""
PAIRS_AT_ONCE = 1 << 18
MAX_PAIRS = 1 << 26
"""The most comparisons of boxes, which take a few seconds; sets that need more are rejected."""


def overlapping(
    starts: NDArray[np.uint64], stops: NDArray[np.uint64], extent: Sequence[int]
) -> tuple[int, int] | None:
    """Return the numbers of two boxes that overlap, or None if no two boxes do.

    `starts` and `stops` (exclusive) are (m, rank) uint64 corners inside `extent`; no box may be empty. Raises
    `TooLarge` if the search needs more than `MAX_PAIRS` comparisons.
    """
    if len(starts) < 2:
        return None
    few = math.prod(extent) < MAX_OFFSET
    if few and count_runs(starts, stops, extent) <= max(RUNS, RUNS_PER_BOX * len(starts)):
        return _by_runs(starts, stops, extent)
    return _by_sweep(starts, stops)


def _by_runs(
    starts: NDArray[np.uint64], stops: NDArray[np.uint64], extent: Sequence[int]
) -> tuple[int, int] | None:
    """Find overlapping boxes by comparing each run with the next one in row-major order."""
    begins, ends = runs_of(starts, stops, extent)
    shared = np.flatnonzero(begins[1:] < ends[:-1])
    if not len(shared):
        return None
    place = unravel(begins[shared[0] + 1 : shared[0] + 2], extent)
    first, second = np.flatnonzero(((starts <= place) & (place < stops)).all(axis=1))[:2]
    return int(first), int(second)


def _by_sweep(starts: NDArray[np.uint64], stops: NDArray[np.uint64]) -> tuple[int, int] | None:
    """Find overlapping boxes by a sweep along one dimension, for boxes with many runs."""
    order, cluster = _clusters(starts, stops)
    counts = np.bincount(cluster)
    keep = counts[cluster] > 1
    order, cluster = order[keep], cluster[keep]
    if not len(order):
        return None
    dim = _sweep_dim(starts[order], stops[order], cluster)
    order, cluster = _sorted_in(starts[order, dim], cluster, order)
    # In sweep order, box i can only overlap later boxes that begin before it ends.
    reach = _reach(starts[order, dim], stops[order, dim], cluster) - np.arange(len(order)) - 1
    if int(reach.sum()) > MAX_PAIRS:
        raise TooLarge(
            f"{len(starts)} boxes need too many comparisons to check for overlap; send smaller sets."
        )
    ends = np.cumsum(reach)
    first = 0
    while first < len(order):
        base = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, base + PAIRS_AT_ONCE, "right")))
        pair = _overlap_among(starts, stops, order, reach, first, last)
        if pair is not None:
            return pair
        first = last
    return None


def _clusters(
    starts: NDArray[np.uint64], stops: NDArray[np.uint64]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return a pair: an order of the boxes, and the boxes' clusters in this order; different clusters cannot overlap.

    Clusters are split in each dimension in turn at gaps that no box of the cluster crosses, until no dimension
    splits a cluster.
    """
    order = np.arange(len(starts))
    cluster = np.zeros(len(starts), np.intp)
    quiet, dim, rank = 0, 0, starts.shape[1]
    while quiet < rank and len(order):
        order, cluster = _sorted_in(starts[order, dim], cluster, order)
        split = _split(starts[order, dim], stops[order, dim], cluster)
        quiet = 0 if split[-1] != cluster[-1] else quiet + 1
        cluster, dim = split, (dim + 1) % rank
    return order, cluster


def _sorted_in(
    keys: NDArray[np.uint64], cluster: NDArray[np.intp], order: NDArray[np.intp]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    by = np.lexsort((keys, cluster))
    return order[by], cluster[by]


def _split(low: NDArray[np.uint64], high: NDArray[np.uint64], cluster: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return finer cluster numbers: a box begins a new cluster if all earlier boxes of its cluster end before it."""
    ranks = _ranks(low, high)
    low_rank, high_rank = ranks[: len(low)], ranks[len(low) :]
    base = cluster * (len(ranks) + 1)
    furthest = np.maximum.accumulate(base + high_rank)
    opens = np.ones(len(low), np.bool_)
    opens[1:] = base[1:] + low_rank[1:] >= furthest[:-1]
    result: NDArray[np.intp] = np.cumsum(opens) - 1
    return result


def _ranks(low: NDArray[np.uint64], high: NDArray[np.uint64]) -> NDArray[np.intp]:
    """Return the ranks of all coordinates, `low` first, which are small enough to be combined with cluster numbers."""
    _, ranks = np.unique(np.concatenate((low, high)), return_inverse=True)
    return ranks.astype(np.intp)


def _reach(low: NDArray[np.uint64], high: NDArray[np.uint64], cluster: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return for each box the end of the boxes in its cluster that begin before the box ends; `low` must ascend."""
    ranks = _ranks(low, high)
    base = cluster * (len(ranks) + 1)
    return np.searchsorted(base + ranks[: len(low)], base + ranks[len(low) :], "left")


def _sweep_dim(starts: NDArray[np.uint64], stops: NDArray[np.uint64], cluster: NDArray[np.intp]) -> int:
    """Return the dimension in which a sweep compares the fewest pairs."""
    pairs = []
    for dim in range(starts.shape[1]):
        by = np.lexsort((starts[:, dim], cluster))
        reach = _reach(starts[by, dim], stops[by, dim], cluster[by])
        pairs.append(int(reach.sum()))
    return int(np.argmin(pairs))


def _overlap_among(
    starts: NDArray[np.uint64],
    stops: NDArray[np.uint64],
    order: NDArray[np.intp],
    reach: NDArray[np.intp],
    first: int,
    last: int,
) -> tuple[int, int] | None:
    """Return a box in `order[first:last]` and an overlapping box in its reach, or None if there is no such pair."""
    counts = reach[first:last]
    left = np.repeat(np.arange(first, last), counts)
    right = left + 1 + np.arange(len(left)) - np.repeat(np.cumsum(counts) - counts, counts)
    a, b = order[left], order[right]
    overlap = ((starts[a] < stops[b]) & (starts[b] < stops[a])).all(axis=1)
    found = np.flatnonzero(overlap)
    return (int(a[found[0]]), int(b[found[0]])) if len(found) else None
