"""A simulated X-ray detector of 1 megapixel: frames, and what a trigger finds interesting in them.

As in RFC "Sparse Chunks", section 1: in each frame either one region of interest of about 10 % of its pixels,
or 50 to 100 small groups of 5 to 10 contiguous pixels. All changes from frame to frame.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

SIDE = 1024
ROI_SIDE = 324
NOISE = 24
THRESHOLD = 100
SEED = 20180830


@dataclass(frozen=True, slots=True)
class Frame:
    """One image, (1024, 1024) uint16, and which of its pixels are interesting, (1024, 1024) bool.

    `region` is the `select` string of these pixels where they are a region of interest, None for a point list.
    """

    index: int
    image: NDArray[np.uint16]
    found: NDArray[np.bool_]
    region: str | None

    def elements(self) -> tuple[NDArray[np.int64], NDArray[np.uint16]]:
        """Return the interesting pixels as (n, 3) coordinates in the stream, row-major, and (n,) values."""
        rows, columns = np.nonzero(self.found)
        places = np.stack((np.full(len(rows), self.index), rows, columns), axis=1)
        return places, self.image[rows, columns]


@lru_cache(maxsize=4)
def frame(index: int) -> Frame:
    """Return the frame of that index, always the same: even ones have a region, odd ones a point list."""
    rng = np.random.default_rng((SEED, index))
    image = rng.integers(0, NOISE, (SIDE, SIDE), np.uint16)
    return _with_region(index, image, rng) if index % 2 == 0 else _with_points(index, image, rng)


def _with_region(index: int, image: NDArray[np.uint16], rng: np.random.Generator) -> Frame:
    top, left = (int(corner) for corner in rng.integers(0, SIDE - ROI_SIDE, 2))
    box = (slice(top, top + ROI_SIDE), slice(left, left + ROI_SIDE))
    image[box] += rng.poisson(40, (ROI_SIDE, ROI_SIDE)).astype(np.uint16)
    found = np.zeros(image.shape, np.bool_)
    found[box] = True
    return Frame(index, image, found, f"[{index},{top}:{top + ROI_SIDE},{left}:{left + ROI_SIDE}]")


def _with_points(index: int, image: NDArray[np.uint16], rng: np.random.Generator) -> Frame:
    for _ in range(int(rng.integers(50, 101))):
        row, column = (int(place) for place in rng.integers(0, SIDE - 5, 2))
        first, second = (int(length) for length in rng.integers((3, 2), (6, 6)))
        image[row, column : column + first] += np.uint16(THRESHOLD + rng.integers(1, 4000))
        image[row + 1, column : column + second] += np.uint16(THRESHOLD + rng.integers(1, 4000))
    return Frame(index, image, image > THRESHOLD, None)
