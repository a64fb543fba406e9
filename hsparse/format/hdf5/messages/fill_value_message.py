"""The fill value message, versions 1 to 3, and the old one.

H5.format.html, IV.A.2.f (message 0x0005) and IV.A.2.e (message 0x0004).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from hsparse.errors import Corrupt
from hsparse.format.dataspace_message import ByteReader

EARLY, LATE, INCREMENTAL = 1, 2, 3
"""When space is allocated; 0 is not decided."""
ON_ALLOCATION, NEVER, IF_SET = 0, 1, 2
"""When the fill value is written."""


@dataclass(frozen=True, slots=True)
class FillValue:
    """`value` is one element's bytes in the file's type: empty for the default of zeros, None when undefined."""

    value: bytes | None = b""
    allocation: int = LATE
    writing: int = IF_SET


ZERO_FILL = FillValue()


def decode_fill(message: ByteReader) -> FillValue:
    """Read message 0x0005; raises `Corrupt`."""
    version = message.number(1, "fill value's version")
    if version == 3:
        flags = message.number(1, "fill value's flags")
        value: bytes | None = b""
        if flags & 0x10:
            value = None
        elif flags & 0x20:
            value = _value(message)
        return FillValue(value, flags & 3, flags >> 2 & 3)
    if version not in (1, 2):
        raise Corrupt(f"The {message.subject} has a fill value message of version {version}; 1 to 3 exist.")
    allocation, writing, defined = message.numbers(3, 1, "fill value's times")
    has_value = defined or version == 1
    return FillValue(_value(message) if has_value else None, allocation & 3, writing & 3)


def decode_old_fill(message: ByteReader) -> FillValue:
    """Read message 0x0004; raises `Corrupt`."""
    return FillValue(_value(message))


def encode_fill(fill: FillValue, version: int = 2) -> bytes:
    """Return message 0x0005 of version 2 or 3."""
    if version == 2:
        times = struct.pack("<BBBB", 2, fill.allocation, fill.writing, fill.value is not None)
        return times if fill.value is None else times + struct.pack("<I", len(fill.value)) + fill.value
    flags = fill.allocation | fill.writing << 2
    if not fill.value:
        return bytes((3, flags | (0x10 if fill.value is None else 0)))
    return struct.pack("<BBI", 3, flags | 0x20, len(fill.value)) + fill.value


def _value(message: ByteReader) -> bytes | None:
    size = message.number(4, "fill value's size")
    if size == 2**32 - 1:  # -1, undefined
        return None
    return bytes(message.take(size, "fill value"))
