"""The demo's second part: detector frames streamed into unlimited sparse datasets, checked against numpy.

As in RFC "Sparse Chunks", section 1, a trigger finds in each frame of 1 megapixel either one region of interest of
about 10 % of its pixels, or 50 to 100 small groups of 5 to 10 contiguous pixels. Each frame has other ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from demo.story import PointElements, StoredSize, Story
from hsparse.client.connection import Connection
from hsparse.client.sparse_dataset import SparseDataset
from hsparse.clock import SystemClock

SIDE = 1024
ROI_SIDE = 324
NOISE = 24
THRESHOLD = 100
SEED = 20180830


@dataclass(frozen=True, slots=True)
class Frame:
    """One image, (1024, 1024) uint16, and the mask of its interesting pixels, (1024, 1024) bool.

    `region` is the `select` string of these pixels if they are a region of interest, None for a point list.
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
    """Return the frame of an index, always the same; even frames have a region, odd frames a point list."""
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


FOUND = "/detector/found"
FULL = "/detector/full"
CHUNK = (1, 512, 512)
FILTERS = (
    {"class": "H5Z_FILTER_SHUFFLE", "id": 2},
    {"class": "H5Z_FILTER_DEFLATE", "id": 1, "level": 1},
)
WINDOW = (slice(300, 812), slice(256, 768))
WHOLE = (slice(0, SIDE), slice(0, SIDE))
DEAD = 4
"""Number of columns with dead pixels, the first columns of the region in frame 0."""


class Frames:
    """The stream: the dataset `found` has the interesting pixels of each frame, `full` every n-th whole frame."""

    def __init__(self, connection: Connection, count: int, every: int, story: Story) -> None:
        self.count = count
        self.kept = np.arange(0, count, every)
        self.story = story
        self.found = _create(connection, FOUND)
        self.full = _create(connection, FULL)
        self._seconds = {FOUND: 0.0, FULL: 0.0}
        self._points = {FOUND: 0, FULL: 0}
        self._erased: slice | None = None

    def stream(self) -> None:
        """Store the frames one by one, as they arrive."""
        with self.story.progress() as progress:
            for index in progress.track(range(self.count), description="frames of 1 megapixel"):
                self._store_found(frame(index))
                if index in self.kept:
                    self._store_full(frame(index))

    def _store_found(self, one: Frame) -> None:
        places, values = one.elements()
        clock = SystemClock()
        started = clock.monotonic()
        self.found.resize((one.index + 1, SIDE, SIDE))
        if one.region is not None:
            self.found.write_region(one.region, values)
        else:
            self.found.write(places, values)
        self._seconds[FOUND] += clock.monotonic() - started
        self._points[FOUND] += len(values)

    def _store_full(self, one: Frame) -> None:
        clock = SystemClock()
        started = clock.monotonic()
        self.full.resize((one.index + 1, SIDE, SIDE))
        self.full.write_region(f"[{one.index},:,:]", one.image)
        self._seconds[FULL] += clock.monotonic() - started
        self._points[FULL] += one.image.size

    def stored(self) -> list[StoredSize]:
        """Read back the interesting pixels of each frame, check them, and return the stored sizes."""
        clock, seconds = SystemClock(), 0.0
        for index in range(self.count):
            started = clock.monotonic()
            elements = self.found.read(f"[{index},:,:]")
            seconds += clock.monotonic() - started
            what = f"what was found in frame {index}"
            self.story.require_elements(what, elements, self.wanted(index, index + 1))
        self.story.right(f"{self._points[FOUND]:,} points read back, frame by frame, places and values")
        dense = 2 * SIDE * SIDE * self.count
        return [
            StoredSize(name, self._points[name], dataset.storage()[1], dense, self._seconds[name], read)
            for name, dataset, read in ((FOUND, self.found, seconds), (FULL, self.full, None))
        ]

    def question(self) -> None:
        """Query which frames are stored whole, and a window of the detector over time."""
        story, middle = self.story, self.count // 2
        story.say("\nQuestions about the stream, answered over HTTP:")
        indices = np.sort(self.full.defined("[:,0,0]")[:, 0])
        what = f"{FULL} says itself which frames it has: {', '.join(map(str, self.kept))}"
        story.same(what, indices, self.kept)
        for index in self.kept.tolist():
            image = self.full.read_dense(f"[{index},:,:]")[0]
            story.require(f"frame {index} in full", image, frame(index).image)
        story.right(f"these {len(self.kept)} frames, pixel by pixel")
        self._question_window(max(0, middle - 2), min(self.count, middle + 2))

    def _question_window(self, start: int, stop: int) -> None:
        story, (rows, columns) = self.story, WINDOW
        places, values = self.wanted(start, stop, WINDOW)
        select = f"[{start}:{stop},{rows.start}:{rows.stop},{columns.start}:{columns.stop}]"
        story.say(f"  A window of 512 x 512 pixels in frames {start} to {stop - 1}:")
        total = (stop - start) * 512 * 512
        what = f"{len(values):,} of {total:,} pixels are defined"
        story.same(what, self.found.count(select), len(values))
        story.same_places("where they are", self.found.defined(select), places)
        story.same_elements("their places and values at once", self.found.read(select), (places, values))
        dense = np.zeros((stop - start, 512, 512), np.uint16)
        dense[tuple((places - (start, rows.start, columns.start)).T)] = values
        story.same("the same as a dense array, 0 in between", self.found.read_dense(select), dense)

    def change(self) -> None:
        """Erase columns of dead pixels, then shrink the stream and let it grow again."""
        story, last = self.story, self.count - 1
        story.say("\nSome pixels turn out to be dead, and the last frame to be useless:")
        before = len(self.wanted(0, self.count)[1])
        first = int(self.wanted(0, 1)[0][:, 2].min())
        self.found.erase(f"[:,:,{first}:{first + DEAD}]")
        self._erased = slice(first, first + DEAD)
        gone = before - len(self.wanted(0, self.count)[1])
        what = f"columns {first} to {first + DEAD - 1} erased in all frames: {gone:,} points are gone"
        story.same(what, self.found.count(), before - gone)
        self.found.resize((last, SIDE, SIDE), erase=True)
        self.found.resize((last + 1, SIDE, SIDE))
        what = f"the stream shrunk by frame {last} and grown again: that frame is undefined, not old data"
        story.same(what, self.found.count(f"[{last},:,:]"), 0)
        self.count = last
        self._check_all(self.found)

    def check_again(self, connection: Connection) -> None:
        """Read all elements over another connection, and check them."""
        self._check_all(SparseDataset.open(connection, FOUND))

    def _check_all(self, dataset: SparseDataset) -> None:
        """Check all elements that should exist, eight frames at a time."""
        points = 0
        for start in range(0, self.count, 8):
            stop = min(self.count, start + 8)
            wanted = self.wanted(start, stop)
            elements = dataset.read(f"[{start}:{stop},:,:]")
            self.story.require_elements(f"frames {start} to {stop - 1}", elements, wanted)
            points += len(wanted[1])
        self.story.right(f"{FOUND}: every point in frames 0 to {self.count - 1}, {points:,}")

    def wanted(self, start: int, stop: int, window: tuple[slice, slice] = WHOLE) -> PointElements:
        """Return the expected elements in a window of some frames: (n, 3) places, row-major, and (n,) values."""
        parts = [frame(index).elements() for index in range(start, stop)]
        places = np.concatenate([part[0] for part in parts])
        values = np.concatenate([part[1] for part in parts])
        rows, columns = places[:, 1], places[:, 2]
        inside = (rows >= window[0].start) & (rows < window[0].stop)
        inside &= (columns >= window[1].start) & (columns < window[1].stop)
        if self._erased is not None:
            inside &= (columns < self._erased.start) | (columns >= self._erased.stop)
        return places[inside], values[inside]


def _create(connection: Connection, path: str) -> SparseDataset:
    shape, limits = (0, SIDE, SIDE), (None, SIDE, SIDE)
    return SparseDataset.create(connection, path, shape, np.uint16, CHUNK, maxshape=limits, filters=FILTERS)
