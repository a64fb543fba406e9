"""Convert fixed-size numpy dtypes, the types of sparse values, to HDF5/JSON type items and back.

Complex numbers are compounds of `r` and `i`, as in h5py. A compound with gaps has the offsets of its fields.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from hsparse.errors import Unsupported
from hsparse.model.datatype import has_gaps

COMPLEX = ("r", "i")
"""The field names of a complex number."""
INTEGERS = {"i": "I", "u": "U"}
MEMBERS = [{"name": "FALSE", "value": 0}, {"name": "TRUE", "value": 1}]


def type_item(dtype: np.dtype[Any]) -> dict[str, Any]:
    """Return the HDF5/JSON type item of a dtype; raise `Unsupported` for a dtype without a fixed-size HDF5 type."""
    if dtype.subdtype is not None:
        base, dims = dtype.subdtype
        return {"class": "H5T_ARRAY", "dims": list(dims), "base": type_item(base)}
    if dtype.names is not None:
        return _compound_item(dtype)
    end = "BE" if dtype.str.startswith(">") else "LE"
    bits = dtype.itemsize * 8
    if dtype.kind in INTEGERS:
        return {"class": "H5T_INTEGER", "base": f"H5T_STD_{INTEGERS[dtype.kind]}{bits}{end}"}
    if dtype.kind == "f" and bits in (16, 32, 64):
        return {"class": "H5T_FLOAT", "base": f"H5T_IEEE_F{bits}{end}"}
    if dtype.kind == "c" and bits in (64, 128):
        return type_item(np.dtype([(name, f"{dtype.str[0]}f{dtype.itemsize // 2}") for name in COMPLEX]))
    if dtype.kind == "b":
        return {"class": "H5T_ENUM", "base": type_item(np.dtype("i1")), "members": MEMBERS}
    if dtype.kind == "S" and dtype.itemsize:
        string = {"class": "H5T_STRING", "length": dtype.itemsize, "charSet": "H5T_CSET_ASCII"}
        return string | {"strPad": "H5T_STR_NULLPAD"}
    if dtype.kind == "V" and dtype.itemsize:
        return {"class": "H5T_OPAQUE", "size": dtype.itemsize, "tag": ""}
    raise Unsupported(
        f"Values of dtype {dtype} have no fixed-size HDF5 type here: use numbers, bool, byte strings (S) or "
        "compounds of them."
    )


def _compound_item(dtype: np.dtype[Any]) -> dict[str, Any]:
    fields: list[dict[str, Any]] = [
        {"name": name, "type": type_item(dtype[name])} for name in dtype.names or ()
    ]
    item = {"class": "H5T_COMPOUND", "fields": fields}
    assert dtype.fields is not None
    offsets, end = [dtype.fields[field["name"]][1] for field in fields], 0
    for field, offset in zip(fields, offsets, strict=True):
        if offset != end:
            break
        end += dtype[field["name"]].itemsize
    if offsets == sorted(offsets) and end == dtype.itemsize:
        return item
    for field, offset in zip(fields, offsets, strict=True):
        field["offset"] = offset
    return item | {"size": dtype.itemsize}


def dtype_of(item: Any) -> np.dtype[Any]:
    """Return the dtype of an HDF5/JSON type item; raise `Unsupported` if it has no fixed size or no numpy dtype."""
    if isinstance(item, str):
        return _predefined(item)
    kind = item.get("class")
    if kind == "H5T_COMPOUND":
        return _compound_dtype(item)
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


def _compound_dtype(item: Any) -> np.dtype[Any]:
    names = [field["name"] for field in item["fields"]]
    dtypes = [dtype_of(field["type"]) for field in item["fields"]]
    if names == list(COMPLEX) and dtypes[0] == dtypes[1] and dtypes[0].str[1:] in ("f4", "f8"):
        return np.dtype(f"{dtypes[0].str[0]}c{2 * dtypes[0].itemsize}")
    if not has_gaps(item):
        return np.dtype(list(zip(names, dtypes, strict=True)))
    offsets = [field["offset"] for field in item["fields"]]
    return np.dtype({"names": names, "formats": dtypes, "offsets": offsets, "itemsize": item["size"]})


def base_and_dims(dtype: DTypeLike | None) -> tuple[DTypeLike | None, tuple[int, ...]]:
    """Return the base and the dimensions of an array dtype; for any other dtype return the dtype and ()."""
    dims = () if dtype is None else np.dtype(dtype).shape
    return (np.dtype(dtype).base, dims) if dims else (dtype, ())


def packed(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype without gaps between fields, at any depth, as elements are encoded in requests."""
    if dtype.subdtype is not None:
        return np.dtype((packed(dtype.base), dtype.shape))
    if dtype.names is None:
        return dtype
    return np.dtype([(name, packed(dtype[name])) for name in dtype.names])


def complex_fields(values: NDArray[Any]) -> NDArray[Any]:
    """Return values with records of `r` and `i`, at any depth, converted to complex numbers."""
    if values.dtype.names is None or values.dtype.hasobject:
        return values
    dtype = dtype_of(type_item(values.dtype))
    if dtype == values.dtype:
        return values
    return values.astype(packed(values.dtype)).view(packed(dtype)).astype(dtype, copy=False)


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
    """Return whether a type is the usual boolean of HDF5 files: an enum of one byte with FALSE = 0 and TRUE = 1."""
    if not isinstance(item, dict) or item.get("class") != "H5T_ENUM" or dtype_of(item["base"]).itemsize != 1:
        return False
    members = item.get("members", item.get("mapping"))
    if isinstance(members, list):
        members = {member["name"]: member["value"] for member in members}
    return members == {"FALSE": 0, "TRUE": 1}
