"""Types that no server has, as types that it has: what an import makes of them.

Integers of fewer bits than their bytes become whole ones of the same values, as h5py reads them; HDF5's complex numbers
become compounds of r and i. Times, and floats and integers of other sizes, become opaque elements of the same bytes,
whose tag says the type, so that a file of them has it again (`hsparse.hdf5.format.messages.file_type`).
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

from hsparse.hdf5.format.messages.file_type import FileType, carrying_tag
from hsparse.hdf5.format.parse.parsed_object import ParsedObject

WHOLE_SIZES = (1, 2, 4, 8)
LETTERS = {"H5T_INTEGER": "U", "H5T_BITFIELD": "B"}
SIGNED = 8


def carried_object(found: ParsedObject) -> ParsedObject:
    """Return an object whose types a server has, as far as there are any for them."""
    dataset = found.dataset
    return replace(
        found,
        attributes=tuple(replace(one, type=carried_type(one.type)) for one in found.attributes),
        dataset=None if dataset is None else replace(dataset, type=carried_type(dataset.type)),
        type=None if found.type is None else carried_type(found.type),
    )


def carried_type(stored: FileType) -> FileType:
    """Return the type that an import gives elements of type `stored`, with their places in the file."""
    item = stored.item
    kind = item["class"]
    if "bits" in item:
        return _described(stored)
    parts = tuple(map(carried_type, stored.parts))
    if kind == "H5T_COMPLEX":
        part = parts[0]
        fields = [{"name": name, "type": part.item} for name in ("r", "i")]
        return FileType(
            {"class": "H5T_COMPOUND", "fields": fields}, stored.size, (part, part), (0, part.size)
        )
    if parts == stored.parts:
        return stored
    changed: dict[str, Any] = {"base": parts[0].item}
    if kind == "H5T_COMPOUND":
        pairs = zip(item["fields"], parts, strict=True)
        changed = {"fields": [{**field, "type": part.item} for field, part in pairs]}
    return replace(stored, item={**item, **changed}, parts=parts)


def _described(stored: FileType) -> FileType:
    item, kind = stored.item, stored.item["class"]
    properties = bytes.fromhex(item["properties"])
    if kind in LETTERS and stored.size in WHOLE_SIZES:
        offset, precision = struct.unpack("<HH", properties)
        letter = "I" if kind == "H5T_INTEGER" and item["bits"] & SIGNED else LETTERS[kind]
        name = f"H5T_STD_{letter}{8 * stored.size}{'BE' if item['bits'] & 1 else 'LE'}"
        if precision and offset + precision <= 8 * stored.size:
            return FileType({"class": kind, "base": name}, stored.size, bits=(offset, precision))
    tag = carrying_tag(item)
    return (
        stored
        if tag is None
        else FileType({"class": "H5T_OPAQUE", "size": stored.size, "tag": tag}, stored.size)
    )
