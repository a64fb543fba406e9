"""Sparse datasets of text, sequences and compounds with text: a dict of objects is the model."""

from __future__ import annotations

import itertools
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hsparse.cli.embedded_server import embedded_server
from hsparse.client.connection import Connection
from hsparse.client.errors import OutOfRange, WrongType
from hsparse.client.sources import vlen_elements
from hsparse.client.sparse_dataset import SparseDataset
from hsparse.config import load_settings
from hsparse.errors import HsparseError, TooLarge

NUMBERS = itertools.count()
SIDE = 9
PAIR = np.dtype([("n", "<i4"), ("label", object)])
DTYPES = {"text": str, "sequences": h5py.vlen_dtype(np.dtype("<i2")), "compound": PAIR}
VALUES = {
    "text": st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12),
    "sequences": st.lists(st.integers(-5, 5), max_size=4).map(lambda one: np.array(one, "<i2")),
    "compound": st.tuples(st.integers(0, 9), st.sampled_from(["", "ä", "long " * 9])),
}
PLACES = st.lists(st.tuples(*[st.integers(0, SIDE - 1)] * 2), min_size=1, max_size=6, unique=True)
KINDS = pytest.mark.parametrize("kind", DTYPES)


def make(connection: Connection, kind: str, **options: Any) -> SparseDataset:
    arguments: dict[str, Any] = {"shape": (SIDE, SIDE), "chunks": (4, 5), "maxshape": (None, SIDE)} | options
    return SparseDataset.create(connection, f"/v{next(NUMBERS)}", dtype=DTYPES[kind], **arguments)


def array_of(kind: str, values: list[Any]) -> Any:
    """Return values as one array, (n,)."""
    if kind == "compound":
        return np.array(values, PAIR)
    array = np.empty(len(values), object)
    array[:] = values
    return array


def plain(value: Any) -> Any:
    """Return an element in a form that compares."""
    if isinstance(value, np.void | tuple):
        return tuple(value)
    return value if isinstance(value, str) else list(value)


def check(dataset: SparseDataset, model: dict[tuple[int, int], Any]) -> None:
    places, values = dataset.read()
    found = dict(zip(map(tuple, places.tolist()), map(plain, values), strict=True))
    assert found == {place: plain(value) for place, value in model.items()}
    fill = plain(dataset.fillvalue)
    dense = dataset[...]
    assert dense.shape == dataset.shape
    for place in np.ndindex(*dataset.shape):
        assert plain(dense[place]) == found.get(place, fill)


@KINDS
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_it_is_a_dict_of_objects(connection: Connection, kind: str, data: st.DataObject) -> None:
    dataset, model = make(connection, kind), dict[tuple[int, int], Any]()
    for _ in range(data.draw(st.integers(1, 4))):
        change = data.draw(st.sampled_from(["write", "region", "erase", "append", "append all"]))
        places = [place for place in data.draw(PLACES) if place[0] < dataset.shape[0]]
        some = data.draw(st.lists(VALUES[kind], min_size=len(places), max_size=len(places)))
        if change == "write" and places:
            dataset.write(places, array_of(kind, some))
            model |= dict(zip(places, some, strict=True))
        elif change == "region":
            value = data.draw(VALUES[kind])
            whole = array_of(kind, [value] * 6).reshape(2, 3)
            dataset[1:3, 2:5] = whole
            model |= {(row, column): value for row in (1, 2) for column in (2, 3, 4)}
        elif change == "erase" and places:
            dataset.erase_points(places)
            model = {place: value for place, value in model.items() if place not in places}
        elif change == "append":
            rows = dataset.append(places, array_of(kind, some), count=SIDE)
            model |= {
                (rows.start + row, column): one for (row, column), one in zip(places, some, strict=True)
            }
        elif change == "append all":
            value = data.draw(VALUES[kind])
            row = dataset.append_region(array_of(kind, [value] * SIDE).reshape(1, SIDE)).start
            model |= {(row, column): value for column in range(SIDE)}
    check(dataset, model)


@KINDS
def test_elements_in_other_forms(connection: Connection, kind: str) -> None:
    values = {"text": ["a", "ß" * 40], "sequences": [[1, 2, 3], []], "compound": [(1, "x"), (2, "")]}[kind]
    dataset = make(connection, kind)
    dataset.write([[0, 1], [8, 8]], array_of(kind, values))
    assert [plain(one) for one in dataset.read_points([[8, 8], [0, 1], [5, 5]])] == [
        *map(plain, reversed(values)),
        plain(dataset.fillvalue),
    ]
    assert plain(dataset[8, 8]) == plain(values[1])
    assert dataset.defined().tolist() == [[0, 1], [8, 8]]
    assert (dataset.count(), dataset.nnz) == (2, 2)
    if kind == "compound":
        with pytest.raises(WrongType, match="to_numpy"):
            dataset.to_arrow()
        return
    assert dataset.to_arrow().column("value").to_pylist() == values


def test_lists_are_sequences(connection: Connection) -> None:
    dataset = make(connection, "sequences", shape=(4,), chunks=(2,), maxshape=None)
    dataset[0] = [1, 2, 3]
    dataset[1:3] = [[4], [5, 6]]
    dataset.write([[3]], [[7, 8]])
    assert [one.tolist() for one in dataset[:]] == [[1, 2, 3], [4], [5, 6], [7, 8]]
    with pytest.raises(WrongType, match="do not fit"):
        dataset[0] = 5
    with pytest.raises(HsparseError, match="do not fit"):
        dataset[0] = [1, 70_000]


def test_what_is_no_text_is_refused(connection: Connection) -> None:
    dataset = make(connection, "text")
    with pytest.raises(WrongType, match="5 is no text; give str"):
        dataset[0, 0] = 5
    with pytest.raises(OutOfRange):
        dataset.write([[99, 0]], ["x"])
    assert dataset.nnz == 0


@pytest.mark.parametrize("operation", ["min", "max", "sum", "mean", "var"])
def test_statistics_are_refused_with_the_reason(connection: Connection, operation: str) -> None:
    dataset = make(connection, "text")
    dataset[0, 0] = "x"
    with pytest.raises(HsparseError, match="variable"):
        getattr(dataset, operation)()


def test_lazy_arrays_are_refused_with_the_reason(connection: Connection) -> None:
    with pytest.raises(HsparseError, match="cannot be read lazily"):
        make(connection, "text").to_dask()


def test_order_is_refused_with_the_reason(connection: Connection) -> None:
    dataset = make(connection, "text")
    with pytest.raises(HsparseError, match="no fixed size"):
        connection.json("GET", f"/datasets/{dataset.id}/value", query="value == 'x'", order_by="value")


@KINDS
def test_a_chunk_is_stored_as_it_was_encoded(connection: Connection, kind: str) -> None:
    values = {"text": ["a", "ß" * 40], "sequences": [[1, 2, 3], []], "compound": [(1, "x"), (2, "")]}[kind]
    one, other = (make(connection, kind) for _ in range(2))
    one.write([[0, 1], [3, 4]], array_of(kind, values))
    path = f"/datasets/{one.id}/chunks/0_0"
    sections = connection.json("GET", path)["sections"]
    assert len(sections) == 3
    sizes = {
        "section_size": ",".join(str(section["size"]) for section in sections),
        "section_unfiltered_size": ",".join(str(section["unfiltered_size"]) for section in sections),
    }
    data = connection.binary("GET", f"{path}/value")
    connection.json("PUT", f"/datasets/{other.id}/chunks/0_0/value", data, **sizes)
    check(other, dict(zip([(0, 1), (3, 4)], values, strict=True)))


def test_a_selection_that_one_answer_has_no_room_for(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    halves: list[int] = []

    def counted(selection: Any) -> Any:
        halves.append(selection.size)
        return iterate(selection)

    iterate = vlen_elements._halves
    monkeypatch.setattr(vlen_elements, "_halves", counted)
    settings = load_settings(root=tmp_path, port=0, fsync=False, max_request_size=1 << 20)
    with embedded_server(settings) as url, Connection(url, "/t.h5") as connection:
        connection.json("PUT", "/", {})
        dataset = SparseDataset.create(connection, "/x", (64, 64), str, (16, 16))
        texts = np.array([[f"{number:05}" * 100 for number in range(64)]] * 64, object)
        dataset[...] = texts
        places, values = dataset.read()
        assert halves
        assert (texts[tuple(places.T)] == values).all()
        assert (dataset.read_dense() == texts).all()


def test_an_element_that_has_no_room_is_named(connection: Connection) -> None:
    dataset = make(connection, "text")
    with pytest.raises(TooLarge):
        dataset[0, 0] = "x" * (200 << 20)
