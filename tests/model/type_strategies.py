"""Random type items, nested, with values of theirs as JSON; and the length-prefixed form written down once more."""

from __future__ import annotations

import base64
import struct
from math import prod
from typing import Any

import numpy as np
from hypothesis import strategies as st

from hsparse.model.link import region_bytes
from tests.support.characters import characters_but

Item = Any
NUMBERS = {
    "H5T_STD_I8LE": "<i1",
    "H5T_STD_U16BE": ">u2",
    "H5T_STD_I32LE": "<i4",
    "H5T_STD_U64LE": "<u8",
    "H5T_IEEE_F16LE": "<f2",
    "H5T_IEEE_F32BE": ">f4",
    "H5T_IEEE_F64LE": "<f8",
}
BOOLEAN = {
    "class": "H5T_ENUM",
    "base": {"class": "H5T_INTEGER", "base": "H5T_STD_I8LE"},
    "members": [{"name": "FALSE", "value": 0}, {"name": "TRUE", "value": 1}],
}
ENUM = {
    "class": "H5T_ENUM",
    "base": {"class": "H5T_INTEGER", "base": "H5T_STD_I16BE"},
    "mapping": {"a": -3, "b": 700},
}
OBJECT = {"class": "H5T_REFERENCE", "base": "H5T_STD_REF_OBJ"}
REGION = {"class": "H5T_REFERENCE", "base": "H5T_STD_REF_DSETREG"}
ID = "d-1c2d3e4f-00112233-4455-667788-99aabb"
TEXT = st.text(characters_but("\0"), max_size=6)


def text(length: int | str, charset: str = "H5T_CSET_UTF8") -> Item:
    return {"class": "H5T_STRING", "charSet": charset, "strPad": "H5T_STR_NULLPAD", "length": length}


LEAVES = st.sampled_from(
    [
        *NUMBERS,
        text(5),
        text("H5T_VARIABLE"),
        text("H5T_VARIABLE", "H5T_CSET_ASCII"),
        BOOLEAN,
        ENUM,
        OBJECT,
        REGION,
        {"class": "H5T_BITFIELD", "base": "H5T_STD_B16LE"},
        {"class": "H5T_OPAQUE", "size": 3, "tag": "x"},
    ]
)
NAMES = st.sampled_from(["a", "b", "größe", "x y", "日本"])


def _compounds(inner: st.SearchStrategy[Item]) -> st.SearchStrategy[Item]:
    fields = st.dictionaries(NAMES, inner, min_size=1, max_size=3)
    return fields.map(
        lambda some: {
            "class": "H5T_COMPOUND",
            "fields": [{"name": name, "type": item} for name, item in some.items()],
        }
    )


ITEMS = st.recursive(
    LEAVES,
    lambda inner: (
        inner.map(lambda base: {"class": "H5T_VLEN", "base": base})
        | st.tuples(inner, st.lists(st.integers(1, 3), min_size=1, max_size=2)).map(
            lambda pair: {"class": "H5T_ARRAY", "base": pair[0], "dims": pair[1]}
        )
        | _compounds(inner)
    ),
    max_leaves=5,
)


def values_of(item: Item) -> st.SearchStrategy[Any]:
    """Return a strategy of elements of a type, as JSON."""
    if isinstance(item, str):
        dtype = np.dtype(NUMBERS[item])
        if dtype.kind == "f":
            return st.floats(width=8 * dtype.itemsize, allow_nan=False, allow_infinity=False)
        limits = np.iinfo(dtype)
        return st.integers(int(limits.min), int(limits.max))
    match item["class"]:
        case "H5T_STRING" if item["length"] == "H5T_VARIABLE":
            return TEXT
        case "H5T_STRING":
            return TEXT.filter(lambda value: len(value.encode()) <= item["length"])
        case "H5T_ENUM":
            return st.booleans() if item is BOOLEAN else st.sampled_from([-3, 700])
        case "H5T_BITFIELD":
            return st.integers(0, 2**16 - 1)
        case "H5T_OPAQUE":
            raw = st.binary(min_size=item["size"], max_size=item["size"])
            return raw.map(lambda data: base64.b64encode(data).decode() if any(data) else "")
        case "H5T_REFERENCE":
            return st.sampled_from(["", "datasets/" + ID]) if item == OBJECT else regions()
        case "H5T_VLEN":
            return st.lists(values_of(item["base"]), max_size=3)
        case "H5T_ARRAY":
            return nested(values_of(item["base"]), item["dims"])
    return st.tuples(*(values_of(field["type"]) for field in item["fields"])).map(list)


def regions() -> st.SearchStrategy[Any]:
    blocks = [[[0, 1], [2, 5]]]
    uuid = ID.removeprefix("d-")
    whole = {"id": uuid}
    part = {"id": uuid, "select_type": "H5S_SEL_HYPERSLABS", "selection": blocks}
    points = {"id": uuid, "select_type": "H5S_SEL_POINTS", "selection": [[0, 3], [4, 1]]}
    return st.sampled_from([None, whole, part, points])


def nested(values: st.SearchStrategy[Any], dims: list[int] | tuple[int, ...]) -> st.SearchStrategy[Any]:
    """Return a strategy of lists of `dims`, nested."""
    for dim in reversed(dims):
        values = st.lists(values, min_size=dim, max_size=dim)
    return values


def length_prefixed(item: Item, value: Any) -> bytes:
    """Return the length-prefixed form of one element: the model that the codec is compared with."""
    if isinstance(item, str):
        return np.array(value, NUMBERS[item]).tobytes()
    match item["class"]:
        case "H5T_STRING" if item["length"] == "H5T_VARIABLE":
            return _run(value.encode())
        case "H5T_STRING":
            return value.encode().ljust(item["length"], b"\0")
        case "H5T_ENUM":
            return struct.pack("?" if item is BOOLEAN else ">h", value)
        case "H5T_BITFIELD":
            return struct.pack("<H", value)
        case "H5T_OPAQUE":
            return base64.b64decode(value).ljust(item["size"], b"\0")
        case "H5T_REFERENCE":
            return value.encode().ljust(48, b"\0") if item == OBJECT else _run(region_bytes(value))
        case "H5T_VLEN":
            return _run(b"".join(length_prefixed(item["base"], one) for one in value))
        case "H5T_ARRAY":
            for _ in item["dims"][1:]:
                value = [one for row in value for one in row]
            assert len(value) == prod(item["dims"])
            return b"".join(length_prefixed(item["base"], one) for one in value)
    return b"".join(
        length_prefixed(field["type"], one) for field, one in zip(item["fields"], value, strict=True)
    )


def _run(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + data
