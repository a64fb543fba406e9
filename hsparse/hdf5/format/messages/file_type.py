"""A datatype in a file: its HDF5/JSON item, and the size and member offsets of elements.

An element in a file may have gaps, and vlen values in it are references into a global heap. Its size and the offsets of
its members can therefore differ from `hsparse.model.element`.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import prod
from typing import Any

from hsparse.errors import BadRequest, Unsupported
from hsparse.format.fields import NULL_TERMINATED, SPACE_PADDED
from hsparse.model.datatype import has_gaps
from hsparse.model.element import element_of

OBJECT_REFERENCE_SIZE = 8
REGION_REFERENCE_SIZE = 12
VLEN_SIZE = 16
"""The size in bytes of a vlen sequence or string in an element: a length, and an address and index in a heap."""
OBJECT_REFERENCE, REGION_REFERENCE, STD_REFERENCE = "H5T_STD_REF_OBJ", "H5T_STD_REF_DSETREG", "H5T_STD_REF"


@dataclass(frozen=True, slots=True)
class FileType:
    """The type of elements of `size` bytes in a file; `item` is the HDF5/JSON item, which must not be modified.

    `parts` are a compound's members, or the base of an enum, array, sequence or complex number. `offsets` are a
    compound's member offsets in bytes. `bits` are the bit offset and precision of an integer, or None for all bits.
    The item of a number that no predefined type describes has the fields of its datatype message (`size`, `bits`,
    `properties`) instead of a base: servers do not support such a type, but it can be written to a file again.
    """

    item: Any
    size: int
    parts: tuple[FileType, ...] = ()
    offsets: tuple[int, ...] = ()
    bits: tuple[int, int] | None = None


CARRIED = re.compile(r"HDF5 (H5T_\w+) bits=([0-9a-f]{6}) properties=([0-9a-f]*)")
"""Matches the tag of an imported opaque type; the tag describes an original type that servers do not support."""
PROPERTIES = {"H5T_INTEGER": 4, "H5T_BITFIELD": 4, "H5T_FLOAT": 12, "H5T_TIME": 2}
"""Maps each class of types that `CARRIED` can describe to the size in bytes of its properties."""


def carrying_tag(item: Any) -> str | None:
    """Return the tag of an opaque type that replaces a number with `bits` and `properties`; None for other classes."""
    if item["class"] not in PROPERTIES:
        return None
    return f"HDF5 {item['class']} bits={item['bits']:06x} properties={item['properties']}"


def _carried(item: Any) -> Any:
    """Return the type that the tag of an opaque item describes, or the item itself if its tag describes no type."""
    found = CARRIED.fullmatch(item.get("tag") or "")
    if found is None or PROPERTIES.get(found[1]) != len(found[3]) / 2:
        return item
    return {"class": found[1], "size": item["size"], "bits": int(found[2], 16), "properties": found[3]}


def file_type(item: Any) -> FileType:
    """Return the `FileType` of a valid type item; raises `Unsupported`, naming the type, if files cannot have it."""
    if isinstance(item, str):
        return file_type({"class": _class_of(item), "base": item})
    if item["class"] == "H5T_COMPOUND":
        return _compound(item)
    if item["class"] in ("H5T_VLEN", "H5T_ARRAY", "H5T_ENUM", "H5T_COMPLEX"):
        base = file_type(item["base"])
        if item["class"] == "H5T_VLEN":
            size = VLEN_SIZE
        elif item["class"] == "H5T_ARRAY":
            size = prod(dims_of_array(item)) * base.size
        else:
            size = base.size * (2 if item["class"] == "H5T_COMPLEX" else 1)
        return FileType({**item, "base": base.item}, size, (base,))
    if item["class"] == "H5T_OPAQUE":
        item = _carried(item)
    return FileType(item, _size(item))


def dims_of_array(item: Any) -> tuple[int, ...]:
    """Return the dimensions of an array type's item."""
    dims = item["dims"]
    return (dims,) if isinstance(dims, int) else tuple(dims)


def names_of_enum(item: Any) -> dict[str, int]:
    """Return a dict that maps each name of an enum type's item to its value."""
    mapping = item["mapping"] if "mapping" in item else item["members"]
    if isinstance(mapping, dict):
        return mapping
    return {one["name"]: one["value"] for one in mapping}


def is_packed(datatype: FileType) -> bool:
    """Return whether elements have neither gaps nor unused bits at any depth."""
    if datatype.bits is not None:
        return False
    end = 0
    for part, offset in zip(datatype.parts, datatype.offsets, strict=False):
        if offset != end:
            return False
        end += part.size
    whole = datatype.size == end or not datatype.offsets
    return whole and all(map(is_packed, datatype.parts))


def is_byte_identical(datatype: FileType) -> bool:
    """Return whether elements have the same bytes in a file and in hsparse.

    Elements in hsparse have no gaps, addresses or references to a heap, and fixed-length text is padded with zeros.
    """
    return is_packed(datatype) and not has_addresses(datatype) and not has_padding(datatype)


def is_written_as_stored(datatype: FileType) -> bool:
    """Return whether the bytes that hsparse stores for elements can be written to a file unchanged.

    hsparse stores fixed-length text with zero padding, which is valid in files unless the type is space-padded.
    """
    return is_packed(datatype) and not has_addresses(datatype) and not has_padding(datatype, (SPACE_PADDED,))


def has_addresses(datatype: FileType) -> bool:
    """Return whether elements contain addresses in a file, because they have references or vlen values at any depth."""
    item = datatype.item
    if item["class"] in ("H5T_VLEN", "H5T_REFERENCE") or item.get("length") == "H5T_VARIABLE":
        return True
    return any(map(has_addresses, datatype.parts))


def has_padding(datatype: FileType, kinds: Container[str] = (NULL_TERMINATED, SPACE_PADDED)) -> bool:
    """Return whether elements have fixed-length text with one of the paddings `kinds`, at any depth."""
    item = datatype.item
    if item["class"] == "H5T_STRING" and item["length"] != "H5T_VARIABLE" and item.get("strPad") in kinds:
        return True
    return any(has_padding(part, kinds) for part in datatype.parts)


def has_references(datatype: FileType) -> bool:
    """Return whether elements have object or region references, at any depth."""
    return datatype.item["class"] == "H5T_REFERENCE" or any(map(has_references, datatype.parts))


def _compound(item: Any) -> FileType:
    parts = tuple(file_type(field["type"]) for field in item["fields"])
    pairs = zip(item["fields"], parts, strict=True)
    fields = [{**field, "type": part.item} for field, part in pairs]
    found: Any = {**item, "fields": fields}
    if has_gaps(item):
        offsets = tuple(field["offset"] for field in fields)
        places = sorted((at, at + part.size) for part, at in zip(parts, offsets, strict=True))
        bounds = [*places, (item["size"], 0)]
        if all(end <= begin for (_, end), (begin, _) in pairwise(bounds)):
            return FileType(found, item["size"], parts, offsets)
        found = without_gaps(found)  # the offsets do not fit the sizes that members have in a file
    size, offsets = packed_places(parts)
    return FileType(found, size, parts, offsets)


def packed_places(parts: Sequence[FileType]) -> tuple[int, tuple[int, ...]]:
    """Return a pair for a compound without gaps: its size, and the offsets of its members, in bytes."""
    ends = list(accumulate((part.size for part in parts), initial=0))
    return ends[-1], tuple(ends[:-1])


def without_gaps(item: Any) -> Any:
    """Return a type's item without the sizes and offsets that define gaps in compounds."""
    if not isinstance(item, dict):
        return item
    if item["class"] == "H5T_COMPOUND":
        fields = [{"name": one["name"], "type": without_gaps(one["type"])} for one in item["fields"]]
        return {"class": item["class"], "fields": fields}
    return {**item, "base": without_gaps(item["base"])} if "base" in item else item


def _size(item: Any) -> int:
    kind = item["class"]
    if "bits" in item:
        return int(item["size"])
    if kind == "H5T_STRING":
        return VLEN_SIZE if item["length"] == "H5T_VARIABLE" else int(item["length"])
    if kind == "H5T_OPAQUE":
        return int(item["size"])
    if kind == "H5T_REFERENCE":
        sizes = {OBJECT_REFERENCE: OBJECT_REFERENCE_SIZE, REGION_REFERENCE: REGION_REFERENCE_SIZE}
        if item["base"] not in sizes:
            raise Unsupported(
                f"References of type {item['base']} cannot be written; use {OBJECT_REFERENCE} or {REGION_REFERENCE}."
            )
        return sizes[item["base"]]
    return element_of(item).dtype.itemsize


def _class_of(name: str) -> str:
    if name.startswith("H5T_IEEE_F"):
        return "H5T_FLOAT"
    if name.startswith("H5T_STD_B"):
        return "H5T_BITFIELD"
    if name.startswith(("H5T_STD_I", "H5T_STD_U")):
        return "H5T_INTEGER"
    raise BadRequest(f"{name} is not the name of a predefined type such as H5T_STD_I32LE.")
