"""A sparse workload: its points and how they are written and read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.workloads.points import PointData

Box = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class SparseCase:
    """One sparse dataset, and how its points are written and read: in row-major order, in blocks of `block` rows.

    `dense_chunk` is the chunk of the same data as a dense dataset (at most 4 MiB, HSDS's limit), None
    where the dense dataset would be too large to store. `boxes` are the (start, stop) of box reads.
    """

    name: str
    extent: tuple[int, ...]
    chunk: tuple[int, ...]
    points: PointData
    block: int
    boxes: tuple[Box, ...]
    dense_chunk: tuple[int, ...] | None
    dense_rows: int
    """Rows per request when the dense dataset is written and read."""

    @property
    def dtype(self) -> np.dtype[np.generic]:
        return self.points.values.dtype


def random_boxes(
    rng: np.random.Generator, extent: tuple[int, ...], size: tuple[int, ...], n: int
) -> tuple[Box, ...]:
    """Return `n` random boxes of `size`, which is reduced to `extent` where it is larger."""
    size = tuple(map(min, size, extent))
    boxes = []
    for _ in range(n):
        start = tuple(int(rng.integers(0, e - s + 1)) for e, s in zip(extent, size, strict=True))
        boxes.append((start, tuple(a + s for a, s in zip(start, size, strict=True))))
    return tuple(boxes)
