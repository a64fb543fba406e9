from __future__ import annotations

import itertools
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hsparse.client.connection import Connection
from hsparse.client.sparse_dataset import SparseDataset
from hsparse.errors import BadRequest, Conflict, Corrupt, NotFound
from tests.client.scripted_server import answer, scripted

NUMBERS = itertools.count()
SIDE = 12
Elements = dict[tuple[int, int], int]


@pytest.fixture
def dataset(connection: Connection) -> SparseDataset:
    return make(connection)


def make(connection: Connection, **options: Any) -> SparseDataset:
    arguments: dict[str, Any] = {"shape": (SIDE, SIDE), "dtype": np.int32, "chunks": (5, 4)}
    arguments |= {"maxshape": (None, None)} | options
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
        dataset.resize(where, erase=True)
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
    dataset = make(connection, fillvalue=7)
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
    made = make(connection, dtype=dtype, filters=filters, attributes={"x": item}, maxshape=(SIDE, None))
    record = connection.json("GET", f"/datasets/{made.id}")
    assert record["shape"]["maxdims"] == [SIDE, "H5S_UNLIMITED"]
    assert connection.json("GET", f"/datasets/{made.id}/attributes/x")["value"] == [1, 2]
    assert record["creationProperties"]["filters"][0]["section"] == "H5_SECTION_FIXED"
    for name in (made.id, f"/deep/in/{next(NUMBERS) - 1}"):
        found = SparseDataset.open(connection, name)
        assert (found.id, found.dtype, found.shape, found.chunks) == (made.id, dtype, (SIDE, SIDE), (5, 4))
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


def test_a_selection_too_long_for_a_url(connection: Connection) -> None:
    dataset = make(connection, shape=(100_000,), chunks=(1000,), maxshape=(None,))
    rows = np.random.default_rng(1).permutation(100_000)[:4000]
    dataset.write(rows[:, None], np.arange(4000))
    text = f"[[{','.join(map(str, rows))}]]"
    assert len(text) > 20_000
    for select in (text, rows):
        assert dataset.read_dense(select).tolist() == list(range(4000))
        assert len(dataset.read(select)[1]) == dataset.count(select) == 4000
        assert np.array_equal(np.sort(dataset.defined(select)[:, 0]), np.sort(rows))
        dataset.erase(select)
        assert dataset.count() == 0
        dataset.write_region(select, 5)
        assert set(dataset.read()[1].tolist()) == {5}
        dataset.write_region(select, np.arange(4000))
    with pytest.raises(BadRequest, match=r"shape \[3999\] must broadcast to the selected shape \[4000\]"):
        dataset.write_region(text, np.arange(3999))


def test_a_key_that_does_not_fit_is_named(connection: Connection, dataset: SparseDataset) -> None:
    with pytest.raises(BadRequest, match="Index 12 of dimension 0 is not within its extent 12"):
        dataset.read_dense(SIDE)
    other = SparseDataset.open(connection, dataset.id)
    other.resize((SIDE + 1, SIDE))
    assert (dataset.read_dense(SIDE).shape, dataset.shape) == ((SIDE,), (SIDE + 1, SIDE))
    other.write_region(other.extend(2), 7)
    assert dataset.read_dense(slice(SIDE + 1, SIDE + 3)).tolist() == [[7] * SIDE] * 2
    other.extend(1)
    dataset.write_region(slice(SIDE + 3, SIDE + 4), 8)
    assert dataset.read_dense(-1).tolist() == [8] * SIDE


def test_an_extent_that_others_changed(connection: Connection, dataset: SparseDataset) -> None:
    other = SparseDataset.open(connection, dataset.id)
    other.resize((20, 8), erase=True)
    dataset.write([(19, 7)], [5])
    assert dataset.shape == (20, 8)
    dataset.resize((30, 9))
    assert (other.read_dense().shape, other.shape) == ((30, 9), (30, 9))
    dataset.resize((40, 9))
    assert other.read_dense("[35:40,:]").shape == (5, 9)
    dataset.resize((50, 9))
    assert other.read_points([(19, 7), (49, 0)]).tolist() == [5, 0]
    dataset.resize((60, 9))
    other.erase_points([(59, 0), (19, 7)])
    assert dataset.count() == 0
    dataset.resize((3, 3), erase=True)
    assert other.refresh() == (3, 3)


def record(shape: tuple[int, ...]) -> dict[str, Any]:
    layout = {"class": "H5D_STRUCT_CHUNK", "dims": [1] * len(shape), "flags": ["H5D_SPARSE_DATA"]}
    return {"id": "d-1", "type": "H5T_STD_I32LE", "shape": {"dims": list(shape)}, "layout": layout}


def shape_answer(*dims: int) -> bytes:
    return answer(json.dumps({"shape": {"class": "H5S_SIMPLE", "dims": dims}}).encode())


CHANGED = answer(
    b'{"error": {"kind": "conflict", "message": "The extent is [4, 9] now, not as expected."}}',
    "409 Conflict",
)


def test_a_resize_that_erases_is_told_so(dataset: SparseDataset) -> None:
    dataset.write([(11, 11)], [1])
    other = SparseDataset.open(dataset.connection, dataset.id)
    other.resize((SIDE + 4, SIDE))
    for shape in [(SIDE, SIDE + 4), (SIDE + 4, 3), (SIDE + 3, SIDE)]:
        with pytest.raises(BadRequest, match=r"would erase elements in dimension \d; omit erase=False"):
            dataset.resize(shape, erase=False)
    assert dataset.refresh() == (SIDE + 4, SIDE)
    dataset.resize((3, 20), erase=True)
    assert dataset.shape == other.refresh() == (3, 20)
    assert dataset.count() == 0


def test_a_resize_sends_no_request_that_shrinks_and_what_it_has_seen() -> None:
    with scripted([shape_answer(4, 8), shape_answer(4, 8), answer(b"{}", "201 Created"), CHANGED]) as (
        script,
        connection,
    ):
        dataset = SparseDataset(connection, record((2, 8)))
        with pytest.raises(
            BadRequest, match=r"from \[4, 8\] to \[3, 9\] would erase elements in dimension 0"
        ):
            dataset.resize((3, 9))
        dataset.resize((4, 9))
        assert dataset.shape == (4, 9)
        with pytest.raises(Conflict, match=r"is \[4, 9\] now"):
            dataset.resize((3, 9), erase=True)
        assert dataset.shape == (4, 9)
    get, put = "GET /datasets/d-1/shape", "PUT /datasets/d-1/shape"
    assert script.requests == [get, get, put, put]
    assert [json.loads(body) for body in script.bodies[2:]] == [
        {"shape": [4, 9], "expect": [4, 8]},
        {"shape": [3, 9], "expect": [4, 9]},
    ]


def test_clients_extend_at_the_same_time(connection: Connection, dataset: SparseDataset) -> None:
    others = [SparseDataset.open(connection, dataset.id) for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        parts = list(threads.map(lambda one: [one.extend(count) for count in (1, 2, 3)], others))
    rows = sorted(row for some in parts for part in some for row in range(part.start, part.stop))
    assert rows == list(range(SIDE, SIDE + 24))
    assert dataset.extend(5, axis=-1) == slice(SIDE, SIDE + 5)
    assert dataset.refresh() == (SIDE + 24, SIDE + 5)
    with pytest.raises(BadRequest, match=r"no axis 2: .* has only 2 dimensions"):
        dataset.extend(1, 2)
    with pytest.raises(BadRequest, match="positive integer"):
        dataset.extend(0)


def test_a_dense_dataset_is_refused(connection: Connection) -> None:
    connection.json("POST", "/datasets", {"type": "H5T_STD_I8LE", "shape": [4], "h5path": "/dense"})
    with pytest.raises(BadRequest, match="is a dense dataset"):
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
    monkeypatch.setattr(
        "hsparse.client.sources.http_elements.read_values", lambda *args, **params: bytes(damaged)
    )
    with pytest.raises(Corrupt, match=f"{dataset.name} is damaged"):
        dataset.read()
