"""Values of many datasets at once, beside numpy."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hsparse.client.connection import Connection
from hsparse.client.errors import InvalidValue
from hsparse.client.group import Group
from hsparse.client.sources import value_batch
from hsparse.client.sources.elements import Elements
from hsparse.client.sources.value_batch import Axis, DatasetRead, read_datasets
from hsparse.client.sparse.compressed_rows import CompressedRows
from hsparse.client.sparse_dataset import SparseDataset
from hsparse.errors import Corrupt
from tests.client.access_ways import open_file

Stored = tuple[Group, dict[str, np.ndarray[Any, Any]]]
SHAPE = (7, 5, 4)
TEXTS = np.array([f"té{n}" * (n % 3) for n in range(35)], object).reshape(7, 5)


@pytest.fixture(scope="module")
def stored(url: str) -> Stored:
    """A domain with dense datasets of several types and ranks, and a sparse one."""
    file = open_file(f"{url}/values-of-many.h5", "w")
    rng = np.random.default_rng(1)
    arrays: dict[str, np.ndarray[Any, Any]] = {
        "cube": rng.random(SHAPE),
        "matrix": rng.integers(0, 99, SHAPE[:2]).astype("i2"),
        "texts": TEXTS,
        "flags": rng.random(7) < 0.5,
        "scalar": np.array(2.5),
        "none": np.zeros((0, 3)),
    }
    for name, array in arrays.items():
        file.create_dataset(name, data=array)
    arrays["sparse"] = np.where(rng.random((7, 5)) < 0.4, rng.integers(1, 9, (7, 5)), 0).astype("f4")
    places = np.argwhere(arrays["sparse"])
    file.create_sparse("sparse", (7, 5), "f4", chunks=(3, 2)).write(places, arrays["sparse"][tuple(places.T)])
    return file, arrays


@st.composite
def axes_of(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[Axis, ...]:
    lists = [
        st.none() | st.sets(st.integers(0, length - 1)).map(lambda one: np.array(sorted(one), np.intp))
        for length in shape
    ]
    return draw(st.integers(0, len(shape)).flatmap(lambda rank: st.tuples(*lists[:rank])))


def taken(array: np.ndarray[Any, Any], axes: tuple[Axis, ...]) -> np.ndarray[Any, Any]:
    for dim, axis in enumerate(axes):
        array = array if axis is None else np.take(array, axis, dim)
    return array


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_products_of_indices(stored: Stored, data: st.DataObject) -> None:
    group, arrays = stored
    records = group.records()
    names = data.draw(st.lists(st.sampled_from(sorted(arrays)), min_size=1, max_size=5))
    reads = []
    for name in names:
        shape = arrays[name].shape
        axes = data.draw(axes_of(shape)) if 0 not in shape else ()
        reads.append(DatasetRead(records[name], axes, sparse=name == "sparse"))
    for name, read, found in zip(names, reads, read_datasets(group.connection, reads), strict=True):
        wanted = taken(arrays[name], read.axes)
        if isinstance(found, Elements):
            dense = np.zeros(read.shape, "f4")
            dense[found.columns] = found.values
            found = dense
            assert len(found.nonzero()[0]) == np.count_nonzero(wanted)
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        assert found.tolist() == wanted.tolist()
        assert found.flags.writeable


def test_large_datasets_have_requests_of_their_own(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    """Side by side: each waits until all are sent."""
    group, arrays = stored
    monkeypatch.setattr("hsparse.client.sources.value_batch.BATCH_BYTES", 100)
    records = group.records()
    names = ["cube", "flags", "scalar", "texts", "matrix"]
    sent: list[int] = []
    ask = value_batch._ask
    barrier = threading.Barrier(4, timeout=30)

    def watched(connection: Connection, groups: Any, places: str | None) -> bytes:
        sent.append(sum(len(one["ids"]) for one in groups))
        barrier.wait()
        return ask(connection, groups, places)

    monkeypatch.setattr(value_batch, "_ask", watched)
    found = read_datasets(group.connection, [DatasetRead(records[name]) for name in names])
    assert sorted(sent) == [1, 1, 1, 2]
    for name, values in zip(names, found, strict=True):
        assert not isinstance(values, Elements)
        assert values.tolist() == arrays[name].tolist()


def test_values_are_those_of_the_known_extent_or_an_error(connection: Connection) -> None:
    group = Group(connection, {"id": connection.json("GET", "/")["root"]}, "/")
    dataset = group.create_dataset("x", data=np.arange(5.0), maxshape=(None,))
    records = group.records()
    dataset.extend(2)
    (found,) = read_datasets(connection, [DatasetRead(records["x"])])
    assert isinstance(found, np.ndarray)
    assert found.tolist() == [0, 1, 2, 3, 4]
    dataset.resize((3,))
    with pytest.raises(InvalidValue, match="beyond the extent 3"):
        read_datasets(connection, [DatasetRead(records["x"])])


def test_elements_beyond_the_known_extent_are_not_among_them(connection: Connection) -> None:
    mine = SparseDataset.create(connection, "/grown", (2, 3), "i4", (2, 3), maxshape=(None, 3))
    SparseDataset.open(connection, "/grown").append(np.ones((1, 3), np.int32))
    (found,) = read_datasets(connection, [DatasetRead(mine.record, sparse=True)])
    assert isinstance(found, Elements)
    assert not len(found.values)


def test_an_answer_that_is_cut_short_is_refused(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    group, _ = stored
    records = group.records()
    ask = value_batch._ask
    monkeypatch.setattr(value_batch, "_ask", lambda *args: ask(*args)[:-12])
    with pytest.raises(Corrupt, match="ends too early"):
        read_datasets(group.connection, [DatasetRead(records["flags"]), DatasetRead(records["cube"])])


def test_large_values_are_read_past_the_server(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    """The map and the chunks of each large one, if the way is open; the others by one request."""
    group, arrays = stored
    monkeypatch.setattr("hsparse.client.sources.value_batch.LARGE_BYTES", 50)
    records = group.records()
    sent: list[int] = []
    ask = value_batch._ask

    def watched(connection: Connection, groups: Any, places: str | None) -> bytes:
        sent.append(sum(len(one["ids"]) for one in groups))
        return ask(connection, groups, places)

    monkeypatch.setattr(value_batch, "_ask", watched)
    axes = (np.array([0, 2, 6]), None)
    reads = [DatasetRead(records[name]) for name in ("cube", "flags", "texts")]
    reads.append(DatasetRead(records["sparse"], axes, sparse=True))
    monkeypatch.setattr(group.connection, "direct", True)
    cube, flags, texts, rows = read_datasets(group.connection, reads)
    assert sent == [2], "the flags and texts"
    for found, name in ((cube, "cube"), (flags, "flags"), (texts, "texts")):
        assert isinstance(found, np.ndarray)
        assert found.flags.writeable
        assert found.tolist() == arrays[name].tolist()
    assert isinstance(rows, CompressedRows)
    assert rows.to_scipy().toarray().tolist() == arrays["sparse"][[0, 2, 6]].tolist()
