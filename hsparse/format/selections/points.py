"""Point selections: a list of coordinates, in any order, with repeats allowed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest
from hsparse.format.selections.extent import as_indices, check_extent, ravel, widen


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
