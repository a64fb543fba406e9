"""Types of elements: HDF5/JSON, numpy, and what a request may ask for."""

from __future__ import annotations

import math
from typing import Any

import h5py
import numpy as np
import orjson
import pytest
from h5json.hdf5dtype import check_dtype, createDataType, getTypeItem
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hsparse.errors import BadRequest, TooLarge
from hsparse.model.attribute import name_non_finite
from hsparse.model.attribute_json import has_floats, restore_non_finite
from hsparse.model.dataspace import MAX_RANK
from hsparse.model.datatype import MAX_TEXT, parse_requested_type, parse_type, type_json
from hsparse.model.element import Fixed, Region, VlenSequence, VlenString, element_of
from tests.model.type_strategies import BOOLEAN, ITEMS, length_prefixed, text

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


TEXT = text("H5T_VARIABLE")


def known_to_h5json(item: Any) -> bool:
    try:
        createDataType(item)
    except (TypeError, KeyError, ValueError):
        return False
    return True


@given(ITEMS.filter(known_to_h5json))
def test_the_dtypes_of_h5json(item: Any) -> None:
    expected = createDataType(item)
    dtype = element_of(item).dtype
    assert dtype == expected
    for tag in ("vlen", "enum"):  # the classes that h5json tags references with are its own
        assert repr(check_dtype(**{tag: dtype})) == repr(check_dtype(**{tag: expected}))


@given(ITEMS)
def test_the_least_bytes_of_an_element(item: Any) -> None:
    element = element_of(item)
    empty = {Fixed: None, VlenString: "", VlenSequence: [], Region: None}.get(type(element))
    if empty is not None or isinstance(element, Region):
        assert len(length_prefixed(item, empty)) == element.min_size
    elif isinstance(element, Fixed):
        assert element.min_size == element.dtype.itemsize


def test_a_boolean_is_what_h5py_writes_as_one() -> None:
    assert element_of(BOOLEAN).dtype == np.dtype(bool)
    turned = {**BOOLEAN, "members": [{"name": "FALSE", "value": 1}, {"name": "TRUE", "value": 0}]}
    assert element_of(turned).dtype == np.dtype("i1")


@pytest.mark.parametrize(
    "item",
    [
        {"class": "H5T_ENUM", "base": "H5T_STD_I8LE", "mapping": {"a": 128}},
        {"class": "H5T_ENUM", "base": "H5T_STD_I8LE", "mapping": {}},
        {"class": "H5T_ARRAY", "dims": [1] * 33, "base": "H5T_STD_I8LE"},
        {
            "class": "H5T_ARRAY",
            "dims": [1] * 20,
            "base": {"class": "H5T_ARRAY", "dims": [1] * 20, "base": TEXT},
        },
        "H5T_STD_I128LE",
        "H5T_IEEE_F8LE",
    ],
)
def test_what_is_refused(item: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        element_of(item)


FILE_TYPES = [
    (TEXT, h5py.string_dtype()),
    ({"class": "H5T_VLEN", "base": "H5T_IEEE_F64LE"}, h5py.vlen_dtype(np.dtype("<f8"))),
    (
        {
            "class": "H5T_COMPOUND",
            "fields": [
                {"name": "n", "type": "H5T_STD_U16LE"},
                {"name": "t", "type": TEXT},
                {"name": "a", "type": {"class": "H5T_ARRAY", "dims": [3], "base": TEXT}},
            ],
        },
        np.dtype([("n", "<u2"), ("t", h5py.string_dtype()), ("a", h5py.string_dtype(), (3,))]),
    ),
    ({"class": "H5T_ARRAY", "dims": [2, 3], "base": "H5T_STD_I32LE"}, np.dtype(("<i4", (2, 3)))),
]


@pytest.mark.parametrize(("item", "dtype"), FILE_TYPES, ids=range(len(FILE_TYPES)))
def test_the_bytes_of_an_element_in_a_file(item: Any, dtype: Any) -> None:
    """libhdf5 tells how many it takes for a dataset's elements, its heaps not counted."""
    with h5py.File("none.h5", "w", driver="core", backing_store=False) as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        space = h5py.h5s.create_simple((7,))
        dataset = h5py.h5d.create(file.id, b"d", h5py.h5t.py_create(dtype, logical=True), space, properties)
        assert dataset.get_storage_size() == 7 * element_of(item).file_size


INT = {"class": "H5T_INTEGER", "base": "H5T_STD_I8LE"}
ENUM = {"class": "H5T_ENUM", "base": INT, "mapping": {"a": 1, "b": 2}}
REQUESTED_TYPE_TEXT = {
    "class": "H5T_STRING",
    "charSet": "H5T_CSET_UTF8",
    "length": "H5T_VARIABLE",
    "strPad": "H5T_STR_NULLTERM",
}
ALL: list[Any] = [
    "H5T_IEEE_F32BE",
    INT,
    ENUM,
    REQUESTED_TYPE_TEXT,
    INT | {"id": "t-1"},
    {"class": "H5T_ENUM", "base": INT, "members": [{"name": "a", "value": 1}]},
    {"class": "H5T_OPAQUE", "size": 7, "tag": "odd"},
    {"class": "H5T_VLEN", "size": "H5T_VARIABLE", "base": INT},
    {"class": "H5T_ARRAY", "dims": [2, 3], "base": REQUESTED_TYPE_TEXT},
    {"class": "H5T_REFERENCE", "base": "H5T_STD_REF_OBJ", "length": 48},
    {"class": "H5T_COMPOUND", "fields": [{"name": "a", "type": ENUM}, {"name": "t", "type": "H5T_STD_I8LE"}]},
]


def with_junk(item: Any) -> Any:
    """Return an item with keys that no type has, and with lists where a text belongs, at any depth."""
    if isinstance(item, list):
        return [with_junk(part) for part in item]
    if not isinstance(item, dict) or "FALSE" in item or "a" in item:
        return item
    junk = {"junk": "x" * 300_000} | ({"tag": ["x"]} if "class" in item and "tag" not in item else {})
    return {key: with_junk(value) for key, value in item.items()} | junk


@pytest.mark.parametrize("item", ALL, ids=str)
def test_unknown_keys_are_dropped(item: Any) -> None:
    assert parse_requested_type(item) == parse_type(item)
    assert parse_requested_type(with_junk(item)) == parse_type(item)


def test_an_enum_in_both_forms_is_kept_in_one() -> None:
    members = [{"name": "FALSE", "value": 0}]
    assert parse_requested_type(ENUM | {"members": members}).item == ENUM


@pytest.mark.parametrize(
    "item",
    [
        {
            "class": "H5T_ENUM",
            "base": INT,
            "mapping": {f"name of the value {n}": n % 9 for n in range(12_000)},
        },
        {"class": "H5T_OPAQUE", "size": 1, "tag": "x" * MAX_TEXT},
        {"class": "H5T_COMPOUND", "fields": [{"name": f"{n}" + "x" * 500, "type": INT} for n in range(500)]},
    ],
    ids=["enum", "tag", "names"],
)
def test_a_long_type_is_refused_though_a_stored_one_is_read(item: Any) -> None:
    with pytest.raises(TooLarge, match=str(MAX_TEXT)):
        parse_requested_type(item)
    assert parse_type(item).item == item


def deep(levels: int, dims: int) -> Any:
    """Return compounds of arrays in each other."""
    item: Any = "H5T_STD_I8LE"
    for _ in range(levels):
        array = {"class": "H5T_ARRAY", "base": item, "dims": [1] * dims}
        item = {"class": "H5T_COMPOUND", "fields": [{"name": "a", "type": array}]}
    return item


def lists(count: int) -> Any:
    value: Any = 0
    for _ in range(count):
        value = [value]
    return value


def test_elements_nested_too_deeply_are_refused() -> None:
    orjson.dumps({"attributes": [{"value": lists(MAX_RANK + 168)}]})
    assert parse_requested_type(deep(8, 20)).item_size == 1
    for item in (deep(8, 21), {"class": "H5T_VLEN", "base": deep(8, 20)}, deep(14, 30)):
        with pytest.raises(BadRequest, match="the limit is 168"):
            parse_requested_type(item)


FLOAT = "H5T_IEEE_F64LE"
PAIR = {
    "class": "H5T_COMPOUND",
    "fields": [{"name": "t", "type": text("H5T_VARIABLE")}, {"name": "f", "type": FLOAT}],
}
NON_FINITE_PLAIN = {
    "class": "H5T_COMPOUND",
    "fields": [{"name": "t", "type": text(3)}, {"name": "f", "type": FLOAT}],
}


@pytest.mark.parametrize(
    ("item", "rank", "value"),
    [
        (FLOAT, 0, math.inf),
        (FLOAT, 2, [[1.5, -math.inf]]),
        ({"class": "H5T_VLEN", "base": FLOAT}, 1, [[math.inf], []]),
        ({"class": "H5T_ARRAY", "dims": [2], "base": FLOAT}, 1, [[math.inf, 1.0]]),
        ({"class": "H5T_ARRAY", "dims": [1, 2], "base": PAIR}, 0, [[["inf", 1.0], ["nan", math.inf]]]),
        (PAIR, 1, [["nan", math.inf], ["x", 2.0]]),
        (NON_FINITE_PLAIN, 0, ["inf", -math.inf]),
        ({"class": "H5T_VLEN", "base": NON_FINITE_PLAIN}, 0, [["inf", -math.inf]]),
    ],
)
def test_floats_become_names_and_again_floats_and_text_stays(item: Any, rank: int, value: Any) -> None:
    element = parse_type(item).element
    assert has_floats(element)
    stored = name_non_finite(value)
    assert restore_non_finite(stored, element, rank) == value
    ignored = restore_non_finite(stored, element, rank, ignore_nan=True)
    assert repr(ignored) == repr(value).replace("-inf", "None").replace("inf", "None").replace(
        "'None'", "'inf'"
    )
