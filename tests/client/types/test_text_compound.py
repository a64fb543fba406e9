"""Compounds with text: written and read again, whatever else they have."""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.client.connection import Connection
from hsparse.client.errors import WrongType
from hsparse.client.group import Group
from hsparse.client.types.hdf5_type import Hdf5Type
from hsparse.client.types.text_compound import TEXT_TYPE, object_array
from tests.support.characters import CHARACTERS

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
    assert found.dtype == DTYPE
    assert str(found.tolist()) == str(values.tolist())


def test_datasets(connection: Connection) -> None:
    group = Group(connection, {"id": connection.json("GET", "/")["root"]}, "/")
    values = np.array([("a", 1, "", (1, 2), True), ("é" * 99, 2, "x", (3, 4), False)] * 3, DTYPE).reshape(
        2, 3
    )
    dataset = group.create_dataset("x", data=values)
    assert str(dataset[...]) == str(values)
    assert str(dataset[1, ::2]) == str(values[1, ::2])


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(WrongType, match="3 in the field name is no text"):
        Hdf5Type.of(np.zeros(1, DTYPE)).encode(np.array([(3, 1, "", (1, 2), True)], DTYPE))
    array = Hdf5Type.parse({"class": "H5T_ARRAY", "dims": [2], "base": TEXT_TYPE})
    with pytest.raises(WrongType, match=r"no array of the shape \[2\]"):
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
    assert kind.encode(found) == data
    assert str(kind.from_json([_json(value)], (1,))) == str(found)


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
