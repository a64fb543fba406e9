"""Irregular hyperslabs: unions of disjoint boxes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest
from hsparse.format.extent import as_indices, check_extent, unravel, widen
from hsparse.format.overlap import overlapping
from hsparse.format.runs import expand, runs_of


@dataclass(frozen=True, slots=True, eq=False)
class Boxes:
    """The union of boxes from corners `starts` up to and without `stops`, both (m, rank) uint64.

    Boxes are not empty and do not overlap. Iteration is row-major over the union, not box by box: the
    elements of boxes that share rows interleave (RFC "File Format Changes for Enabling Sparse Storage
    in HDF5", order of the fixed-size section).
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
        """Same extent and the same boxes in the same order."""
        if not isinstance(other, Boxes):
            return NotImplemented
        same = self.extent == other.extent and np.array_equal(self.starts, other.starts)
        return same and np.array_equal(self.stops, other.stops)

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def trusted(cls, extent: tuple[int, ...], starts: NDArray[np.uint64], stops: NDArray[np.uint64]) -> Boxes:
        """Build without the checks, from boxes that are known to be disjoint and to fit."""
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
        """Every element of the extent, in row-major order and the extent's shape: so of rank 1 only."""
        return len(self.extent) == 1 and self.size == self.extent[0]

    def bounds(self) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Return the lowest corner and one past the highest; None when nothing is selected."""
        if not len(self.starts):
            return None
        return tuple(self.starts.min(axis=0).tolist()), tuple(self.stops.max(axis=0).tolist())

    def runs(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Return first offsets and ends, (k,) uint64, of contiguous runs in row-major order."""
        return runs_of(self.starts, self.stops, self.extent)

    def offsets(self) -> NDArray[np.uint64]:
        """Return the row-major linear offsets in the extent, (n,) uint64, ascending."""
        return expand(*self.runs())

    def coords(self) -> NDArray[np.uint64]:
        """Return the coordinates, (n, rank) uint64, in iteration order."""
        return unravel(self.offsets(), self.extent)

    def translate(self, offset: Sequence[int], extent: Sequence[int]) -> Boxes:
        """Return the boxes moved by `offset`, signed, in another extent; `BadRequest` when one leaves it."""
        steps = np.array([step % 2**64 for step in offset], np.uint64)
        return Boxes(tuple(extent), self.starts + steps, self.stops + steps)

    def clip(self, start: Sequence[int], stop: Sequence[int]) -> Boxes:
        """Return what lies in the block `start..stop` (exclusive), in the same coordinates."""
        starts = np.maximum(self.starts, np.array(start, np.uint64))
        stops = np.minimum(self.stops, np.array(stop, np.uint64))
        keep = (starts < stops).all(axis=1)
        return Boxes.trusted(self.extent, starts[keep], stops[keep])

    def index(self) -> None:
        """Return None: numpy has no index for a union of boxes; use `offsets` on the flat array."""

    def contains(self, offsets: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which of `offsets`, ascending unsigned linear offsets in the extent, are selected."""
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
        """Return the place of each of `offsets`, all selected, in the iteration."""
        begins, ends = self.runs()
        places = np.concatenate(([0], np.cumsum((ends - begins).astype(np.intp))[:-1]))
        run = np.searchsorted(begins, offsets.astype(np.uint64), "right") - 1
        result: NDArray[np.intp] = places[run] + (offsets.astype(np.uint64) - begins[run]).astype(np.intp)
        return result
