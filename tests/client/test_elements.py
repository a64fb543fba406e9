"""Elements: columns, room for a stream of them, and what a server sends."""

from __future__ import annotations

import io
from http.client import IncompleteRead
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hsparse.client.connection import Connection
from hsparse.client.errors import InvalidValue, Unreachable
from hsparse.client.http.answers import taking
from hsparse.client.sources import element_room
from hsparse.client.sources.element_room import ElementRoom
from hsparse.client.sources.elements import Elements
from hsparse.client.sources.http_elements import ARROW, HttpElements
from hsparse.client.sources.selection_request import FEW_POINTS, LONG_SELECT, SelectionRequest
from hsparse.client.sparse_dataset import SparseDataset
from hsparse.errors import Corrupt
from hsparse.format.arrow_stream import stream_batches
from hsparse.format.selections.points import Boxes, Orthogonal, Points, Selection, StridedSpan, gather
from hsparse.sn.values.media.arrow import ArrowWriter
from tests.client.scripted_server import answer, scripted


def test_coords_are_rows_of_the_columns() -> None:
    elements = Elements((np.array([1, 2], np.uint16), np.array([30, 40], np.uint8)), np.array([0.5, 7.0]))
    assert (len(elements), elements.coords().tolist()) == (2, [[1, 30], [2, 40]])
    assert elements.coords().dtype == np.uint64


def test_parts_are_joined_in_their_order() -> None:
    parts = [
        Elements((np.array([1], np.uint16),), np.array([3])),
        Elements((np.array([70_000], np.uint32),), np.array([4])),
        Elements((np.array([], np.uint8),), np.array([], np.int64)),
    ]
    joined = Elements.concatenate(parts)
    assert (joined.columns[0].tolist(), joined.values.tolist()) == ([1, 70_000], [3, 4])
    assert Elements.concatenate(parts[:1]) is parts[0]


def test_joined_values_keep_their_byte_order() -> None:
    part = Elements((np.array([1], np.uint16),), np.array([3], ">f8"))
    assert Elements.concatenate([part, part]).values.dtype == np.dtype(">f8")


PLENTY = 1 << 30


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(element_room, "FIRST_BATCHES_BYTES", 100)


def sent(lengths: list[int], rank: int, dtype: Any) -> tuple[bytes, dict[str, NDArray[Any]]]:
    """Return a stream of batches of these lengths, and the columns that it has."""
    writer = ArrowWriter((2**32, 2**40, 7)[:rank], np.dtype(dtype))
    data, at = b"", 0
    parts: list[dict[str, NDArray[Any]]] = []
    for length in lengths:
        places = [np.arange(at, at + length, dtype=kind) for kind in ("u4", "u8", "u4")[:rank]]
        values = np.arange(at, at + length).astype("u1" if np.dtype(dtype).itemsize == 1 else "<u8")
        values = np.resize(values.view("u1"), length * np.dtype(dtype).itemsize).view(dtype)
        data += b"".join(writer.parts(places, values))
        parts.append({f"dim_{dim}": place for dim, place in enumerate(places)} | {"value": values})
        at += length
    wanted = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return data + writer.end(), wanted


def received(data: bytes, most: int, most_bytes: int = PLENTY) -> tuple[ElementRoom, dict[str, NDArray[Any]]]:
    answer: Any = io.BytesIO(data)
    room = ElementRoom(answer, most, most_bytes)
    for length, columns in stream_batches(taking(answer), room):
        room.add(length, columns)
    assert not answer.read()
    return room, room.result()


def check(found: dict[str, NDArray[Any]], wanted: dict[str, NDArray[Any]]) -> None:
    assert found.keys() == wanted.keys()
    for name, column in wanted.items():
        assert found[name].tobytes() == column.tobytes()


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=8),
    st.integers(1, 3),
    st.sampled_from(["u1", "<f4", "<i8", "S3", ">f4"]),
    st.integers(0, 50),
)
def test_what_is_sent_is_received(lengths: list[int], rank: int, dtype: str, missing: int) -> None:
    data, wanted = sent(lengths, rank, dtype)
    total = sum(lengths)
    room, found = received(data, max(1, total - missing))
    check(found, wanted)
    assert room.count == total


def test_later_batches_stay_where_they_are_received() -> None:
    data, wanted = sent([30, 30, 5, 40], 2, "<i4")
    answer: Any = io.BytesIO(data)
    room = ElementRoom(answer, 1000, PLENTY)
    placed = []
    for length, columns in stream_batches(taking(answer), room):
        room.add(length, columns)
        placed.append(columns["value"].values)
    found = room.result()
    check(found, wanted)
    assert [np.shares_memory(one, found["value"]) for one in placed] == [False, True, True, True]
    assert found["value"].base is None, "no space beyond it is held"


@pytest.mark.parametrize("most_bytes", [10, 1 << 62])
def test_without_space_batches_are_joined(most_bytes: int) -> None:
    data, wanted = sent([30, 30, 5, 40], 2, "<i4")
    check(received(data, 2**60, most_bytes)[1], wanted)


def test_batches_of_other_writers_are_read_as_they_are() -> None:
    schema = pa.schema([("dim_0", pa.uint32()), ("value", pa.float64())])
    batches = [
        pa.record_batch(
            {"dim_0": pa.array([1, 2] * 20, pa.uint32()), "value": [0.5, 1.5] * 20}, schema=schema
        ),
        pa.record_batch({"dim_0": pa.array([3, None], pa.uint32()), "value": [2.5, 3.5]}, schema=schema),
        pa.record_batch({"dim_0": pa.array([4], pa.uint32()), "value": [4.5]}, schema=schema),
    ]
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    _, found = received(sink.getvalue(), 1000)
    assert found["value"].tolist() == [0.5, 1.5] * 20 + [2.5, 3.5, 4.5]


@pytest.mark.parametrize("cut", [9, 30, 200, 400])
def test_an_answer_that_ends_early_is_an_error(cut: int) -> None:
    data, _ = sent([30, 30, 30], 2, "<i8")
    with pytest.raises((Corrupt, IncompleteRead), match=r"are there|marker is missing|IncompleteRead"):
        received(data[:-cut], 1000)


EXTENT = (40, 30)
SPREAD = np.array([0, 1, 5, 39], np.uint64)
MANY = np.stack([np.arange(1200) // 30, np.arange(1200) % 30], 1)[::3]
SELECTIONS: dict[str, Selection] = {
    "all": Orthogonal.all(EXTENT),
    "none": Orthogonal.none(EXTENT),
    "box": Orthogonal.box(EXTENT, (3, 4), (30, 5)),
    "steps": Orthogonal(EXTENT, (StridedSpan(1, 3, 12), StridedSpan(0, 7, 4, 2))),
    "list": Orthogonal(EXTENT, (SPREAD, StridedSpan.range(2, 9))),
    "product": Orthogonal(EXTENT, (SPREAD, np.array([3, 4, 29], np.uint64))),
    "point": Points(EXTENT, np.array([[3, 4]])),
    "points": Points(EXTENT, MANY),
    "boxes": Boxes(EXTENT, np.array([[0, 0], [3, 4]]), np.array([[1, 2], [5, 6]])),
}


@pytest.fixture
def dataset(connection: Connection) -> SparseDataset:
    made = SparseDataset.create(connection, "/x", EXTENT, "i4", (16, 16), maxshape=(None, None))
    made.write(MANY, np.arange(len(MANY)) + 1)
    return made


@pytest.mark.parametrize("name", SELECTIONS)
def test_selections_are_read_counted_and_erased(dataset: SparseDataset, name: str) -> None:
    selection = SELECTIONS[name]
    source = HttpElements(dataset.connection, dataset.id, dataset.dtype)
    whole = np.zeros(EXTENT, np.int32)
    whole[tuple(MANY.T)] = np.arange(len(MANY)) + 1
    assert np.array_equal(source.dense_values(selection), gather(whole, selection))
    elements = source.defined_elements(selection)
    wanted = np.zeros(EXTENT, np.int32)
    wanted.reshape(-1)[selection.offsets().astype(int)] = gather(whole, selection).reshape(-1)
    found = np.zeros(EXTENT, np.int32)
    found[tuple(column.astype(int) for column in elements.columns)] = elements.values
    assert np.array_equal(found, wanted)
    assert dataset.count(selection) == len(elements) == np.count_nonzero(wanted)
    assert sorted(map(tuple, dataset.defined(selection).tolist())) == list(
        zip(*np.nonzero(wanted), strict=True)
    )
    dataset.erase(selection)
    assert dataset.count() == len(MANY) - len(elements)


def test_short_selections_are_in_the_url_and_long_ones_in_the_body() -> None:
    assert SelectionRequest.of(SELECTIONS["all"]) == SelectionRequest()
    assert SelectionRequest.of(SELECTIONS["box"]) == SelectionRequest("[3:30,4:5]")
    few = np.sort(np.random.default_rng(0).permutation(10**6)[:400]).astype(np.uint64)
    for some, is_long in ((few[:100], False), (few, True)):
        request = SelectionRequest.of(Orthogonal((10**6,), (some,)))
        assert (request.body is not None) == is_long
        assert is_long or len(request.select or "") <= LONG_SELECT
    body = SelectionRequest.of(SELECTIONS["product"]).body
    assert body == {"select": "[[0,1,5,39],[3,4,29]]", "orthogonal": True}
    assert len(MANY) > FEW_POINTS


def test_a_large_answer_is_one_stream(connection: Connection) -> None:
    extent = (3000, 3000)
    for dtype in ("i2", ">f8", "?", "S3", [("a", "u1"), ("b", ">i4")]):
        made = SparseDataset.create(connection, f"/large/{dtype}", extent, dtype, (500, 500))
        source = HttpElements(connection, made.id, made.dtype)
        whole = Orthogonal.all(extent)
        assert len(source.defined_elements(whole)) == 0
        places = np.arange(3000)
        values = np.zeros(3000, dtype)
        values.view(np.uint8)[:] = np.arange(values.nbytes) % 2
        made.write(np.stack([places, places[::-1]], 1), values)
        found = source.defined_elements(whole)
        order = np.argsort(found.columns[0])
        assert np.array_equal(found.columns[0][order], places)
        assert np.array_equal(found.columns[1][order], places[::-1])
        assert np.array_equal(found.values[order], values)
        assert (found.values.dtype, found.columns[0].dtype) == (values.dtype, np.uint32)


def stream(rank: int, dtype: str, places: list[int]) -> bytes:
    writer = ArrowWriter((10**6,) * rank, np.dtype(dtype))
    return writer.batch([np.array(places)] * rank, np.zeros(len(places), dtype)) + writer.end()


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (stream(2, "i4", [1, 2])[:-8], "its end-of-stream marker is missing"),
        (stream(2, "i4", [1, 2])[:-20], "bytes of a message are there"),
        (stream(1, "i4", [1, 2]), "dim_1"),
        (stream(2, "i8", [1, 2]), "another type"),
        (b"nothing", "not a complete Arrow stream"),
    ],
)
def test_a_damaged_stream_is_refused(data: bytes, sentence: str) -> None:
    with scripted([answer(data, media=ARROW)]) as (_, connection):
        source = HttpElements(connection, "d-1", np.dtype("i4"))
        with pytest.raises(Corrupt, match=f"about d-1 is damaged.*{sentence}"):
            source.defined_elements(Orthogonal.all((1000, 1000)))


def test_a_stream_that_breaks_is_no_short_result() -> None:
    data = stream(2, "i4", [1, 2])
    with (
        scripted([answer(data, media=ARROW)[:-30]]) as (_, connection),
        pytest.raises((Unreachable, Corrupt)),
    ):
        HttpElements(connection, "d-1", np.dtype("i4")).defined_elements(Orthogonal.all((1000, 1000)))


def test_an_extent_that_has_changed_is_noticed(dataset: SparseDataset) -> None:
    source = HttpElements(dataset.connection, dataset.id, dataset.dtype)
    SparseDataset.open(dataset.connection, dataset.id).append([[0, 3]], [7], count=1)
    for read in (source.defined_elements, source.dense_values):
        with pytest.raises(InvalidValue, match=r"is not \[40, 30\] any more"):
            read(Orthogonal.all(EXTENT))
    assert dataset[...].shape == (41, 30)
