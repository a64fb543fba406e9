from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from h5json.hdf5dtype import createDataType, getTypeItem
from hypothesis import given
from hypothesis import strategies as st

from hsparse.client.types.datatype import dtype_of, type_item
from hsparse.errors import Unsupported

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
        assert item == json.loads(json.dumps(getTypeItem(dtype)))
        assert createDataType(item) == dtype


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
