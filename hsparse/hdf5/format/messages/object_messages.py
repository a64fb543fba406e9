"""Messages of an object header: reference count, modification time and fill value.

Sections of H5.format.html: reference count IV.A.2.w (0x0016), modification time IV.A.2.s (0x0012) and IV.A.2.o (0x000E,
old), fill value IV.A.2.f (0x0005, versions 1 to 3) and IV.A.2.e (0x0004, old). Object headers of version 1 have the
reference count in their prefix.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import UTC, datetime

from hsparse.errors import Corrupt
from hsparse.format.dataspace_message import (
    ByteReader,
)


def decode_reference_count(message: ByteReader) -> int:
    """Decode a reference count message; raises `Corrupt`."""
    version = message.number(1, "reference count")
    if version:
        raise Corrupt(f"The {message.subject} has a reference count of version {version}; only 0 is known.")
    return message.number(4, "reference count")


def encode_reference_count(count: int) -> bytes:
    """Encode a reference count message."""
    return struct.pack("<BI", 0, count)


def decode_time(message: ByteReader) -> int:
    """Decode message 0x0012; return the modification time in seconds since 1970 (UTC). Raises `Corrupt`."""
    version = message.number(1, "modification time")
    if version != 1:
        raise Corrupt(f"The {message.subject} has a modification time of version {version}; only 1 is known.")
    message.take(3, "modification time")
    return message.number(4, "modification time")


def decode_old_time(message: ByteReader) -> int:
    """Decode message 0x000E, digits `YYYYMMDDhhmmss` (UTC); return seconds since 1970. Raises `Corrupt`."""
    digits = bytes(message.take(14, "modification time")).decode("ascii", "replace")
    try:
        return int(datetime.strptime(digits, "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp())
    except ValueError as error:
        raise Corrupt(f"The {message.subject} has the modification time {digits!r}.") from error


EARLY, LATE, INCREMENTAL = 1, 2, 3
"""The numbers of the times at which space for data is allocated; 0 means that no time is chosen."""
ON_ALLOCATION, NEVER, IF_SET = 0, 1, 2
"""The numbers of the times at which fill values are written."""


@dataclass(frozen=True, slots=True)
class FillValue:
    """A fill value; `value` are the bytes of one element in the file, empty for zeros, or None if undefined."""

    value: bytes | None = b""
    allocation: int = LATE
    writing: int = IF_SET


ZERO_FILL = FillValue()


def decode_fill(message: ByteReader) -> FillValue:
    """Decode message 0x0005, a fill value; raises `Corrupt`."""
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
    """Decode message 0x0004, an old fill value; raises `Corrupt`."""
    return FillValue(_value(message))


def encode_fill(fill: FillValue, version: int = 2) -> bytes:
    """Encode message 0x0005, a fill value, in version 2 or 3."""
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
