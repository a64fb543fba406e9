"""Datasets that grow while they are open: their end, rows that come, appends of single rows, and of nothing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import sparse

import hsparse
from hsparse.client.connection import Connection
from hsparse.client.sparse_dataset import SparseDataset
from hsparse.errors import Conflict, HsparseError


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
    with hsparse.open(f"{connection.url}{connection.domain}") as file:
        assert isinstance(file, hsparse.File)
        make = file.create_sparse if way == "sparse" else file.create_dataset
        make("x", (4, 3), "f4", chunks=(2, 3), maxshape=(None, 3))
    found = []
    for _ in range(2):
        opened = hsparse.open(f"{connection.url}{connection.domain}")
        assert isinstance(opened, hsparse.File)
        found.append(opened["x"])
    return found[0], found[1]


@pytest.mark.parametrize("way", ["sparse", "dense"])
def test_a_resize_shrinks_as_in_h5py_but_not_what_the_caller_does_not_know(
    connection: Connection, way: str
) -> None:
    seen, other = growing(connection, way)
    other[...] = np.ones((4, 3))
    with pytest.raises(HsparseError, match="leave erase=False out"):
        seen.resize((2, 3), erase=False)
    seen.resize((2, 3))
    seen.resize(4, axis=0)
    assert np.asarray(seen.to_numpy(np.s_[:, 0])).tolist() == [1, 1, 0, 0]
    other.resize(9, axis=0)
    with pytest.raises(HsparseError, match="other clients have extended it"):
        seen.resize((6, 3))  # which grows, as far as the caller knows
    assert other.refresh() == (9, 3)
    other.extend(1)
    with pytest.raises(Conflict):
        seen.resize((2, 3))  # of nine rows, as the caller knows by now
    assert other.refresh() == (10, 3)


def test_rows_are_followed(connection: Connection) -> None:
    for way in ("sparse", "dense"):
        with hsparse.open(f"{connection.url}{connection.domain}") as file:
            assert isinstance(file, hsparse.File)
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
    with pytest.raises(ValueError, match="other lengths"):
        x.append(np.zeros((1,) * (rank + 1)))


def test_a_frame_is_appended_along_any_axis(connection: Connection) -> None:
    x = SparseDataset.create(connection, "/axis", (4, 0, 3), "f8", (4, 1, 3), maxshape=(4, None, 3))
    frame = np.arange(12.0).reshape(4, 3)
    assert x.append(frame, axis=1) == slice(0, 1)
    assert x.append(sp.csr_array(frame), axis=-2) == slice(1, 2)
    np.testing.assert_array_equal(x.to_numpy(), np.stack([frame, frame], 1))


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
