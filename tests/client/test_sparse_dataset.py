from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hsparse.client.connection import Connection
from hsparse.client.sparse_dataset import SparseDataset
from hsparse.errors import BadRequest, Conflict, Corrupt, NotFound, TooLarge
from hsparse.format.selections.orthogonal import Orthogonal
from hsparse.format.selections.selection import Points

NUMBERS = itertools.count()
SIDE = 12
Elements = dict[tuple[int, int], int]


@pytest.fixture
def dataset(connection: Connection) -> SparseDataset:
    return make(connection)


def make(connection: Connection, **options: Any) -> SparseDataset:
    arguments: dict[str, Any] = {"shape": (SIDE, SIDE), "dtype": np.int32, "chunk": (5, 4)}
    arguments |= {"max_shape": (None, None)} | options
    return SparseDataset.create(connection, f"/deep/in/{next(NUMBERS)}", **arguments)


def elements(coords: np.ndarray, values: np.ndarray) -> Elements:
    assert len(coords) == len(values) == len(np.unique(coords, axis=0))
    return dict(zip(map(tuple, coords.tolist()), values.tolist(), strict=True))


indices = st.integers(0, SIDE - 1)
places = st.lists(st.tuples(indices, indices), min_size=1, max_size=8)
boxes = st.tuples(*(st.tuples(indices, indices).map(sorted) for _ in range(2)))
values = st.integers(-(2**31), 2**31 - 1)
changes = st.one_of(
    st.tuples(st.just("write"), places, values),
    st.tuples(st.just("write_region"), boxes, values),
    st.tuples(st.just("erase_points"), places),
    st.tuples(st.just("erase"), boxes),
    st.tuples(st.just("resize"), st.tuples(st.integers(1, SIDE), st.integers(1, SIDE))),
)


def apply(dataset: SparseDataset, model: Elements, change: tuple[Any, ...]) -> Elements:
    """Do a change to the dataset and return what the model has become."""
    name, where, *rest = change
    if name in ("write", "erase_points"):
        inside = [place for place in where if all(np.less(place, dataset.shape))]
        coords = np.array(inside, np.uint64).reshape(-1, 2)
        if name == "erase_points":
            dataset.erase_points(coords)
            return {place: value for place, value in model.items() if place not in inside}
        column = (np.arange(len(inside)) ^ rest[0]).astype(np.int32)
        dataset.write(coords, column)
        return model | dict(zip(inside, column.tolist(), strict=True))
    if name == "resize":
        dataset.resize(where)
        return {place: value for place, value in model.items() if all(np.less(place, where))}
    (top, bottom), (left, right) = [
        (a, min(b + 1, n)) for (a, b), n in zip(where, dataset.shape, strict=True)
    ]
    if top > bottom or left > right:
        return model
    covered = [(row, column) for row in range(top, bottom) for column in range(left, right)]
    select = f"[{top}:{bottom},{left}:{right}]"
    if name == "erase":
        dataset.erase(select)
        return {place: value for place, value in model.items() if place not in covered}
    array = (np.arange(len(covered)) ^ rest[0]).astype(np.int32)
    dataset.write_region(select, array.reshape(bottom - top, right - left))
    return model | dict(zip(covered, array.tolist(), strict=True))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(script=st.lists(changes, min_size=1, max_size=6), box=boxes)
def test_it_is_a_dict_of_elements(connection: Connection, script: list[tuple[Any, ...]], box: Any) -> None:
    dataset = make(connection, fill_value=7)
    model: Elements = {}
    for change in script:
        model = apply(dataset, model, change)
    assert elements(*dataset.read()) == model
    dense = np.full(dataset.shape, 7, np.int32)
    for place, value in model.items():
        dense[place] = value
    assert np.array_equal(dataset.read_dense(), dense)
    (top, bottom), (left, right) = [
        (min(a, n), min(b, n)) for (a, b), n in zip(box, dataset.shape, strict=True)
    ]
    select = f"[{top}:{bottom},{left}:{right}]"
    inside = {p: v for p, v in model.items() if top <= p[0] < bottom and left <= p[1] < right}
    assert dataset.count(select) == len(inside)
    assert {tuple(place) for place in dataset.defined(select).tolist()} == set(inside)
    assert elements(*dataset.read(select)) == inside
    assert np.array_equal(dataset.read_dense(select), dense[top:bottom, left:right])


def test_a_new_dataset_is_described_and_found(connection: Connection) -> None:
    item = {"type": "H5T_STD_I8LE", "shape": [2], "value": [1, 2]}
    dtype = np.dtype([("a", ">f4"), ("b", "S3"), ("c", "i2", (2,))])
    filters = [{"class": "H5Z_FILTER_DEFLATE", "id": 1, "level": 1, "section": "H5_SECTION_FIXED"}]
    made = make(connection, dtype=dtype, filters=filters, attributes={"x": item}, max_shape=(SIDE, None))
    record = connection.json("GET", f"/datasets/{made.id}")
    assert record["shape"]["maxdims"] == [SIDE, "H5S_UNLIMITED"]
    assert connection.json("GET", f"/datasets/{made.id}/attributes/x")["value"] == [1, 2]
    assert record["creationProperties"]["filters"][0]["section"] == "H5_SECTION_FIXED"
    for name in (made.id, f"/deep/in/{next(NUMBERS) - 1}"):
        found = SparseDataset.open(connection, name)
        assert (found.id, found.dtype, found.shape, found.chunk) == (made.id, dtype, (SIDE, SIDE), (5, 4))
    values = np.array([(1.5, b"abc", (1, 2)), (-2, b"", (3, 4))], dtype)
    made.write([(0, 0), (11, 11)], values)
    assert np.array_equal(made.read()[1], values)


def test_a_written_zero_is_defined(dataset: SparseDataset) -> None:
    dataset.write([(3, 4), (3, 4), (5, 6)], [1, 0, 0])
    assert elements(*dataset.read()) == {(3, 4): 0, (5, 6): 0}
    dataset.write([(0, 0), (0, 1)], [0, 5], drop_fill=True)
    assert elements(*dataset.read()) == {(3, 4): 0, (5, 6): 0, (0, 1): 5}
    dataset.erase()
    assert dataset.count() == 0


def test_one_value_for_a_region(dataset: SparseDataset) -> None:
    dataset.write_region("[2:4,:]", 9)
    assert dataset.count() == 2 * SIDE
    assert set(dataset.read()[1].tolist()) == {9}
    dataset.write_region("[5,:]", np.arange(SIDE), drop_fill=True)
    assert dataset.count("[5,:]") == SIDE - 1


def test_values_at_points_come_in_their_order(dataset: SparseDataset) -> None:
    dataset.write([(1, 1), (2, 2)], [10, 20])
    assert dataset.read_points([(2, 2), (0, 0), (1, 1), (2, 2)]).tolist() == [20, 0, 10, 20]
    assert dataset.read_points(np.zeros((0, 2))).tolist() == []


def test_selections_are_taken_for_their_strings(dataset: SparseDataset) -> None:
    dataset.write_region(None, np.arange(SIDE * SIDE))
    extent = (SIDE, SIDE)
    box = Orthogonal.box(extent, (2, 3), (4, 6))
    assert np.array_equal(dataset.read_dense(box), dataset.read_dense("[2:4,3:6]"))
    pair = Points(extent, np.array([[7, 1], [2, 9]]))
    assert dataset.read_dense(pair).tolist() == [7 * SIDE + 1, 2 * SIDE + 9]
    assert dataset.count(box) == 6
    dataset.erase(box)
    assert dataset.count(box) == 0


def test_a_selection_too_long_for_a_url(connection: Connection) -> None:
    dataset = make(connection, shape=(100_000,), chunk=(1000,), max_shape=(None,))
    rows = np.random.default_rng(1).permutation(100_000)[:4000]
    dataset.write(rows[:, None], np.arange(4000))
    select = f"[[{','.join(map(str, rows))}]]"
    assert len(select) > 20_000
    assert dataset.read_dense(select).tolist() == list(range(4000))
    assert len(dataset.read(select)[1]) == 4000
    dataset.erase(select)
    assert dataset.count() == 0


def test_an_extent_that_others_changed(connection: Connection, dataset: SparseDataset) -> None:
    other = SparseDataset.open(connection, dataset.id)
    other.resize((20, 8))
    dataset.write([(19, 7)], [5])
    assert dataset.shape == (20, 8)
    dataset.resize((30, 9))
    assert other.read_dense().shape == (30, 9)
    assert other.shape == (30, 9)
    dataset.resize((40, 9))
    assert other.read_dense("[35:40,:]").shape == (5, 9)
    dataset.resize((50, 9))
    assert other.read_points([(19, 7), (49, 0)]).tolist() == [5, 0]
    dataset.resize((60, 9))
    other.erase_points([(59, 0), (19, 7)])
    assert dataset.count() == 0
    dataset.resize((3, 3))
    assert other.refresh() == (3, 3)


def test_what_is_wrong_changes_nothing(connection: Connection, dataset: SparseDataset) -> None:
    dataset.write([(1, 1)], [1])
    with pytest.raises(BadRequest, match="is not below its extent 12"):
        dataset.write([(1, 1), (12, 0)], [2, 2])
    with pytest.raises(BadRequest, match="1 elements and values of shape"):
        dataset.write([(1, 1)], [2, 3])
    with pytest.raises(BadRequest, match="beyond the extent"):
        dataset.erase("[0:13,:]")
    with pytest.raises(BadRequest, match="The body has 12 bytes; 4 elements"):
        dataset.write_region("[0:2,0:2]", [1, 2, 3])
    assert elements(*dataset.read()) == {(1, 1): 1}
    fixed = make(connection, max_shape=None)
    with pytest.raises((BadRequest, Conflict), match="not extensible"):
        fixed.resize((20, 20))
    assert fixed.shape == (SIDE, SIDE)


def test_a_dense_dataset_is_refused(connection: Connection) -> None:
    connection.json("POST", "/datasets", {"type": "H5T_STD_I8LE", "shape": [4], "h5path": "/dense"})
    with pytest.raises(BadRequest, match="not a sparse dataset"):
        SparseDataset.open(connection, "/dense")
    with pytest.raises(NotFound):
        SparseDataset.open(connection, "/nowhere")


def test_storage_is_counted_in_chunks_and_bytes(dataset: SparseDataset) -> None:
    assert dataset.storage() == (0, 0)
    dataset.write([(0, 0), (11, 11)], [1, 2])
    chunks, nbytes = dataset.storage()
    assert chunks == 2
    assert nbytes > 2 * 4


def test_damage_on_the_way_is_found_and_named(
    dataset: SparseDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset.write([(0, 0), (11, 11)], [1, 2])
    whole = dataset.connection.binary("GET", f"/datasets/{dataset.id}/value", sparse=1)
    damaged = bytearray(whole)
    damaged[-12] ^= 1
    monkeypatch.setattr(dataset.connection, "binary", lambda *args, **params: bytes(damaged))
    with pytest.raises(Corrupt, match=f"{dataset.id} is damaged"):
        dataset.read()


def test_an_answer_too_large_for_one_piece_says_so(connection: Connection) -> None:
    dataset = make(connection, dtype=np.int8, shape=(3000, 3000), chunk=(1500, 1500))
    dataset.write_region(None, np.ones((3000, 3000), np.int8))
    with pytest.raises(TooLarge, match="select less"):
        dataset.read()
    assert len(dataset.read("[0:1000,:]")[1]) == 3_000_000
    assert np.array_equal(dataset.read_dense(), np.ones((3000, 3000), np.int8))
