"""Types of elements: numbers, compounds with text, and what has a variable length."""

from __future__ import annotations

import itertools
import json
from typing import Any

import h5py
import numpy as np
import pytest
from h5json.hdf5dtype import createDataType, getTypeItem
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hsparse.cli.embedded_server import embedded_server
from hsparse.client.connection import Connection
from hsparse.client.errors import OutOfRange, WrongType
from hsparse.client.group import Group
from hsparse.client.sources import vlen_elements
from hsparse.client.sparse_dataset import SparseDataset
from hsparse.client.types.datatype import dtype_of, type_item
from hsparse.client.types.hdf5_type import Hdf5Type
from hsparse.client.types.text_compound import TEXT_TYPE, object_array
from hsparse.config import load_settings
from hsparse.errors import HsparseError, TooLarge, Unsupported
from tests.support.characters import CHARACTERS

scalars = st.sampled_from(
    ["i1", "u1", "?", "S1", "S17"]
    + [f"{end}{kind}" for end in "<>" for kind in ("i2", "i4", "i8", "u2", "u4", "u8", "f2", "f4", "f8")]
).map(np.dtype)
# h5json, which the server uses, has no arrays of enums (bool).
arrays = st.tuples(
    scalars.filter(lambda dtype: dtype.kind != "b"), st.lists(st.integers(1, 4), min_size=1, max_size=2)
).map(lambda parts: np.dtype((parts[0], tuple(parts[1]))))
names = st.lists(st.text("abcde_ ", min_size=1, max_size=4), min_size=1, max_size=4, unique=True)


def compounds(parts: st.SearchStrategy[np.dtype[Any]]) -> st.SearchStrategy[np.dtype[Any]]:
    return names.flatmap(
        lambda fields: st.tuples(*(parts for _ in fields)).map(
            lambda types: np.dtype(list(zip(fields, types, strict=True)))
        )
    )


dtypes = st.recursive(scalars | arrays, compounds, max_leaves=6)


@given(dtypes)
def test_a_dtype_survives_and_is_what_others_take_it_for(dtype: np.dtype[Any]) -> None:
    item = json.loads(json.dumps(type_item(dtype)))
    assert dtype_of(item) == dtype
    if dtype.subdtype is None:
        assert (item, createDataType(item)) == (json.loads(json.dumps(getTypeItem(dtype))), dtype)


@pytest.mark.parametrize(
    ("item", "dtype"),
    [
        ("H5T_STD_I32LE", "<i4"),
        ({"class": "H5T_INTEGER", "base": "H5T_STD_U64BE"}, ">u8"),
        (
            {"class": "H5T_ENUM", "base": {"class": "H5T_INTEGER", "base": "H5T_STD_I16LE"}, "members": []},
            "<i2",
        ),
        ({"class": "H5T_ENUM", "base": "H5T_STD_I8LE", "mapping": {"FALSE": 0, "TRUE": 1}}, "?"),
        ({"class": "H5T_ARRAY", "base": "H5T_IEEE_F32LE", "dims": 3}, ("<f4", (3,))),
    ],
)
def test_other_forms_of_items(item: Any, dtype: Any) -> None:
    assert dtype_of(item) == np.dtype(dtype)


@pytest.mark.parametrize("dtype", ["c32", "U5", "O", "M8[s]", "S0", "g"])
def test_a_dtype_without_a_fixed_type_is_refused(dtype: str) -> None:
    with pytest.raises(Unsupported, match="use numbers"):
        type_item(np.dtype(dtype))


@pytest.mark.parametrize(
    "item",
    [
        {"class": "H5T_STRING", "length": "H5T_VARIABLE"},
        {"class": "H5T_VLEN", "base": "H5T_STD_I8LE"},
        {"class": "H5T_REFERENCE", "base": "H5T_STD_REF_OBJ"},
        "H5T_STD_REF_OBJ",
        "H5T_NATIVE_INT",
        "H5T_STD_B8LE",
        "H5T_STD_I24LE",
    ],
)
def test_an_item_without_a_fixed_dtype_is_refused(item: Any) -> None:
    with pytest.raises(Unsupported, match="h5pyd"):
        dtype_of(item)


DTYPE = np.dtype([("name", object), ("n", "<i4"), ("note", object), ("pair", "<f8", (2,)), ("yes", bool)])
ROWS = st.lists(
    st.tuples(
        st.text(CHARACTERS, max_size=9),
        st.integers(-9, 9),
        st.text(CHARACTERS, max_size=9),
        st.just((0.5, -1.0)),
        st.booleans(),
    )
)


@given(ROWS)
def test_bytes_and_back(rows: list[Any]) -> None:
    values = np.array(rows, DTYPE)
    kind = Hdf5Type.of(values)
    found = kind.decode(kind.encode(values), values.shape)
    assert (found.dtype, str(found.tolist())) == (DTYPE, str(values.tolist()))


def test_datasets(connection: Connection) -> None:
    group = Group(connection, {"id": connection.json("GET", "/")["root"]}, "/")
    values = np.array([("a", 1, "", (1, 2), True), ("é" * 99, 2, "x", (3, 4), False)] * 3, DTYPE).reshape(
        2, 3
    )
    dataset = group.create_dataset("x", data=values)
    assert (str(dataset[...]), str(dataset[1, ::2])) == (str(values), str(values[1, ::2]))


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(WrongType, match="3 in the field name is not text"):
        Hdf5Type.of(np.zeros(1, DTYPE)).encode(np.array([(3, 1, "", (1, 2), True)], DTYPE))
    array = Hdf5Type.parse({"class": "H5T_ARRAY", "dims": [2], "base": TEXT_TYPE})
    with pytest.raises(WrongType, match=r"not an array of the shape \[2\]"):
        array.encode(np.array(["text"], object))


SEQUENCE = {"class": "H5T_VLEN", "base": TEXT_TYPE}
NESTED = {
    "class": "H5T_COMPOUND",
    "fields": [{"name": "x", "type": SEQUENCE}, {"name": "n", "type": "H5T_STD_I8LE"}],
}


def field(item: Any) -> Any:
    return {"class": "H5T_COMPOUND", "fields": [{"name": "c", "type": item}, {"name": "n", "type": item}]}


@pytest.mark.parametrize(
    ("item", "value"),
    [
        (SEQUENCE, ["a", "é", ""]),
        (NESTED, (["a"], 7)),
        ({"class": "H5T_VLEN", "base": NESTED}, [(["a", "b"], 1), ([], 2)]),
        ({"class": "H5T_ARRAY", "dims": [2], "base": SEQUENCE}, [["a"], []]),
        ({"class": "H5T_VLEN", "base": {"class": "H5T_VLEN", "base": "H5T_STD_U8LE"}}, [[1, 2], [3, 4]]),
        ({"class": "H5T_COMPOUND", "fields": [{"name": "c", "type": NESTED}]}, ((["a"], 7),)),
        (field({"class": "H5T_ARRAY", "dims": [2], "base": TEXT_TYPE}), (["a", "é"], ["", "b"])),
        (
            field({"class": "H5T_ARRAY", "dims": [2], "base": NESTED}),
            ([(["a"], 7), ([], 8)], [([], 1), (["b"], 2)]),
        ),
    ],
)
def test_nested_parts_and_back(item: Any, value: Any) -> None:
    kind = Hdf5Type.parse(item)
    values = np.array(value, kind.dtype) if kind.dtype.names else object_array([value])
    data = kind.encode(values.reshape(1))
    found = kind.decode(data, (1,))
    assert (kind.encode(found), str(kind.from_json([_json(value)], (1,)))) == (data, str(found))


def _json(value: Any) -> Any:
    return [_json(one) for one in value] if isinstance(value, list | tuple) else value


@pytest.mark.parametrize(
    "base", [str, h5py.vlen_dtype("i4"), np.dtype([("t", object), ("n", "i4")])], ids=str
)
@pytest.mark.parametrize("dims", [(8,), (2, 3)])
def test_fields_keep_their_dimensions(connection: Connection, base: Any, dims: tuple[int, ...]) -> None:
    """As h5py reads them: a field of shape (8,) of 10 elements has the shape (10, 8)."""
    group = Group(connection, {"id": connection.json("GET", "/")["root"]}, "/")
    dtype = np.dtype([("s", h5py.string_dtype() if base is str else base, dims), ("n", "i4")])
    values = np.zeros(10, dtype)
    for place in np.ndindex(10, *dims):
        number = sum(place)
        text = str(number) * number
        kinds = {str: text, np.dtype([("t", object), ("n", "i4")]): (text, number)}
        values["s"][place] = kinds[base] if base in kinds else np.arange(number, dtype="i4")
    dataset = group.create_dataset(f"x{len(dims)}{base}"[:20].replace(" ", ""), data=values)
    for found, right in ((dataset[...], values), (dataset[3:7], values[3:7]), (dataset[4], values[4])):
        assert found["s"].shape == right["s"].shape
        assert str(found["s"].tolist()) == str(right["s"].tolist())
    values["s"] = values["s"][::-1]
    dataset[...] = values
    assert str(dataset[...]["s"].tolist()) == str(values["s"].tolist())


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


def test_what_is_no_text_is_refused_by_a_dataset(connection: Connection) -> None:
    dataset = make(connection, "text")
    with pytest.raises(WrongType, match="5 is not text: give a str"):
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
