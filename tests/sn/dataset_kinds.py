"""Types and layouts of datasets, as requests have them."""

from __future__ import annotations

from typing import Any

I8, I16, I32, I64, U8 = "H5T_STD_I8LE", "H5T_STD_I16LE", "H5T_STD_I32LE", "H5T_STD_I64LE", "H5T_STD_U8LE"
F32, F64 = "H5T_IEEE_F32LE", "H5T_IEEE_F64LE"
TEXT = {
    "class": "H5T_STRING",
    "charSet": "H5T_CSET_UTF8",
    "strPad": "H5T_STR_NULLTERM",
    "length": "H5T_VARIABLE",
}
"""Text of any length."""


def chunked(*dims: int) -> dict[str, Any]:
    """Return a layout of dense chunks of these dimensions."""
    return {"class": "H5D_CHUNKED", "dims": list(dims)}


def sparse(*dims: int) -> dict[str, Any]:
    """Return a sparse layout of these chunk dimensions."""
    return {"class": "H5D_STRUCT_CHUNK", "dims": list(dims), "flags": ["H5D_SPARSE_DATA"]}


def compound(**fields: Any) -> dict[str, Any]:
    """Return a compound type of these fields."""
    return {"class": "H5T_COMPOUND", "fields": [{"name": name, "type": fields[name]} for name in fields]}


def array_of(base: Any, *dims: int) -> dict[str, Any]:
    """Return an array type."""
    return {"class": "H5T_ARRAY", "base": base, "dims": list(dims)}


def vlen_of(base: Any) -> dict[str, Any]:
    """Return the type of sequences of any length."""
    return {"class": "H5T_VLEN", "base": base}
