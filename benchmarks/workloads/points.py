"""Defined elements of an array, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class PointData:
    """Distinct elements of an array: `coords`, one `(n,) uint64` column per dimension, and `values: (n,)`."""

    coords: tuple[NDArray[np.uint64], ...]
    values: NDArray[Any]

    def __len__(self) -> int:
        return len(self.values)

    def take(self, index: slice | NDArray[Any]) -> PointData:
        """Return the points at `index`: positions, a mask or a slice."""
        return PointData(tuple(column[index] for column in self.coords), self.values[index])

    def rows(self, start: int, stop: int) -> PointData:
        """Return the points with `start <= dim_0 < stop`; the first column must ascend."""
        low, high = np.searchsorted(self.coords[0], np.array([start, stop], dtype=np.uint64))
        return self.take(slice(int(low), int(high)))

    def from_row(self, start: int) -> PointData:
        """Return the same points with rows counted from `start`."""
        return PointData((self.coords[0] - np.uint64(start), *self.coords[1:]), self.values)

    def inside(self, start: Sequence[int], stop: Sequence[int]) -> PointData:
        """Return the points of the box `start <= coordinate < stop`; the first column must ascend."""
        band = self.rows(start[0], stop[0])
        mask = np.ones(len(band), dtype=bool)
        for column, low, high in zip(band.coords[1:], start[1:], stop[1:], strict=True):
            mask &= (column >= low) & (column < high)
        return band.take(mask)

    def total(self) -> float:
        """Return the sum of the values, to compare with the sum of the values that a side reads."""
        return float(self.values.sum(dtype=np.float64))


def from_offsets(offsets: NDArray[Any], extent: Sequence[int], values: NDArray[Any]) -> PointData:
    """Return the points at ascending, distinct row-major `offsets: (n,)` of an array of `extent`."""
    columns = np.unravel_index(offsets, tuple(extent))
    return PointData(tuple(column.astype(np.uint64) for column in columns), values)


def dense_rows(points: PointData, extent: Sequence[int], start: int, stop: int) -> NDArray[Any]:
    """Return rows `start <= dim_0 < stop` as a dense array; undefined elements are 0."""
    band = points.rows(start, stop)
    out = np.zeros((stop - start, *extent[1:]), dtype=points.values.dtype)
    out[(band.coords[0] - np.uint64(start), *band.coords[1:])] = band.values
    return out
