"""Elements from a server: each kind of selection as it is sent, and answers that are too large."""

from __future__ import annotations

import numpy as np
import pytest

from hsparse.client.connection import Connection
from hsparse.client.errors import InvalidValue
from hsparse.client.http_elements import SMALL, HttpElements, halves
from hsparse.client.selection_request import FEW_POINTS, LONG_SELECT, SelectionRequest
from hsparse.client.sparse_dataset import SparseDataset
from hsparse.errors import TooLarge
from hsparse.format.selections.selection import Boxes, Orthogonal, Points, Selection, Span, gather

EXTENT = (40, 30)
SPREAD = np.array([0, 1, 5, 39], np.uint64)
MANY = np.stack([np.arange(1200) // 30, np.arange(1200) % 30], 1)[::3]
SELECTIONS: dict[str, Selection] = {
    "all": Orthogonal.all(EXTENT),
    "none": Orthogonal.none(EXTENT),
    "box": Orthogonal.box(EXTENT, (3, 4), (30, 5)),
    "steps": Orthogonal(EXTENT, (Span(1, 3, 12), Span(0, 7, 4, 2))),
    "list": Orthogonal(EXTENT, (SPREAD, Span.range(2, 9))),
    "product": Orthogonal(EXTENT, (SPREAD, np.array([3, 4, 29], np.uint64))),
    "point": Points(EXTENT, np.array([[3, 4]])),
    "points": Points(EXTENT, MANY),
    "boxes": Boxes(EXTENT, np.array([[0, 0], [3, 4]]), np.array([[1, 2], [5, 6]])),
}


@pytest.fixture
def dataset(connection: Connection) -> SparseDataset:
    made = SparseDataset.create(connection, "/x", EXTENT, "i4", (16, 16), max_shape=(None, None))
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


@pytest.mark.parametrize("name", sorted(set(SELECTIONS) - {"none", "point"}))
def test_halves_are_all_of_a_selection(name: str) -> None:
    selection = SELECTIONS[name]
    parts = halves(selection)
    assert all(0 < part.size < selection.size for part in parts)
    offsets = np.concatenate([part.offsets() for part in parts])
    assert np.array_equal(np.sort(offsets), np.sort(selection.offsets()))


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


def test_what_is_too_large_is_divided(dataset: SparseDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    extent = (1000, 1000)
    large = SparseDataset.create(dataset.connection, "/large", extent, "i4", (100, 100))
    diagonal = np.arange(1000)
    large.write(np.stack([diagonal, diagonal], 1), diagonal)
    asked: list[int] = []
    limit = 3000
    send = Connection.binary

    def limited(self: Connection, method: str, path: str, body: object = None, **params: object) -> bytes:
        data = send(self, method, path, body, **params)  # type: ignore[arg-type]
        asked.append(len(data))
        if len(data) > limit:
            raise TooLarge(f"The answer has more than {limit} bytes.")
        return data

    monkeypatch.setattr(Connection, "binary", limited)
    source = HttpElements(large.connection, large.id, large.dtype)
    found = source.defined_elements(Orthogonal.all(extent))
    assert np.array_equal(np.sort(found.values), diagonal)
    assert np.array_equal(found.columns[0], found.values)
    assert len(asked) > 3
    limit, asked[:] = 10, []
    with pytest.raises(TooLarge):
        source.defined_elements(Orthogonal.box(extent, (0, 0), (SMALL // 1000, 1000)))
    assert len(asked) == 1, "a small selection is not divided"


def test_an_extent_that_has_changed_is_noticed(dataset: SparseDataset) -> None:
    source = HttpElements(dataset.connection, dataset.id, dataset.dtype)
    SparseDataset.open(dataset.connection, dataset.id).extend(1)
    for read in (source.defined_elements, source.dense_values):
        with pytest.raises(InvalidValue, match=r"is not \[40, 30\] any more"):
            read(Orthogonal.all(EXTENT))
    assert dataset.to_numpy().shape == (41, 30)
    assert dataset[...].shape == (41, 30)
