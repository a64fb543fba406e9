"""Types that clients send: what is kept of them, and which are refused."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from hsparse.errors import BadRequest, TooLarge
from hsparse.model.dataspace import MAX_RANK
from hsparse.model.datatype import MAX_TEXT, parse_requested_type, parse_type

INT = {"class": "H5T_INTEGER", "base": "H5T_STD_I8LE"}
ENUM = {"class": "H5T_ENUM", "base": INT, "mapping": {"a": 1, "b": 2}}
TEXT = {
    "class": "H5T_STRING",
    "charSet": "H5T_CSET_UTF8",
    "length": "H5T_VARIABLE",
    "strPad": "H5T_STR_NULLTERM",
}
ALL: list[Any] = [
    "H5T_IEEE_F32BE",
    INT,
    ENUM,
    TEXT,
    INT | {"id": "t-1"},
    {"class": "H5T_ENUM", "base": INT, "members": [{"name": "a", "value": 1}]},
    {"class": "H5T_OPAQUE", "size": 7, "tag": "odd"},
    {"class": "H5T_VLEN", "size": "H5T_VARIABLE", "base": INT},
    {"class": "H5T_ARRAY", "dims": [2, 3], "base": TEXT},
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
