from __future__ import annotations

from typing import Any

import pytest

from hsparse.cli.tree.server_tree import filters_text, shape_text, size_text, time_text, type_text


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (5 << 40, "5.0 TiB"),
        (1 << 61, "2048.0 PiB"),
    ],
)
def test_sizes(nbytes: int, text: str) -> None:
    assert size_text(nbytes, human=True) == text
    assert size_text(nbytes, human=False) == str(nbytes)


def test_times_are_utc() -> None:
    assert time_text(1_700_000_000.9) == "2023-11-14T22:13:20Z"


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ({"class": "H5S_NULL"}, "{null}"),
        ({"class": "H5S_SCALAR"}, "{scalar}"),
        ({"class": "H5S_SIMPLE", "dims": [3, 4]}, "{3, 4}"),
        ({"class": "H5S_SIMPLE", "dims": [3, 4, 5], "maxdims": [3, 0, 9]}, "{3, 4/Inf, 5/9}"),
        ({"class": "H5S_SIMPLE", "dims": [3], "maxdims": ["H5S_UNLIMITED"]}, "{3/Inf}"),
    ],
)
def test_shapes(shape: dict[str, Any], text: str) -> None:
    assert shape_text(shape) == text


INTEGER = {"class": "H5T_INTEGER", "base": "H5T_STD_I8LE"}


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ("H5T_STD_I8LE", "H5T_STD_I8LE"),
        (INTEGER, "H5T_STD_I8LE"),
        ({"class": "H5T_STRING", "length": 5}, "string(5)"),
        ({"class": "H5T_STRING", "length": "H5T_VARIABLE"}, "string"),
        ({"class": "H5T_VLEN", "base": INTEGER}, "vlen(H5T_STD_I8LE)"),
        ({"class": "H5T_ARRAY", "base": INTEGER, "dims": [2, 3]}, "H5T_STD_I8LE[2, 3]"),
        ({"class": "H5T_ENUM", "base": INTEGER, "mapping": {"A": 0}}, "enum(H5T_STD_I8LE)"),
        ({"class": "H5T_OPAQUE", "size": 7}, "opaque(7)"),
        ({"class": "H5T_REFERENCE", "base": "H5T_STD_REF_OBJ"}, "reference(H5T_STD_REF_OBJ)"),
        ({"class": "H5T_COMPOUND", "fields": [{"name": "a", "type": INTEGER}]}, "{a: H5T_STD_I8LE}"),
    ],
)
def test_types(item: Any, text: str) -> None:
    assert type_text(item) == text


def test_filters() -> None:
    filters = [
        {"class": "H5Z_FILTER_SHUFFLE", "id": 2},
        {"class": "H5Z_FILTER_DEFLATE", "name": "gzip", "level": 4, "section": "H5_SECTION_FIXED"},
        "lzf",
    ]
    assert filters_text(filters) == "shuffle, gzip=4 (fixed), lzf"
