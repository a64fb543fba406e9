"""Type items and their dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from h5json.hdf5dtype import getTypeItem
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hsparse.errors import BadRequest
from hsparse.model.datatype import parse_type, type_json

DTYPES = st.recursive(
    hnp.integer_dtypes(endianness="?")
    | hnp.floating_dtypes(sizes=(16, 32, 64), endianness="?")
    | hnp.byte_string_dtypes(min_len=1, max_len=20),
    lambda inner: (
        st.dictionaries(st.sampled_from("abcd"), inner, min_size=1).map(lambda d: np.dtype(list(d.items())))
        | st.tuples(inner, hnp.array_shapes(max_dims=2)).map(np.dtype)
    ),
    max_leaves=4,
)


@given(DTYPES)
def test_every_dtype_survives(dtype: np.dtype[Any]) -> None:
    parsed = parse_type(getTypeItem(dtype))
    assert parsed.dtype == dtype
    assert parsed.item_size == parsed.guessed_size == dtype.itemsize
    assert not parsed.is_vlen
    assert parse_type(parsed.item) == parsed


@pytest.mark.parametrize(
    ("name", "stored", "dtype"),
    [
        ("H5T_STD_I32LE", {"class": "H5T_INTEGER", "base": "H5T_STD_I32LE"}, "<i4"),
        ("H5T_STD_U64BE", {"class": "H5T_INTEGER", "base": "H5T_STD_U64BE"}, ">u8"),
        ("H5T_IEEE_F16LE", {"class": "H5T_FLOAT", "base": "H5T_IEEE_F16LE"}, "<f2"),
    ],
)
def test_predefined_names(name: str, stored: object, dtype: str) -> None:
    parsed = parse_type(name)
    assert (parsed.item, parsed.dtype) == (stored, np.dtype(dtype))


def test_what_h5json_does_not_know() -> None:
    bits = parse_type({"class": "H5T_BITFIELD", "base": "H5T_STD_B16BE"})
    assert (bits.dtype, bits.item["class"]) == (np.dtype(">u2"), "H5T_BITFIELD")
    mapping = {"FALSE": 0, "TRUE": 1}
    assert parse_type({"class": "H5T_ENUM", "base": "H5T_STD_I8LE", "mapping": mapping}).dtype == np.dtype(
        bool
    )
    other = parse_type({"class": "H5T_ENUM", "base": "H5T_STD_U16BE", "mapping": {"a": 1}})
    assert other.dtype == np.dtype(">u2")
    assert parse_type({"class": "H5T_REFERENCE", "base": "H5T_STD_REF_OBJ"}).item_size == 48
    assert parse_type({"class": "H5T_OPAQUE", "size": 7}).item_size == 7


def nested(depth: int) -> object:
    return {"class": "H5T_VLEN", "base": nested(depth - 1)} if depth else "H5T_STD_I8LE"


@pytest.mark.parametrize(
    "item",
    [
        "H5T_FOO",
        "x",
        "",
        7,
        None,
        [],
        {},
        {"class": "H5T_NONE"},
        {"class": 7},
        {"class": "H5T_INTEGER"},
        {"class": "H5T_INTEGER", "base": "H5T_IEEE_F32LE"},
        {"class": "H5T_INTEGER", "base": "H5T_STD_I9LE"},
        {"class": "H5T_FLOAT", "base": {}},
        {"class": "H5T_STRING", "length": 0, "charSet": "H5T_CSET_ASCII"},
        {"class": "H5T_STRING", "length": 4},
        {"class": "H5T_STRING", "length": True, "charSet": "H5T_CSET_ASCII"},
        {"class": "H5T_STRING", "length": 4, "charSet": "EBCDIC"},
        {"class": "H5T_STRING", "length": 2**40, "charSet": "H5T_CSET_ASCII"},
        {"class": "H5T_OPAQUE", "size": -1},
        {"class": "H5T_COMPOUND", "fields": []},
        {"class": "H5T_COMPOUND", "fields": [{"name": "a"}]},
        {"class": "H5T_COMPOUND", "fields": [{"name": "", "type": "H5T_STD_I8LE"}]},
        {"class": "H5T_COMPOUND", "fields": [{"name": "a", "type": "H5T_STD_I8LE"}] * 2},
        {"class": "H5T_ARRAY", "dims": [0], "base": "H5T_STD_I8LE"},
        {"class": "H5T_ARRAY", "dims": [2**40], "base": "H5T_STD_I8LE"},
        {"class": "H5T_ARRAY", "base": "H5T_STD_I8LE"},
        {"class": "H5T_ENUM", "base": "H5T_STD_I8LE"},
        {"class": "H5T_ENUM", "base": "H5T_STD_I8LE", "mapping": {"a": "b"}},
        {"class": "H5T_ENUM", "base": "H5T_STD_I8LE", "mapping": [1]},
        {"class": "H5T_ENUM", "base": "H5T_IEEE_F32LE", "mapping": {"a": 1}},
        {"class": "H5T_BITFIELD", "base": "H5T_STD_I8LE"},
        {"class": "H5T_REFERENCE", "base": "H5T_STD_REF_X"},
        nested(40),
    ],
)
def test_what_is_no_type(item: object) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_type(item)
    assert caught.value.message.endswith(".")
    assert len(caught.value.message) < 400


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(["H5T_STD_I8LE", "H5T_STRING", "H5T_COMPOUND", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["class", "base", "fields", "name", "type", "dims", "length", "charSet", "mapping"]
            ),
            inner,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_json_is_a_type_or_a_bad_request(item: object) -> None:
    try:
        parsed = parse_type(item)
    except BadRequest:
        return
    assert parsed.guessed_size > 0


def test_a_wide_type_is_refused() -> None:
    fields = [{"name": f"f{n}", "type": "H5T_STD_I8LE"} for n in range(20_000)]
    with pytest.raises(BadRequest, match="parts"):
        parse_type({"class": "H5T_COMPOUND", "fields": fields})


BASE = {"class": "H5T_INTEGER", "base": "H5T_STD_I8LE"}
LIST = [{"name": "FALSE", "value": 0}, {"name": "TRUE", "value": 1}]
MAPPING = {"FALSE": 0, "TRUE": 1}
BOTH = {"class": "H5T_ENUM", "base": BASE, "mapping": MAPPING, "members": LIST}
PLAIN = ["H5T_STD_I8LE", BASE, {"class": "H5T_ARRAY", "base": BASE, "dims": [2]}]


@pytest.mark.parametrize("names", [{"mapping": MAPPING}, {"members": LIST}, {"mapping": LIST}])
def test_an_enum_has_its_names_in_both_forms(names: dict[str, Any]) -> None:
    enum = {"class": "H5T_ENUM", "base": BASE, **names}
    assert type_json(enum) == BOTH
    array = {"class": "H5T_ARRAY", "base": enum, "dims": [2]}
    assert type_json(array) == array | {"base": BOTH}
    fields = [{"name": "n", "type": BASE}, {"name": "e", "type": array}]
    compound = {"class": "H5T_COMPOUND", "fields": fields}
    assert type_json(compound)["fields"] == [fields[0], {"name": "e", "type": array | {"base": BOTH}}]
    assert enum.keys() == {"class", "base", *names}


@pytest.mark.parametrize("item", [*PLAIN, {"class": "H5T_COMPOUND", "fields": [{"name": "a", "type": BASE}]}])
def test_what_holds_no_enum_is_the_same_object(item: Any) -> None:
    assert type_json(item) is item
