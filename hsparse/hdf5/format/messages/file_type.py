"""A datatype in a file: its HDF5/JSON item, and where the parts of an element lie in its bytes.

An element of a file may have gaps, and its variable-length parts are references into a global heap; so its size
and the offsets of its fields differ from those of `hsparse.model.element`.
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
"""Bytes of a sequence or string of variable length: its count, and address and index in a global heap."""
OBJECT_REFERENCE, REGION_REFERENCE, STD_REFERENCE = "H5T_STD_REF_OBJ", "H5T_STD_REF_DSETREG", "H5T_STD_REF"


@dataclass(frozen=True, slots=True)
class FileType:
    """`size` bytes of an element of type `item` (not to be modified).

    `parts` are a compound's members, or the base of an enum, array, sequence or complex number; `offsets` are
    those of a compound's members, in bytes. The item of a number that no predefined type describes has no base
    but `size`, `bits` and `properties`, the fields of its datatype message: no server has such a type, but a
    file written with it has it again. `bits` are the offset and the precision of an integer in its bytes, None where it
    takes them all.
    """

    item: Any
    size: int
    parts: tuple[FileType, ...] = ()
    offsets: tuple[int, ...] = ()
    bits: tuple[int, int] | None = None


CARRIED = re.compile(r"HDF5 (H5T_\w+) bits=([0-9a-f]{6}) properties=([0-9a-f]*)")
"""The tag of opaque elements that are of a type which no server has."""
PROPERTIES = {"H5T_INTEGER": 4, "H5T_BITFIELD": 4, "H5T_FLOAT": 12, "H5T_TIME": 2}
"""Bytes of the properties of such types."""


def carrying_tag(item: Any) -> str | None:
    """Return the tag of opaque elements that carry a described type, None where none can."""
    if item["class"] not in PROPERTIES:
        return None
    return f"HDF5 {item['class']} bits={item['bits']:06x} properties={item['properties']}"


def _carried(item: Any) -> Any:
    """Return the described type that an opaque item carries, or the item."""
    found = CARRIED.fullmatch(item.get("tag") or "")
    if found is None or PROPERTIES.get(found[1]) != len(found[3]) / 2:
        return item
    return {"class": found[1], "size": item["size"], "bits": int(found[2], 16), "properties": found[3]}


def file_type(item: Any) -> FileType:
    """Return a valid type item's elements without gaps; `Unsupported` names a part that no file can have."""
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
    """Return an enum item's values by name."""
    mapping = item["mapping"] if "mapping" in item else item["members"]
    if isinstance(mapping, dict):
        return mapping
    return {one["name"]: one["value"] for one in mapping}


def is_packed(datatype: FileType) -> bool:
    """Say whether elements have no gaps, at any depth, nor unused bits."""
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
    """Say whether elements are the same bytes in a file as in hsparse.

    Those have no gaps, heap places and addresses, and behind text of a fixed length they have zeros.
    """
    return is_packed(datatype) and not has_addresses(datatype) and not has_padding(datatype)


def is_written_as_stored(datatype: FileType) -> bool:
    """Say whether elements of hsparse may stand in a file as they are: the zeros behind a text end it there, too."""
    return is_packed(datatype) and not has_addresses(datatype) and not has_padding(datatype, (SPACE_PADDED,))


def has_addresses(datatype: FileType) -> bool:
    """Say whether elements have addresses in a file: references, and parts of variable length."""
    item = datatype.item
    if item["class"] in ("H5T_VLEN", "H5T_REFERENCE") or item.get("length") == "H5T_VARIABLE":
        return True
    return any(map(has_addresses, datatype.parts))


def has_padding(datatype: FileType, kinds: Container[str] = (NULL_TERMINATED, SPACE_PADDED)) -> bool:
    """Say whether elements have text of a fixed length, at any depth, behind which there may be more than zeros."""
    item = datatype.item
    if item["class"] == "H5T_STRING" and item["length"] != "H5T_VARIABLE" and item.get("strPad") in kinds:
        return True
    return any(has_padding(part, kinds) for part in datatype.parts)


def has_references(datatype: FileType) -> bool:
    """Say whether elements have references to objects or regions, at any depth."""
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
        found = without_gaps(found)  # not those of a file
    size, offsets = packed_places(parts)
    return FileType(found, size, parts, offsets)


def packed_places(parts: Sequence[FileType]) -> tuple[int, tuple[int, ...]]:
    """Return the size of a compound without gaps, and its members' offsets."""
    ends = list(accumulate((part.size for part in parts), initial=0))
    return ends[-1], tuple(ends[:-1])


def without_gaps(item: Any) -> Any:
    """Return a type's item without the gaps of its compounds."""
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
    raise BadRequest(f"{name} is not the name of a predefined type.")
