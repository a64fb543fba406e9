"""Values that come with the creation of an object: attributes, fill values, initializers."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest
from h5json.array_util import bytesArrayToList
from h5json.hdf5dtype import getTypeItem
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hsparse.errors import BadRequest, TooLarge
from hsparse.model.attribute import (
    answer_work,
    attribute_bytes,
    attribute_from_bytes,
    attribute_size,
    attribute_values,
    check_name,
    parse_attribute,
)
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
from tests.support.characters import CHARACTERS

SCALARS = (
    hnp.integer_dtypes(endianness="?")
    | hnp.floating_dtypes(sizes=(32, 64), endianness="?")
    | hnp.byte_string_dtypes(min_len=1, max_len=6)
)
DTYPES = st.recursive(
    SCALARS,
    lambda inner: st.dictionaries(
        st.sampled_from("abc"),
        inner | st.tuples(inner, hnp.array_shapes(max_dims=2, max_side=2)).map(np.dtype),
        min_size=1,
    ).map(lambda d: np.dtype(list(d.items()))),
    max_leaves=3,
)
ARRAYS = st.tuples(DTYPES, hnp.array_shapes(min_dims=0, max_dims=3, max_side=3)).flatmap(
    lambda d: hnp.arrays(*d)
)
TEXT = {"class": "H5T_STRING", "charSet": "H5T_CSET_UTF8", "length": "H5T_VARIABLE"}


@given(ARRAYS)
def test_bytes_survive(array: np.ndarray[Any, Any]) -> None:
    datatype = parse_type(getTypeItem(array.dtype))
    shape = {"class": "H5S_SIMPLE", "dims": list(array.shape)} if array.shape else {"class": "H5S_SCALAR"}
    stored = attribute_from_bytes(array.tobytes(), shape, datatype)
    json.dumps(stored, allow_nan=False)
    assert attribute_values(stored).shape == array.shape
    assert repr(attribute_values(stored).tolist()) == repr(array.tolist()), "as text, in which nan is nan"
    assert attribute_bytes(stored) == attribute_values(stored).tobytes()
    assert attribute_size(stored) == array.nbytes
    body = {"shape": shape, "value": base64.b64encode(array.tobytes()).decode(), "encoding": "base64"}
    assert parse_attribute(body, datatype) == stored


@given(
    st.tuples(hnp.integer_dtypes() | hnp.floating_dtypes(sizes=(64,)), hnp.array_shapes(max_side=4)).flatmap(
        lambda d: hnp.arrays(*d)
    )
)
def test_json_survives(array: np.ndarray[Any, Any]) -> None:
    body = {"shape": list(array.shape), "value": bytesArrayToList(array)}
    stored = parse_attribute(body, parse_type(getTypeItem(array.dtype)))
    np.testing.assert_array_equal(attribute_values(json.loads(json.dumps(stored, allow_nan=False))), array)


def test_limits() -> None:
    integer = parse_type("H5T_STD_I64LE")
    with pytest.raises(TooLarge):
        parse_attribute({"shape": [2**30]}, integer)
    assert parse_attribute({"shape": "H5S_NULL"}, integer)["value"] is None
    with pytest.raises(BadRequest):
        attribute_values(parse_attribute({"shape": "H5S_NULL"}, integer))
    with pytest.raises(BadRequest):
        attribute_from_bytes(b"", {"class": "H5S_SCALAR"}, parse_type(TEXT))


@pytest.mark.parametrize("name", ["", "x" * 65_535, "é" * 32_768, 7, None])
def test_what_is_no_name(name: object) -> None:
    with pytest.raises(BadRequest):
        check_name(name)


@pytest.mark.parametrize("name", ["x" * 65_534, "é" * 32_767, "a/b"])
def test_names_are_as_long_as_those_of_hdf5(name: str) -> None:
    assert check_name(name) == name


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(CHARACTERS, max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(CHARACTERS, max_size=2), inner, max_size=2)
    ),
    max_leaves=8,
)
KINDS = st.sampled_from(
    [
        "H5T_STD_I8LE",
        "H5T_IEEE_F64LE",
        TEXT,
        {"class": "H5T_STRING", "charSet": "H5T_CSET_ASCII", "length": 3},
        {"class": "H5T_VLEN", "base": "H5T_STD_I32LE"},
        {"class": "H5T_OPAQUE", "size": 2},
        {
            "class": "H5T_COMPOUND",
            "fields": [{"name": "a", "type": "H5T_STD_I8LE"}, {"name": "t", "type": TEXT}],
        },
        {"class": "H5T_ARRAY", "dims": [2], "base": "H5T_IEEE_F32LE"},
        {"class": "H5T_REFERENCE", "base": "H5T_STD_REF_DSETREG"},
    ]
)


@given(KINDS, st.sampled_from([[], [1], [2], [2, 2], [0]]), JSON)
def test_any_json_is_a_value_or_a_bad_request(kind: Any, shape: list[int], value: Any) -> None:
    try:
        stored = parse_attribute({"shape": shape, "value": value}, parse_type(kind))
    except BadRequest:
        return
    json.dumps(stored, allow_nan=False)


@pytest.mark.parametrize("shape", [[4_000_000, 0], [1_000_000, 1], [1 << 40, 0]])
@pytest.mark.parametrize("kind", ["H5T_STD_I8LE", TEXT], ids=["number", "text"])
def test_lists_count_also_without_elements(shape: list[int], kind: Any) -> None:
    datatype = parse_type(kind)
    for value in ({}, {"value": ""}, {"value": "", "encoding": "base64"}):
        with pytest.raises(TooLarge, match="lists"):
            parse_attribute({"shape": shape, **value}, datatype)
    with pytest.raises(TooLarge, match="lists"):
        attribute_from_bytes(b"", {"class": "H5S_SIMPLE", "dims": shape}, datatype)


NUMBER = {"class": "H5T_FLOAT", "base": "H5T_IEEE_F64LE"}
PAIR = {"class": "H5T_COMPOUND", "fields": [{"name": name, "type": "H5T_IEEE_F64LE"} for name in "ab"]}


@pytest.mark.parametrize(
    ("item", "shape", "value", "work"),
    [
        (NUMBER, [1000], [0.5] * 1000, 1000),
        (NUMBER, [1000], None, 1000),
        ({"class": "H5T_VLEN", "base": "H5T_IEEE_F64LE"}, [1], [[0.5] * 1000], 1000),
        (
            {"class": "H5T_ARRAY", "base": "H5T_IEEE_F64LE", "dims": [10, 100]},
            [1],
            [[[0.5] * 100] * 10],
            1000,
        ),
        (PAIR, [500], [[0.5, 1.5]] * 500, 1000),
    ],
    ids=["numbers", "nothing", "vlen", "array", "compound"],
)
def test_the_work_of_an_answer_counts_what_is_in_elements(
    item: Any, shape: list[int], value: Any, work: int
) -> None:
    stored = parse_attribute({"shape": shape, "value": value}, parse_type(item))
    assert work <= answer_work([stored]) <= 2 * work
    assert answer_work([stored, stored]) == 2 * answer_work([stored])


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
        7, {}, [7], ["rm", "-rf"], ["arange", "1"], ["arange", "--stop=3"], ["arange", "--step=x"],
        ["arange", "--start=0.5"], ["arange", "--start=1e300"], ["arange", "--start=nan"],
    ],
)  # fmt: skip
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
