"""The datatype message: all classes and versions 1 to 5, converted to and from HDF5/JSON items.

H5.format.html, IV.A.2.d. Compound members have array fields and padded names in version 1, padded names in version 2,
and neither arrays nor padding in later versions. Version 4 adds revised references, version 5 complex numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any, Literal

from hsparse.errors import BadRequest, Corrupt, Unsupported
from hsparse.format.dataspace_message import ByteReader
from hsparse.hdf5.format.file_fields import decode_name, encode_name, width_of
from hsparse.hdf5.format.messages.file_type import (
    OBJECT_REFERENCE,
    REGION_REFERENCE,
    STD_REFERENCE,
    FileType,
    dims_of_array,
    names_of_enum,
    packed_places,
)
from hsparse.model.datatype import MAX_DEPTH
from hsparse.model.element import MAX_ARRAY_RANK, element_of

CLASSES = (
    "H5T_INTEGER",
    "H5T_FLOAT",
    "H5T_TIME",
    "H5T_STRING",
    "H5T_BITFIELD",
    "H5T_OPAQUE",
    "H5T_COMPOUND",
    "H5T_REFERENCE",
    "H5T_ENUM",
    "H5T_VLEN",
    "H5T_ARRAY",
    "H5T_COMPLEX",
)
PADDINGS = ("H5T_STR_NULLTERM", "H5T_STR_NULLPAD", "H5T_STR_SPACEPAD")
CHARSETS = ("H5T_CSET_ASCII", "H5T_CSET_UTF8")
SIGNED = 8
HIGHEST_BIT = 0x20
"""The mantissa normalization of IEEE floats: the highest bit is implied to be set and is not stored."""
FLOATS = {
    2: struct.pack("<HHBBBBI", 0, 16, 10, 5, 0, 10, 15),
    4: struct.pack("<HHBBBBI", 0, 32, 23, 8, 0, 23, 127),
    8: struct.pack("<HHBBBBI", 0, 64, 52, 11, 0, 52, 1023),
}
"""Maps a float's size to: bit offset, precision, exponent location and size, mantissa location and size, bias."""
NAME_WINDOW = 64
UNSIGNED_BYTE = b"\x10\0\0\0\1\0\0\0\0\0\x08\0"
"""The base type that libhdf5 writes for vlen strings."""
MAX_TAG = 248


@dataclass(frozen=True, slots=True)
class _TypeHead:
    """The head of a type: version, class number, bit field, element size in bytes. `depth` is the nesting level."""

    version: int
    kind: int
    bits: int
    size: int
    depth: int

    @property
    def name(self) -> str:
        return CLASSES[self.kind]

    @property
    def order(self) -> str:
        return "BE" if self.bits & 1 else "LE"

    def described(self, properties: bytes) -> FileType:
        """Return the type of a number that no predefined type describes: its item has the fields of the message."""
        item = {"class": self.name, "size": self.size, "bits": self.bits, "properties": properties.hex()}
        return FileType(item, self.size)


def decode_datatype(message: ByteReader, depth: int = 0) -> FileType:
    """Decode a datatype, which other bytes may follow; raises `Corrupt`, or `Unsupported` if HDF5/JSON lacks it."""
    if depth > MAX_DEPTH:
        raise Corrupt(f"The type in the {message.subject} is nested more than {MAX_DEPTH} deep.")
    first, low, middle, high = message.numbers(4, 1, "datatype")
    head = _TypeHead(
        first >> 4, first & 15, low | middle << 8 | high << 16, message.number(4, "datatype"), depth
    )
    if not 1 <= head.version <= 5 or head.kind >= len(CLASSES) or not head.size:
        raise Corrupt(
            f"The {message.subject} has a type of version {head.version}, class {head.kind} and "
            f"{head.size} bytes; there are versions 1 to 5, classes 0 to {len(CLASSES) - 1}."
        )
    return _DECODERS[head.kind](head, message)


def _decode_integer(head: _TypeHead, message: ByteReader) -> FileType:
    properties = bytes(message.take(4, "number's properties"))
    signed = head.kind == 0 and head.bits & SIGNED
    whole = properties == struct.pack("<HH", 0, 8 * head.size & 0xFFFF)
    if head.size not in (1, 2, 4, 8) or not whole or head.bits & ~(1 | SIGNED):
        return head.described(properties)
    letter = "B" if head.kind else "I" if signed else "U"
    item = {"class": head.name, "base": f"H5T_STD_{letter}{8 * head.size}{head.order}"}
    return FileType(item, head.size)


def _decode_float(head: _TypeHead, message: ByteReader) -> FileType:
    properties = bytes(message.take(12, "float's properties"))
    sign = 8 * head.size - 1
    if FLOATS.get(head.size) != properties or head.bits & ~1 != HIGHEST_BIT | sign << 8:
        return head.described(properties)
    item = {"class": head.name, "base": f"H5T_IEEE_F{8 * head.size}{head.order}"}
    return FileType(item, head.size)


def _decode_time(head: _TypeHead, message: ByteReader) -> FileType:
    return head.described(bytes(message.take(2, "time's precision")))


def _text(head: _TypeHead, pad: int, charset: int, length: int | str) -> dict[str, Any]:
    if pad >= len(PADDINGS) or charset >= len(CHARSETS):
        raise Corrupt(f"A string type has the unknown padding {pad} or character set {charset}.")
    return {
        "class": "H5T_STRING",
        "charSet": CHARSETS[charset],
        "strPad": PADDINGS[pad],
        "length": length,
    }


def _decode_string(head: _TypeHead, message: ByteReader) -> FileType:
    return FileType(_text(head, head.bits & 15, head.bits >> 4 & 15, head.size), head.size)


def _decode_opaque(head: _TypeHead, message: ByteReader) -> FileType:
    tag = bytes(message.take(head.bits & 255, "opaque type's tag")).partition(b"\0")[0]
    item = {"class": head.name, "size": head.size, "tag": decode_name(tag)}
    return FileType(item, head.size)


def _decode_compound(head: _TypeHead, message: ByteReader) -> FileType:
    fields: list[dict[str, Any]] = []
    parts, offsets = [], []
    for _ in range(head.bits & 0xFFFF):
        name = _name(head, message)
        offset = message.number(4 if head.version < 3 else width_of(head.size), "member's offset")
        dims = _old_dims(message) if head.version == 1 else ()
        part = decode_datatype(message, head.depth + 1)
        if dims:
            array = {"class": "H5T_ARRAY", "dims": list(dims), "base": part.item}
            part = FileType(array, prod(dims) * part.size, (part,))
        if offset + part.size > head.size:
            raise Corrupt(
                f"The member {name!r} of a compound in the {message.subject} ends at {offset + part.size}, "
                f"beyond the compound's {head.size} bytes."
            )
        fields.append({"name": name, "type": part.item})
        parts.append(part)
        offsets.append(offset)
    ends = sorted((offset, offset + part.size) for part, offset in zip(parts, offsets, strict=True))
    if any(end > begin for (_, end), (begin, _) in pairwise(ends)):
        raise Corrupt(f"Members of a compound in the {message.subject} overlap.")
    if not fields or len({field["name"] for field in fields}) < len(fields):
        raise Corrupt(f"A compound in the {message.subject} has no members, or two members of the same name.")
    item: dict[str, Any] = {"class": head.name, "fields": fields}
    found = FileType(item, head.size, tuple(parts), tuple(offsets))
    if packed_places(parts) != (head.size, tuple(offsets)):
        item["size"] = head.size
        for field, offset in zip(fields, offsets, strict=True):
            field["offset"] = offset
    return found


def _old_dims(message: ByteReader) -> tuple[int, ...]:
    rank = message.number(1, "member's dimensionality")
    message.take(11, "member's permutation")
    dims = message.numbers(4, 4, "member's dimensions")
    if rank > 4 or not all(dims[:rank]):
        raise Corrupt(f"A member in the {message.subject} has {rank} dimensions of {dims}; up to 4, none 0.")
    return dims[:rank]


def _decode_reference(head: _TypeHead, message: ByteReader) -> FileType:
    kind = head.bits & 15
    if head.bits == 0 or head.bits == 1:
        return FileType({"class": head.name, "base": (OBJECT_REFERENCE, REGION_REFERENCE)[kind]}, head.size)
    if head.version < 4 or kind not in (2, 3, 4):
        raise Corrupt(f"The {message.subject} has a reference type of kind {kind}, version {head.version}.")
    return FileType({**head.described(b"").item, "base": STD_REFERENCE}, head.size)


def _decode_enum(head: _TypeHead, message: ByteReader) -> FileType:
    base = decode_datatype(message, head.depth + 1)
    names = [_name(head, message) for _ in range(head.bits & 0xFFFF)]
    values = message.take(len(names) * base.size, "enum's values")
    if base.item["class"] != "H5T_INTEGER" or base.size != head.size:
        raise Corrupt(f"An enum of {head.size} bytes in the {message.subject} is based on {base.item}.")
    if "base" not in base.item:
        raise Unsupported(f"The {message.subject} has an enum whose base is not predefined: {base.item}.")
    if len(set(names)) < len(names) or not names:
        raise Corrupt(f"An enum in the {message.subject} has no names, or the same name twice.")
    numbers = [
        int.from_bytes(
            values[place : place + base.size],
            _order(base),
            signed=base.item["base"].startswith("H5T_STD_I"),
        )
        for place in range(0, len(values), base.size)
    ]
    item = {"class": head.name, "base": base.item, "mapping": dict(zip(names, numbers, strict=True))}
    return FileType(item, head.size, (base,))


def _order(base: FileType) -> Literal["big", "little"]:
    return "big" if base.item["base"].endswith("BE") else "little"


def _decode_vlen(head: _TypeHead, message: ByteReader) -> FileType:
    base = decode_datatype(message, head.depth + 1)
    if head.bits & 15 == 1:
        item = _text(head, head.bits >> 4 & 15, head.bits >> 8 & 15, "H5T_VARIABLE")
        return FileType(item, head.size)
    if head.bits & 15:
        raise Corrupt(f"The {message.subject} has a variable-length type of kind {head.bits & 15}.")
    return FileType({"class": head.name, "base": base.item}, head.size, (base,))


def _decode_array(head: _TypeHead, message: ByteReader) -> FileType:
    rank = message.number(1, "array's rank")
    if head.version < 3:
        message.take(3, "array's rank")
    dims = message.numbers(rank, 4, "array's dimensions")
    if head.version < 3:
        message.take(4 * rank, "array's permutation")
    base = decode_datatype(message, head.depth + 1)
    if not 0 < rank <= MAX_ARRAY_RANK or not all(dims) or prod(dims) * base.size != head.size:
        raise Corrupt(
            f"An array in the {message.subject} has {head.size} bytes, but dimensions {dims} of {base.size} bytes."
        )
    return FileType({"class": head.name, "dims": list(dims), "base": base.item}, head.size, (base,))


def _decode_complex(head: _TypeHead, message: ByteReader) -> FileType:
    base = decode_datatype(message, head.depth + 1)
    if head.version < 5 or base.item["class"] != "H5T_FLOAT" or 2 * base.size != head.size:
        raise Corrupt(f"A complex number of {head.size} bytes in the {message.subject} is of {base.item}.")
    return FileType({"class": head.name, "base": base.item}, head.size, (base,))


def _name(head: _TypeHead, message: ByteReader) -> str:
    length, window = -1, NAME_WINDOW
    while length < 0:  # most names are short: the window grows, so that few bytes are copied for each
        rest = bytes(message.data[message.place : message.place + window])
        length = rest.find(b"\0")
        if length < 0 and len(rest) < window:
            raise Corrupt(f"The {message.subject} ends inside the name of a member.")
        window *= 8
    whole = length + 1 if head.version >= 3 else (length + 8) // 8 * 8
    return decode_name(message.take(whole, "member's name")[:length])


_DECODERS: tuple[Callable[[_TypeHead, ByteReader], FileType], ...] = (
    _decode_integer,
    _decode_float,
    _decode_time,
    _decode_string,
    _decode_integer,
    _decode_opaque,
    _decode_compound,
    _decode_reference,
    _decode_enum,
    _decode_vlen,
    _decode_array,
    _decode_complex,
)


# --- writing --------------------------------------------------------------------------------------


def encode_datatype(datatype: FileType, *, latest: bool = False) -> bytes:
    """Encode a type in the earliest message version that can describe it; with `latest`, in version 3 or later."""
    return _encode(datatype, 3 if latest else 1)


def _has(datatype: FileType, kind: str) -> bool:
    return datatype.item["class"] == kind or any(_has(part, kind) for part in datatype.parts)


def _encode(datatype: FileType, version: int) -> bytes:
    item = datatype.item
    if _has(datatype, "H5T_COMPLEX"):
        version = 5
    elif version < 3:  # a type that contains an array needs version 2 at all levels
        version = 2 if _has(datatype, "H5T_ARRAY") else 1
    kind = item["class"]
    if "bits" in item:
        return _head(4 if kind == "H5T_REFERENCE" else 1, datatype, item["bits"]) + bytes.fromhex(
            item["properties"]
        )
    return _ENCODERS[kind](datatype, version)


def _head(version: int, datatype: FileType, bits: int) -> bytes:
    kind = CLASSES.index(datatype.item["class"])
    return bytes((version << 4 | kind, *bits.to_bytes(3, "little"))) + struct.pack("<I", datatype.size)


def _encode_number(datatype: FileType, version: int) -> bytes:
    dtype = element_of(datatype.item).dtype
    bits = 1 if datatype.item["base"].endswith("BE") else 0
    if dtype.kind == "f":
        bits |= HIGHEST_BIT | 8 * dtype.itemsize - 1 << 8
        return _head(1, datatype, bits) + FLOATS[dtype.itemsize]
    bits |= SIGNED if dtype.kind == "i" else 0
    return _head(1, datatype, bits) + struct.pack("<HH", 0, 8 * dtype.itemsize)


def _encode_string(datatype: FileType, version: int) -> bytes:
    padding = datatype.item.get("strPad")
    pad = PADDINGS.index(padding if padding in PADDINGS else PADDINGS[1])
    charset = CHARSETS.index(datatype.item["charSet"])
    if datatype.item["length"] != "H5T_VARIABLE":
        return _head(1, datatype, pad | charset << 4)
    head = _head(1, datatype, 1 | pad << 4 | charset << 8)
    return bytes((0x10 | CLASSES.index("H5T_VLEN"),)) + head[1:] + UNSIGNED_BYTE


def _encode_opaque(datatype: FileType, version: int) -> bytes:
    tag = encode_name(datatype.item.get("tag", ""))[:MAX_TAG]
    tag += bytes(-len(tag) % 8)
    return _head(1, datatype, len(tag)) + tag


def _encode_compound(datatype: FileType, version: int) -> bytes:
    pieces = [_head(version, datatype, _count(datatype.parts))]
    width = 4 if version < 3 else width_of(datatype.size)
    for field, part, offset in zip(datatype.item["fields"], datatype.parts, datatype.offsets, strict=True):
        pieces += [_encode_name(field["name"], version), offset.to_bytes(width, "little")]
        pieces += [bytes(28)] if version == 1 else []
        pieces.append(_encode(part, version))
    return b"".join(pieces)


def _encode_reference(datatype: FileType, version: int) -> bytes:
    return _head(1, datatype, 1 if datatype.item["base"] == REGION_REFERENCE else 0)


def _encode_enum(datatype: FileType, version: int) -> bytes:
    (base,) = datatype.parts
    names = names_of_enum(datatype.item)
    dtype = element_of(base.item).dtype
    values = [value.to_bytes(base.size, _order(base), signed=dtype.kind == "i") for value in names.values()]
    spelled = [_encode_name(name, version) for name in names]
    return b"".join((_head(version, datatype, _count(names)), _encode(base, version), *spelled, *values))


def _encode_vlen(datatype: FileType, version: int) -> bytes:
    return _head(version, datatype, 0) + _encode(datatype.parts[0], version)


def _encode_array(datatype: FileType, version: int) -> bytes:
    dims = dims_of_array(datatype.item)
    version = max(version, 2)
    numbers = struct.pack(f"<{len(dims)}I", *dims)
    rank = bytes((len(dims),))
    old = rank + bytes(3) + numbers + struct.pack(f"<{len(dims)}I", *range(len(dims)))
    return (
        _head(version, datatype, 0)
        + (old if version == 2 else rank + numbers)
        + _encode(datatype.parts[0], version)
    )


def _encode_complex(datatype: FileType, version: int) -> bytes:
    return _head(5, datatype, 1) + _encode(datatype.parts[0], version)


def _count(some: Any) -> int:
    if len(some) > 0xFFFF:
        raise BadRequest(f"A type in a file can have at most 65535 members, not {len(some)}.")
    return len(some)


def _encode_name(name: str, version: int) -> bytes:
    data = encode_name(name)
    return data + (b"\0" if version >= 3 else bytes(8 - len(data) % 8))


_ENCODERS: dict[str, Callable[[FileType, int], bytes]] = {
    "H5T_INTEGER": _encode_number,
    "H5T_FLOAT": _encode_number,
    "H5T_STRING": _encode_string,
    "H5T_BITFIELD": _encode_number,
    "H5T_OPAQUE": _encode_opaque,
    "H5T_COMPOUND": _encode_compound,
    "H5T_REFERENCE": _encode_reference,
    "H5T_ENUM": _encode_enum,
    "H5T_VLEN": _encode_vlen,
    "H5T_ARRAY": _encode_array,
    "H5T_COMPLEX": _encode_complex,
}
