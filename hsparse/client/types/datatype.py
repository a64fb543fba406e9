"""Fixed-size numpy dtypes, the types of sparse values, as HDF5/JSON type items, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from hsparse.errors import Unsupported

INTEGERS = {"i": "I", "u": "U"}
MEMBERS = [{"name": "FALSE", "value": 0}, {"name": "TRUE", "value": 1}]


def type_item(dtype: np.dtype[Any]) -> dict[str, Any]:
    """Return the item of a dtype: numbers, bool, byte strings, arrays and compounds; else `Unsupported`."""
    if dtype.subdtype is not None:
        base, dims = dtype.subdtype
        return {"class": "H5T_ARRAY", "dims": list(dims), "base": type_item(base)}
    if dtype.names is not None:
        fields = [{"name": name, "type": type_item(dtype[name])} for name in dtype.names]
        return {"class": "H5T_COMPOUND", "fields": fields}
    end = "BE" if dtype.str.startswith(">") else "LE"
    bits = dtype.itemsize * 8
    if dtype.kind in INTEGERS:
        return {"class": "H5T_INTEGER", "base": f"H5T_STD_{INTEGERS[dtype.kind]}{bits}{end}"}
    if dtype.kind == "f" and bits in (16, 32, 64):
        return {"class": "H5T_FLOAT", "base": f"H5T_IEEE_F{bits}{end}"}
    if dtype.kind == "b":
        return {"class": "H5T_ENUM", "base": type_item(np.dtype("i1")), "members": MEMBERS}
    if dtype.kind == "S" and dtype.itemsize:
        string = {"class": "H5T_STRING", "length": dtype.itemsize, "charSet": "H5T_CSET_ASCII"}
        return string | {"strPad": "H5T_STR_NULLPAD"}
    raise Unsupported(
        f"Values of dtype {dtype} have no fixed-size HDF5 type here; use numbers, bool, byte strings (S) or "
        "compounds of them."
    )


def dtype_of(item: Any) -> np.dtype[Any]:
    """Return the dtype of an item; `Unsupported` without a fixed size or a numpy form."""
    if isinstance(item, str):
        return _predefined(item)
    kind = item.get("class")
    if kind == "H5T_COMPOUND":
        return np.dtype([(field["name"], dtype_of(field["type"])) for field in item["fields"]])
    if kind == "H5T_ARRAY":
        dims = item["dims"]
        return np.dtype((dtype_of(item["base"]), tuple(dims) if isinstance(dims, list) else (dims,)))
    if kind == "H5T_STRING" and isinstance(item.get("length"), int):
        return np.dtype(f"S{item['length']}")
    if kind == "H5T_ENUM":
        base = dtype_of(item["base"])
        return np.dtype(np.bool_) if is_boolean(item) else base
    if kind in ("H5T_INTEGER", "H5T_FLOAT"):
        return dtype_of(item["base"])
    raise Unsupported(f"Values of type {kind} have no fixed-size numpy dtype here; read them with h5pyd.")


def _predefined(name: str) -> np.dtype[Any]:
    """Return the dtype of a predefined type such as `H5T_STD_I32LE`."""
    family, _, rest = name.removeprefix("H5T_").partition("_")
    kinds = {"STD": {"I": "i", "U": "u"}, "IEEE": {"F": "f"}}.get(family, {})
    ends = {"LE": "<", "BE": ">"}
    kind, bits, end = kinds.get(rest[:1]), rest[1:-2], ends.get(rest[-2:])
    if kind is None or end is None or bits not in ("8", "16", "32", "64"):
        raise Unsupported(f"The type {name} has no fixed-size numpy dtype here; read it with h5pyd.")
    return np.dtype(f"{end}{kind}{int(bits) // 8}")


def is_boolean(item: Any) -> bool:
    """Say whether a type is the usual boolean of HDF5 files: an enum of one byte in which FALSE is 0, TRUE is 1."""
    if not isinstance(item, dict) or item.get("class") != "H5T_ENUM" or dtype_of(item["base"]).itemsize != 1:
        return False
    members = item.get("members", item.get("mapping"))
    if isinstance(members, list):
        members = {member["name"]: member["value"] for member in members}
    return members == {"FALSE": 0, "TRUE": 1}
