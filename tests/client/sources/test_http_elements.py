"""Elements from a server: each kind of selection as it is sent, and answers that are too large."""

from __future__ import annotations

import numpy as np
import pytest

from hsparse.client.connection import Connection
from hsparse.client.errors import InvalidValue, Unreachable
from hsparse.client.sources.http_elements import ARROW, HttpElements
from hsparse.client.sources.selection_request import FEW_POINTS, LONG_SELECT, SelectionRequest
from hsparse.client.sparse_dataset import SparseDataset
from hsparse.errors import Corrupt
from hsparse.format.selections.points import Boxes, Orthogonal, Points, Selection, StridedSpan, gather
from hsparse.sn.values.media.arrow import ArrowWriter
from tests.client.scripted_server import answer, scripted_server

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
        assert found.values.dtype == values.dtype
        assert found.columns[0].dtype == np.uint32


def stream(rank: int, dtype: str, places: list[int]) -> bytes:
    writer = ArrowWriter((10**6,) * rank, np.dtype(dtype))
    return writer.batch([np.array(places)] * rank, np.zeros(len(places), dtype)) + writer.end()


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (stream(2, "i4", [1, 2])[:-8], "its end is missing"),
        (stream(2, "i4", [1, 2])[:-20], "not all there"),
        (stream(1, "i4", [1, 2]), "dim_1"),
        (stream(2, "i8", [1, 2]), "another type"),
        (b"nothing", "not a complete Arrow stream"),
    ],
)
def test_a_damaged_stream_is_refused(data: bytes, sentence: str) -> None:
    with scripted_server([answer(data, media=ARROW)]) as script, Connection(script.url) as connection:
        source = HttpElements(connection, "d-1", np.dtype("i4"))
        with pytest.raises(Corrupt, match=f"about d-1 is damaged.*{sentence}"):
            source.defined_elements(Orthogonal.all((1000, 1000)))


def test_a_stream_that_breaks_is_no_short_result() -> None:
    data = stream(2, "i4", [1, 2])
    with (
        scripted_server([answer(data, media=ARROW)[:-30]]) as script,
        Connection(script.url) as connection,
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
