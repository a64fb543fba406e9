"""Appends: by appenders, with few requests; and datasets that grow while they are open."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import sparse

from hsparse.client import appender as appender_module
from hsparse.client.appender import Appender
from hsparse.client.connection import Connection
from hsparse.client.errors import InvalidValue
from hsparse.client.sources.upload import Slab
from hsparse.client.sparse_dataset import SparseDataset
from hsparse.errors import Conflict, HsparseError, StoreFailed
from tests.client.access_ways import open_file

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
            slice(0, 1), slice(1, 3), slice(3, 4), slice(4, 6), slice(6, 7),
        ]  # fmt: skip
        last = appender.append(9)
    assert (last.result(), log.sent) == (slice(7, 8), [[0, 1, 1, 2, 3, 3, 4], [9]])


def test_what_comes_while_a_request_is_sent_is_the_next_one() -> None:
    log = Log()
    log.going_on.clear()
    with log.appender(max_delay=0) as appender:
        first = appender.append(1)
        log.began.wait()
        others = [appender.append(number) for number in (2, 3, 4)]
        log.going_on.set()
        assert (first.result(), others[-1].result()) == (slice(0, 1), slice(3, 4))
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
    for fails in (place.result, lambda: appender.append(2), appender.flush, appender.close):
        with pytest.raises(StoreFailed):
            fails()
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
        with pytest.raises(ValueError, match="other dimensions"):
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
    file = open_file(f"{connection.url}{connection.domain}")
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


@pytest.mark.parametrize("way", ["sparse", "dense"])
def test_what_counts_from_the_end_counts_from_the_current_one(connection: Connection, way: str) -> None:
    """As in h5py, whose file knows what others of the process have appended."""
    seen, other = growing(connection, way)
    for number in range(1, 4):
        other.resize((4 + number, 3))
        other[3 + number] = number
        assert np.asarray(seen.to_numpy(-1)).tolist() == [number] * 3
        assert seen.shape == (4 + number, 3)
    other.resize((8, 3))
    other[7] = 9
    assert seen.to_numpy(np.s_[-2:, 0]).tolist() == [3, 9]
    other.resize((9, 3))
    seen[-1] = 5
    assert other.to_numpy(np.s_[8]).tolist() == [5, 5, 5]
    other.resize((10, 3))
    assert seen.to_numpy(([-1, -2], [0, 0])).tolist() == [0, 5]
    assert seen.to_numpy(np.s_[:, -1]).shape == (10,)


def test_an_end_that_cannot_move_is_not_asked_for(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, other = growing(connection, "sparse")
    other.extend(1)
    monkeypatch.setattr(SparseDataset, "refresh", None)
    assert seen.to_numpy(np.s_[:, -1]).shape == (4,)
    assert seen.to_numpy(np.s_[0, -2:100]).shape == (2,)


def growing(connection: Connection, way: str) -> tuple[Any, Any]:
    """Return a dataset of (4, 3) that may grow, twice, so that one does not know what the other appends."""
    with open_file(f"{connection.url}{connection.domain}") as file:
        make = file.create_sparse if way == "sparse" else file.create_dataset
        make("x", (4, 3), "f4", chunks=(2, 3), maxshape=(None, 3))
    found = []
    for _ in range(2):
        opened = open_file(f"{connection.url}{connection.domain}")
        found.append(opened["x"])
    return found[0], found[1]


@pytest.mark.parametrize("way", ["sparse", "dense"])
def test_a_resize_shrinks_as_in_h5py_but_not_what_the_caller_does_not_know(
    connection: Connection, way: str
) -> None:
    seen, other = growing(connection, way)
    other[...] = np.ones((4, 3))
    with pytest.raises(HsparseError, match="omit erase=False"):
        seen.resize((2, 3), erase=False)
    seen.resize((2, 3))
    seen.resize(4, axis=0)
    assert np.asarray(seen.to_numpy(np.s_[:, 0])).tolist() == [1, 1, 0, 0]
    other.resize(9, axis=0)
    with pytest.raises(HsparseError, match="other clients have extended the dataset"):
        seen.resize((6, 3))  # which grows, as far as the caller knows
    assert other.refresh() == (9, 3)
    other.extend(1)
    with pytest.raises(Conflict):
        seen.resize((2, 3))  # of nine rows, as the caller knows by now
    assert other.refresh() == (10, 3)


def test_rows_are_followed(connection: Connection) -> None:
    for way in ("sparse", "dense"):
        with open_file(f"{connection.url}{connection.domain}") as file:
            file.get("x") and file.__delitem__("x")
        seen, other = growing(connection, way)
        rows = seen.follow(count=3)
        other.resize((9, 3))
        assert [next(rows).shape, next(rows).shape] == [(3, 3), (2, 3)]
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(next, rows)
            other.resize((10, 3))
            assert waiting.result(60).shape == (1, 3)
        other.resize((2, 3), erase=True)
        assert [block.shape[0] for block in seen.follow(0, timeout=0)] == [2]
        assert list(seen.follow(timeout=0.5)) == []


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_single_row_or_frame_is_appended(connection: Connection, rank: int) -> None:
    shape = (0, 4, 3)[:rank]
    x = make_growing(connection, shape)
    frame = np.arange(12.0).reshape(4, 3)[0 if rank < 3 else slice(None)]
    frame = frame[: shape[1]] if rank == 2 else frame
    frame = np.arange(4.0) if rank == 2 else np.float64(7) if rank == 1 else frame
    assert x.append(frame) == slice(0, 1)
    assert x.append(np.asarray(frame)[None], drop_fill=True) == slice(1, 2)
    assert x.append_region(frame) == slice(2, 3)
    if rank > 1:
        assert x.append(sparse.COO.from_numpy(frame)) == slice(3, 4)
    if rank == 3:
        assert x.append(sp.csr_array(frame)) == slice(4, 5)
    for row in x.to_numpy():
        np.testing.assert_array_equal(row, frame)
    with pytest.raises(ValueError, match="other dimensions"):
        x.append(np.zeros((1,) * (rank + 1)))


def make_growing(connection: Connection, shape: tuple[int, ...]) -> SparseDataset:
    limits = (None, *shape[1:])
    return SparseDataset.create(connection, "/grows", shape, "f8", (1, *shape[1:]), maxshape=limits)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_no_places_at_all(connection: Connection, rank: int) -> None:
    x = make_growing(connection, (0, 4, 3)[:rank])
    assert x.append([], [], count=2) == slice(0, 2)
    assert x.append(np.zeros((0, rank), int), np.zeros(0), count=1) == slice(2, 3)
    x.write([], [])
    x.erase_points([])
    assert x.read_points([]).shape == (0,)
    assert (x.shape[0], x.nnz) == (3, 0)
    with pytest.raises(IndexError):
        x.write(np.zeros((0, rank + 1), int), [])
    with pytest.raises(ValueError, match=r"value"):
        x.write([], [1.0])
