"""Elements of other types than their virtual dataset's; what libhdf5 makes of them is in `test_virtual_data.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hsparse.errors import Unsupported
from hsparse.hdf5.format.messages.file_type import file_type
from hsparse.hdf5.importer.convert_elements import convert_elements

NUMBERS = (
    "H5T_STD_I8LE",
    "H5T_STD_U16BE",
    "H5T_STD_I64LE",
    "H5T_STD_U64LE",
    "H5T_IEEE_F32BE",
    "H5T_IEEE_F64LE",
)


def item(name: str) -> Any:
    return file_type(name).item


def text(length: Any, pad: str) -> Any:
    return {"class": "H5T_STRING", "charSet": "H5T_CSET_ASCII", "strPad": f"H5T_STR_{pad}", "length": length}


def enum(base: str, **members: int) -> Any:
    mapping = [{"name": name, "value": value} for name, value in members.items()]
    return file_type({"class": "H5T_ENUM", "base": item(base), "members": mapping}).item


@pytest.mark.parametrize("source", NUMBERS)
@pytest.mark.parametrize("target", NUMBERS)
def test_numbers_that_both_types_have(source: str, target: str) -> None:
    one, other = (np.dtype(_dtype(name)) for name in (source, target))
    values = np.array([0, 1, 100, 127], one)
    found = convert_elements(values, item(source), item(target))
    assert found.dtype == other
    assert found.tolist() == values.tolist()


def _dtype(name: str) -> str:
    kind, bits = name.rpartition("_")[2][0].lower(), name.rpartition("_")[2][1:-2]
    return f"{'>' if name.endswith('BE') else '<'}{kind}{int(bits) // 8}"


@pytest.mark.parametrize(
    ("source", "target", "value", "found"),
    [
        ("NULLPAD", "NULLPAD", b"abcdef", b"abcd"),
        ("NULLPAD", "NULLTERM", b"abcdef", b"abc\0"),
        ("NULLTERM", "NULLPAD", b"ab\0def", b"ab\0\0"),
        ("SPACEPAD", "NULLPAD", b"ab    ", b"ab\0\0"),
        ("NULLPAD", "SPACEPAD", b"ab\0\0\0\0", b"ab\0\0"),
        ("NULLPAD", "SPACEPAD", b"abcdef", b"abcd"),
    ],
)
def test_texts(source: str, target: str, value: bytes, found: bytes) -> None:
    values = np.frombuffer(value, "S6")
    assert convert_elements(values, text(6, source), text(4, target)).tobytes() == found


def test_a_text_of_one_byte_that_ends_with_zero() -> None:
    values = np.array([b"abc"])
    assert convert_elements(values, text(3, "NULLPAD"), text(1, "NULLTERM")).tobytes() == b"\0"


def test_enumerations_and_arrays() -> None:
    small, large = enum("H5T_STD_I8LE", a=1, b=2), enum("H5T_STD_I32BE", b=2, a=1)
    found = convert_elements(np.array([1, 2], "i1"), small, large)
    assert (found.dtype, found.tolist()) == (np.dtype(">i4"), [1, 2])
    arrays = [
        {"class": "H5T_ARRAY", "dims": [2], "base": item(base)} for base in ("H5T_STD_I64LE", "H5T_STD_I8LE")
    ]
    assert convert_elements(np.array([[1, 300]]), *arrays).tolist() == [[1, 127]]


INT = item("H5T_STD_I32LE")
VLEN = {"class": "H5T_VLEN", "base": INT}


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (INT, text(4, "NULLPAD")),
        (text("H5T_VARIABLE", "NULLTERM"), text(4, "NULLPAD")),
        (VLEN, INT),
        (VLEN, {"class": "H5T_VLEN", "base": item("H5T_STD_I8LE")}),
        (enum("H5T_STD_I8LE", a=1), enum("H5T_STD_I8LE", a=2)),
        (enum("H5T_STD_I8LE", a=1), INT),
        ({"class": "H5T_ARRAY", "dims": [2], "base": INT}, {"class": "H5T_ARRAY", "dims": [3], "base": INT}),
    ],
)
def test_what_does_not_convert(source: Any, target: Any) -> None:
    with pytest.raises(Unsupported, match="cannot be converted"):
        convert_elements(np.zeros(1, "i4"), source, target)
