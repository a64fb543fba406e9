"""The workload `lcls-points`: detector frames, each with 75 peaks of 5 to 10 contiguous pixels."""

from __future__ import annotations

import numpy as np

from benchmarks.workloads.case import SparseCase, random_boxes
from benchmarks.workloads.points import from_offsets

FRAME = (1024, 1024)
CHUNK = (16, 512, 512)
PEAKS = 75


def lcls_points(frames: int = 512, seed: int = 1) -> SparseCase:
    """Return `frames` frames as `(frames, 1024, 1024) uint16`: photon counts of 1 to 1023."""
    rng = np.random.default_rng(seed)
    extent = (frames, *FRAME)
    peaks = frames * PEAKS
    length = rng.integers(5, 11, peaks)
    first = (
        np.repeat(np.arange(frames), PEAKS) * (FRAME[0] * FRAME[1])
        + rng.integers(0, FRAME[0], peaks) * FRAME[1]
        + rng.integers(0, FRAME[1] - 9, peaks)
    )
    step = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
    offsets = np.unique(np.repeat(first, length) + step)
    values = rng.integers(1, 1024, len(offsets)).astype(np.uint16)
    return SparseCase(
        name="lcls-points",
        extent=extent,
        chunk=CHUNK,
        points=from_offsets(offsets, extent, values),
        block=128,
        boxes=random_boxes(rng, extent, (16, 256, 256), 20),
        dense_chunk=(4, 512, 512),
        dense_rows=16,
    )
