"""The workload `lcls-roi`: a random rectangle of 10 % of each frame, and every 100th frame in full."""

from __future__ import annotations

import numpy as np

from benchmarks.workloads.case import SparseCase, random_boxes
from benchmarks.workloads.points import from_offsets

FRAME = (1024, 1024)
CHUNK = (4, 512, 512)


def lcls_roi(frames: int = 128, seed: int = 2) -> SparseCase:
    """Return `frames` frames as `(frames, 1024, 1024) uint16`; the values are a noisy background."""
    rng = np.random.default_rng(seed)
    extent = (frames, *FRAME)
    area = FRAME[0] * FRAME[1] // 10
    parts = []
    for frame in range(frames):
        base = frame * FRAME[0] * FRAME[1]
        if frame % 100 == 0:
            parts.append(base + np.arange(FRAME[0] * FRAME[1]))
            continue
        height = int(rng.integers(area // FRAME[1] + 1, FRAME[0] + 1))
        width = area // height
        top = int(rng.integers(0, FRAME[0] - height + 1))
        left = int(rng.integers(0, FRAME[1] - width + 1))
        rows = (top + np.arange(height)) * FRAME[1]
        parts.append(base + (rows[:, None] + left + np.arange(width)).ravel())
    offsets = np.concatenate(parts)
    values = (100 + rng.normal(0, 8, len(offsets))).astype(np.uint16)
    return SparseCase(
        name="lcls-roi",
        extent=extent,
        chunk=CHUNK,
        points=from_offsets(offsets, extent, values),
        block=8,
        boxes=random_boxes(rng, extent, (4, 256, 256), 20),
        dense_chunk=(4, 512, 512),
        dense_rows=8,
    )
