"""Fill values, initializers, and the values that a new dataset is given with its creation."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest
from h5json.hdf5dtype import getTypeItem
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hsparse.errors import BadRequest, TooLarge
from hsparse.model.dataspace import parse_shape
from hsparse.model.datatype import parse_type
from hsparse.model.element import element_of
from hsparse.model.initial_values import (
    arange_values,
    fill_bytes,
    parse_fill_value,
    parse_initial_bytes,
    parse_initial_value,
    parse_initializer,
)

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
def test_fill_value_that_does_not_fit(properties: dict[str, object]) -> None:
    with pytest.raises(BadRequest):
        parse_fill_value(properties, parse_type("H5T_STD_I32LE"))


INT, FLOAT = element_of("H5T_STD_I32LE"), element_of("H5T_IEEE_F32LE")


@given(st.integers(-(10**6), 10**6), st.integers(-1000, 1000), st.integers(0, 10**6), st.integers(0, 50))
def test_integers_wrap_around(start: int, step: int, first: int, count: int) -> None:
    model = [start + step * n for n in range(first, first + count)]
    for kind in ("<i8", ">i2", "<u1", "<u8"):
        dtype = np.dtype(kind)
        found = arange_values((start, step), first, count, dtype)
        assert found.dtype == dtype
        bits = 8 * dtype.itemsize
        assert [int(value) % 2**bits for value in found] == [value % 2**bits for value in model]


def test_floats() -> None:
    found = arange_values((1.5, -0.25), 4, 3, np.dtype("<f4"))
    assert found.tolist() == [0.5, 0.25, 0.0]


@pytest.mark.parametrize(
    ("value", "element", "arange"),
    [
        (None, INT, ()),
        ([], INT, ()),
        (["arange"], INT, (0, 1)),
        ("arange --start=3", INT, (3, 1)),
        (["arange", "--start=10", "--step=2"], INT, (10, 2)),
        (["arange", "--start=10.0", "--step=-2"], INT, (10, -2)),
        (["arange", "--step=0.5"], FLOAT, (0.0, 0.5)),
    ],
)
def test_what_is_asked_for(value: Any, element: Any, arange: tuple[float, ...]) -> None:
    assert parse_initializer(value, 1, element, sparse=False) == arange


@pytest.mark.parametrize(
    "value",
    [
        7,
        {},
        [7],
        ["rm", "-rf"],
        ["arange", "1"],
        ["arange", "--stop=3"],
        ["arange", "--step=x"],
        ["arange", "--start=0.5"],
        ["arange", "--start=1e300"],
        ["arange", "--start=nan"],
    ],
)
def test_what_is_refused(value: Any) -> None:
    with pytest.raises(BadRequest):
        parse_initializer(value, 1, INT, sparse=False)


@pytest.mark.parametrize(
    ("rank", "item", "sparse"),
    [
        (2, "H5T_STD_I8LE", False),
        (0, "H5T_STD_I8LE", False),
        (1, "H5T_STD_I8LE", True),
        (1, {"class": "H5T_OPAQUE", "size": 2}, False),
        (1, {"class": "H5T_VLEN", "base": "H5T_STD_I8LE"}, False),
    ],
)
def test_where_it_is_refused(rank: int, item: Any, sparse: bool) -> None:
    with pytest.raises(BadRequest, match="one dimension"):
        parse_initializer(["arange"], rank, element_of(item), sparse=sparse)


INTEGER = parse_type("H5T_STD_I32LE")


@pytest.mark.parametrize(
    ("value", "shape", "error"),
    [
        ([1, 2], {"shape": [3]}, BadRequest),
        (["x"], {"shape": [1]}, BadRequest),
        (1, {"shape": "H5S_NULL"}, BadRequest),
        (1, {"shape": [2**40]}, TooLarge),
    ],
)
def test_initial_value_that_does_not_fit(
    value: object, shape: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        parse_initial_value(value, parse_shape(shape), INTEGER)


def test_values_as_bytes() -> None:
    text = base64.b64encode(np.array([[1, 2], [3, -4]], "<i4").tobytes()).decode()
    array = parse_initial_bytes(text, parse_shape({"shape": [2, 2]}), INTEGER)
    np.testing.assert_array_equal(array, np.array([[1, 2], [3, -4]], "<i4"))
    for wrong in (text[:-4], "not base64", 7):
        with pytest.raises(BadRequest):
            parse_initial_bytes(wrong, parse_shape({"shape": [2, 2]}), INTEGER)
    with pytest.raises(BadRequest, match="null dataspace"):
        parse_initial_bytes("", parse_shape({"shape": "H5S_NULL"}), INTEGER)
