"""The workload `dense`: a float64 array, and the requests that write and read it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from benchmarks.workloads.case import Box, random_boxes

CHUNK = (512, 512)  # 2 MiB
POINTS = 10_000
MANY_POINTS = 1_000_000


@dataclass(frozen=True)
class DenseCase:
    """A float64 array of `extent`, which is a multiple of the chunk in each dimension."""

    extent: tuple[int, int]
    seed: int = 6

    @cached_property
    def values(self) -> NDArray[np.float64]:
        return np.random.default_rng(self.seed).normal(size=self.extent)

    def bands(self) -> tuple[Box, ...]:
        """Return boxes of whole rows of chunks, for requests of 16 MiB at 4096 columns."""
        rows, columns = self.extent
        return tuple(((row, 0), (row + CHUNK[0], columns)) for row in range(0, rows, CHUNK[0]))

    def chunks(self) -> tuple[Box, ...]:
        """Return boxes of single chunks, for requests of 2 MiB."""
        return tuple(
            ((row, column), (row + CHUNK[0], column + CHUNK[1]))
            for row in range(0, self.extent[0], CHUNK[0])
            for column in range(0, self.extent[1], CHUNK[1])
        )

    def hyperslabs(self, n: int = 50) -> tuple[Box, ...]:
        """Return `n` random boxes of 1 MiB."""
        return random_boxes(np.random.default_rng(self.seed + 1), self.extent, (256, 512), n)

    def coordinates(self, n: int = 10) -> list[NDArray[np.uint64]]:
        """Return `n` lists of distinct random points, each `(10000, 2) uint64`, in row-major order."""
        rng = np.random.default_rng(self.seed + 2)
        size = self.extent[0] * self.extent[1]
        lists = [np.sort(rng.choice(size, min(POINTS, size), replace=False)) for _ in range(n)]
        return [np.column_stack(np.unravel_index(each, self.extent)).astype(np.uint64) for each in lists]

    def scattered(self, n: int = MANY_POINTS) -> NDArray[np.uint64]:
        """Return random unsorted points, `(n, 2) uint64`; points may repeat."""
        rng = np.random.default_rng(self.seed + 3)
        return np.column_stack([rng.integers(0, length, n) for length in self.extent]).astype(np.uint64)


def dense(rows: int = 8192, columns: int = 4096) -> DenseCase:
    """Return the case: 256 MiB at full size."""
    return DenseCase((rows, columns))
