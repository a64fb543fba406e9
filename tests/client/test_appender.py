"""Appenders: many appends by few requests, in their order, each with its place, and what has failed told."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import hsparse
from hsparse.client import appender as appender_module
from hsparse.client.appender import Appender
from hsparse.client.connection import Connection
from hsparse.client.errors import InvalidValue
from hsparse.client.sources.upload import Slab
from hsparse.client.sparse_dataset import SparseDataset
from hsparse.errors import HsparseError, StoreFailed

NEVER = 3600.0


class Log:
    """What an appender sends: `sent` has the values of each request, of which the first may be held."""

    def __init__(self) -> None:
        self.sent: list[list[int]] = []
        self.began = threading.Event()
        self.going_on = threading.Event()
        self.going_on.set()
        self.error: Exception | None = None

    def make(self, block: Any, values: Any, count: int | None) -> Slab:
        array = np.atleast_1d(block)
        if values is not None:
            return Slab(1, np.asarray(values), np.array([[0]], np.uint64))
        if array[0] < 0:
            raise InvalidValue("No negative numbers.")
        return Slab(len(array), array)

    def append(self, slab: Slab) -> slice:
        start = sum(map(len, self.sent))
        self.sent.append(slab.values.tolist())
        self.began.set()
        self.going_on.wait()
        if self.error is not None:
            raise self.error
        return slice(start, start + slab.count)

    def appender(self, max_delay: float = NEVER, max_bytes: int = 1 << 20) -> Appender:
        return Appender(self.make, self.append, 0, max_delay, max_bytes)


def test_what_waits_is_one_request_and_each_has_its_place() -> None:
    log = Log()
    with log.appender() as appender:
        places = [appender.append([number] * (1 + number % 2)) for number in range(5)]
        assert not places[0].done()
        appender.flush()
        assert [place.result() for place in places] == [
            slice(0, 1),
            slice(1, 3),
            slice(3, 4),
            slice(4, 6),
            slice(6, 7),
        ]
        last = appender.append(9)
    assert last.result() == slice(7, 8)
    assert log.sent == [[0, 1, 1, 2, 3, 3, 4], [9]]


def test_what_comes_while_a_request_is_sent_is_the_next_one() -> None:
    log = Log()
    log.going_on.clear()
    with log.appender(max_delay=0) as appender:
        first = appender.append(1)
        log.began.wait()
        others = [appender.append(number) for number in (2, 3, 4)]
        log.going_on.set()
        assert first.result() == slice(0, 1)
        assert others[-1].result() == slice(3, 4)
    assert log.sent == [[1], [2, 3, 4]]


@pytest.mark.parametrize(("most_frames", "max_bytes"), [(3, 1 << 20), (1024, 3 * 8)])
def test_a_request_is_bounded(most_frames: int, max_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appender_module, "MOST_FRAMES", most_frames)
    log = Log()
    with log.appender(max_bytes=max_bytes) as appender:
        for number in range(8):
            appender.append(number)
    assert [number for some in log.sent for number in some] == list(range(8))
    assert max(map(len, log.sent)) == 3


def test_an_append_waits_while_much_is_on_its_way() -> None:
    log = Log()
    log.going_on.clear()
    with log.appender(max_delay=0, max_bytes=8) as appender, ThreadPoolExecutor(1) as pool:
        appender.append(0)
        log.began.wait()
        appender.append(1)
        waiting = pool.submit(appender.append, 2)
        assert len(appender._waiting) == 1
        log.going_on.set()
        assert waiting.result().result() == slice(2, 3)


def test_places_and_whole_frames_are_in_order() -> None:
    log = Log()
    with log.appender() as appender:
        for number in (1, 2):
            appender.append(number)
        for number in (3, 4):
            appender.append([[0]], [number])
        appender.append(5)
    assert log.sent == [[1, 2], [3, 4], [5]]


def test_memory_may_be_used_again() -> None:
    log, frame = Log(), np.array([1])
    with log.appender() as appender:
        appender.append(frame)
        frame[0] = 2
        appender.append(frame)
    assert log.sent == [[1, 2]]


def test_what_does_not_fit_is_refused_at_once_and_the_rest_goes_on() -> None:
    log = Log()
    with log.appender() as appender:
        appender.append(1)
        with pytest.raises(InvalidValue):
            appender.append(-1)
        appender.append(2)
    assert log.sent == [[1, 2]]


def test_what_has_failed_is_raised_by_all_that_follows() -> None:
    log = Log()
    log.error = StoreFailed("The disk is full.")
    appender = log.appender(max_delay=0)
    place = appender.append(1)
    with pytest.raises(StoreFailed):
        place.result()
    with pytest.raises(StoreFailed):
        appender.append(2)
    with pytest.raises(StoreFailed):
        appender.flush()
    with pytest.raises(StoreFailed):
        appender.close()
    assert log.sent == [[1]]


def test_what_waits_behind_what_has_failed_is_not_appended() -> None:
    log = Log()
    log.error, log.going_on = StoreFailed("The disk is full."), threading.Event()
    appender = log.appender(max_delay=0)
    places = [appender.append(1)]
    log.began.wait()
    places += [appender.append(number) for number in (2, 3)]
    log.going_on.set()
    with pytest.raises(StoreFailed), appender:
        pass
    assert all(isinstance(place.exception(), StoreFailed) for place in places)
    assert log.sent == [[1]]


def test_an_error_of_the_block_is_not_hidden() -> None:
    log = Log()
    log.error, appender = StoreFailed("The disk is full."), log.appender()
    place = appender.append(1)
    with pytest.raises(KeyError), appender:
        raise KeyError("its own")
    assert isinstance(place.exception(), StoreFailed)
    assert log.sent == [[1]]


def test_after_the_end_nothing_is_appended() -> None:
    log = Log()
    with log.appender() as appender:
        pass
    appender.close()
    with pytest.raises(InvalidValue, match="closed"):
        appender.append(1)


# --- datasets -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 2])
def test_frames_of_every_form(connection: Connection, axis: int) -> None:
    extent = [4, 5, 6]
    extent[axis] = 0
    limits = tuple(length or None for length in extent)
    x = SparseDataset.create(connection, "/x", tuple(extent), "i4", (4, 5, 6), maxshape=limits)
    random = np.random.default_rng(axis)
    frame_shape = tuple(length for length in extent if length)
    frames = []
    with x.appender(axis=axis) as appender:
        places = []
        for number in range(30):
            frame = np.where(random.random(frame_shape) < 0.3, random.integers(1, 9, frame_shape), 0)
            frames.append(frame.astype("i4"))
            if number % 3 == 0:
                places.append(appender.append(frame))
            elif number % 3 == 1:
                places.append(appender.append(sp.csr_array(frame)))
            else:
                coords = np.insert(np.argwhere(frame), axis, 0, axis=1)
                places.append(appender.append(coords, frame[frame > 0], count=1))
        with pytest.raises(ValueError, match="other lengths"):
            appender.append(np.zeros((2, 2), int))
        with pytest.raises(IndexError):
            appender.append(np.full((1, 3), 7), [1], count=1)
    assert [place.result().start for place in places] == list(range(30))
    np.testing.assert_array_equal(x.to_numpy(), np.stack(frames, axis))
    assert x.nnz == sum(np.count_nonzero(frame) if n % 3 else frame.size for n, frame in enumerate(frames))


def test_fill_values_are_dropped_if_that_is_asked_for(connection: Connection) -> None:
    x = SparseDataset.create(connection, "/x", (0, 3), "f8", (4, 3), maxshape=(None, 3))
    with x.appender(drop_fill=True) as appender:
        for number in range(5):
            appender.append([number, 0, 0])
    assert (x.shape, x.nnz) == ((5, 3), 4)


@pytest.mark.parametrize("dtype", ["f8", "S3", object])
def test_dense_datasets(connection: Connection, dtype: Any) -> None:
    file = hsparse.open(f"{connection.url}{connection.domain}")
    assert isinstance(file, hsparse.File)
    kind = str if dtype is object else dtype
    x = file.create_dataset("x", (0, 3), kind, chunks=(4, 3), maxshape=(None, 3))
    rows = [[f"{number}", "a", ""] if dtype != "f8" else [number, 1, 2] for number in range(20)]
    with x.appender() as appender:
        places = [appender.append(row) for row in rows]
    assert [place.result() for place in places] == [slice(n, n + 1) for n in range(20)]
    expected = np.array(rows, dtype)
    assert x.shape == (20, 3)
    np.testing.assert_array_equal(np.asarray(x[:]), expected)
    with pytest.raises(InvalidValue, match="dense"), x.appender() as appender:
        appender.append([[0, 0]], [1], count=1)


def test_several_appenders_and_others(connection: Connection) -> None:
    """Each one's rows are in its order, whatever others append."""
    x = SparseDataset.create(connection, "/x", (0, 2), "i8", (16, 2), maxshape=(None, 2))

    def work(number: int) -> list[slice]:
        with x.appender(max_delay=0.001) as appender:
            places = [appender.append([number, row]) for row in range(50)]
        return [place.result() for place in places]

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(work, range(1, 5)))
    rows = x.to_numpy()
    assert rows.shape == (200, 2)
    for number, places in enumerate(found, 1):
        starts = [place.start for place in places]
        assert starts == sorted(starts)
        assert rows[starts].tolist() == [[number, row] for row in range(50)]


def test_a_dataset_that_does_not_grow(connection: Connection) -> None:
    x = SparseDataset.create(connection, "/x", (2, 3), "f8", (2, 3))
    with pytest.raises(HsparseError), x.appender() as appender:
        appender.append([1, 2, 3])
    with pytest.raises(IndexError):
        x.appender(axis=3)
    with pytest.raises(ValueError, match="max_delay"):
        x.appender(max_delay=-1)
