"""The workload `rfc-table`: one chunk of one-byte elements, 1 to 10 % defined, in three patterns."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from benchmarks.workloads.case import SparseCase
from benchmarks.workloads.points import from_offsets

SIDE = 1024
PERCENTS = (1, 2, 5, 10)


def random_points(rng: np.random.Generator, percent: int) -> NDArray[np.int64]:
    """Return ascending offsets of random elements, `percent` % of the chunk."""
    offsets: NDArray[np.int64] = rng.choice(SIDE * SIDE, SIDE * SIDE * percent // 100, replace=False)
    offsets.sort()
    return offsets


def rectangle(rng: np.random.Generator, percent: int) -> NDArray[np.int64]:
    """Return ascending offsets of one square of about `percent` % of the chunk."""
    side = round(SIDE * (percent / 100) ** 0.5)
    top, left = rng.integers(0, SIDE - side + 1, 2)
    offsets: NDArray[np.int64] = ((top + np.arange(side)) * SIDE)[:, None] + left + np.arange(side)
    return offsets.ravel()


def run_a_row(rng: np.random.Generator, percent: int) -> NDArray[np.int64]:
    """Return ascending offsets of one run in every row, at a random place and `percent` % of the row long."""
    length = SIDE * percent // 100
    left = rng.integers(0, SIDE - length + 1, SIDE)
    offsets: NDArray[np.int64] = (np.arange(SIDE) * SIDE + left)[:, None] + np.arange(length)
    return offsets.ravel()


PATTERNS: dict[str, Callable[[np.random.Generator, int], NDArray[np.int64]]] = {
    "random points": random_points,
    "one rectangle": rectangle,
    "one run a row": run_a_row,
}


def rfc_table(pattern: str, percent: int, seed: int = 5) -> SparseCase:
    """Return the chunk of `pattern` with `percent` % defined; values are random bytes of 1 to 255."""
    rng = np.random.default_rng((seed, percent))
    offsets = PATTERNS[pattern](rng, percent)
    values = rng.integers(1, 256, len(offsets)).astype(np.uint8)
    extent = (SIDE, SIDE)
    return SparseCase(
        name=f"{pattern}, {percent} %",
        extent=extent,
        chunk=extent,
        points=from_offsets(offsets, extent, values),
        block=SIDE,
        boxes=(),
        dense_chunk=extent,
        dense_rows=SIDE,
    )
