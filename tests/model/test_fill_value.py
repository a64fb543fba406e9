"""Fill values."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest
from h5json.hdf5dtype import getTypeItem
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hsparse.errors import BadRequest
from hsparse.model.datatype import parse_type
from hsparse.model.fill_value import fill_bytes, parse_fill_value

NUMBERS = hnp.integer_dtypes(endianness="?") | hnp.floating_dtypes(sizes=(16, 32, 64), endianness="?")


@given(st.data(), NUMBERS)
def test_a_number_is_its_bytes(data: st.DataObject, dtype: np.dtype[Any]) -> None:
    value = np.array(data.draw(hnp.from_dtype(dtype)), dtype)
    datatype = parse_type(getTypeItem(dtype))
    properties = parse_fill_value({"fillValue": value.item()}, datatype)
    filled = fill_bytes(properties, datatype) or bytes(dtype.itemsize)
    np.testing.assert_array_equal(np.frombuffer(filled, dtype)[0], value)
    coded = {"fillValue": base64.b64encode(value.tobytes()).decode(), "fillValue_encoding": "base64"}
    assert parse_fill_value(coded, datatype) == coded
    assert (fill_bytes(coded, datatype) or bytes(dtype.itemsize)) == value.tobytes()


def test_nothing_asked_is_zero() -> None:
    integer = parse_type("H5T_STD_I32LE")
    for properties in ({}, {"fillValue": None}, {"fillValue": 0}, {"fillValue_encoding": "base64"}):
        assert fill_bytes(parse_fill_value(properties, integer), integer) == b""


def test_compound_array_string_and_opaque() -> None:
    fields = [{"name": "a", "type": "H5T_STD_I16LE"}, {"name": "b", "type": "H5T_IEEE_F32LE"}]
    compound = parse_type({"class": "H5T_COMPOUND", "fields": fields})
    assert fill_bytes({"fillValue": [7, 1.5]}, compound) == np.array((7, 1.5), "<i2,<f4").tobytes()
    array = parse_type({"class": "H5T_ARRAY", "dims": [2], "base": "H5T_STD_I16LE"})
    assert fill_bytes({"fillValue": [1, 2]}, array) == np.array([1, 2], "<i2").tobytes()
    assert fill_bytes({"fillValue": 3}, array) == np.array([3, 3], "<i2").tobytes()
    text = parse_type({"class": "H5T_STRING", "charSet": "H5T_CSET_UTF8", "length": 4})
    assert fill_bytes({"fillValue": "ü"}, text) == "ü".encode() + bytes(2)
    opaque = parse_type({"class": "H5T_OPAQUE", "size": 3})
    assert fill_bytes({"fillValue": "AQID"}, opaque) == b"\1\2\3"
    variable = parse_type({"class": "H5T_STRING", "charSet": "H5T_CSET_UTF8", "length": "H5T_VARIABLE"})
    assert fill_bytes({"fillValue": ""}, variable) == b""
    assert fill_bytes({"fillValue": "ab"}, variable) == b"\2\0\0\0ab"


@pytest.mark.parametrize(
    "properties",
    [
        {"fillValue": "x"},
        {"fillValue": [1, 2]},
        {"fillValue": 2**40},
        {"fillValue": {}},
        {"fillValue": 1, "fillValue_encoding": "base64"},
        {"fillValue": "AA==", "fillValue_encoding": "base64"},
        {"fillValue": "?", "fillValue_encoding": "base64"},
        {"fillValue": "AA==", "fillValue_encoding": "hex"},
    ],
)
def test_what_does_not_fit(properties: dict[str, object]) -> None:
    with pytest.raises(BadRequest):
        parse_fill_value(properties, parse_type("H5T_STD_I32LE"))
