"""The workload `uniform`: random points in a very large plane."""

from __future__ import annotations

import numpy as np

from benchmarks.workloads.case import SparseCase, random_boxes
from benchmarks.workloads.points import from_offsets


def uniform(points: int = 10_000_000, side: int = 100_000, seed: int = 3) -> SparseCase:
    """Return `points` distinct points of a `(side, side) float64` array; a chunk's side is a tenth of the array's."""
    rng = np.random.default_rng(seed)
    extent = (side, side)
    drawn = np.sort(rng.integers(0, side * side, points + points // 100 + 10))
    drawn = drawn[np.diff(drawn, prepend=-1) > 0]
    keep = np.ones(len(drawn), dtype=bool)
    keep[rng.choice(len(drawn), len(drawn) - points, replace=False)] = False
    offsets = drawn[keep]
    return SparseCase(
        name="uniform",
        extent=extent,
        chunk=(side // 10, side // 10),
        points=from_offsets(offsets, extent, rng.normal(size=len(offsets))),
        block=side // 10,
        boxes=random_boxes(rng, extent, (side // 10, side // 10), 10),
        dense_chunk=None,
        dense_rows=0,
    )
