"""The messages that any object can have: attributes, reference count, modification time.

H5.format.html, IV.A.2.m (attribute, message 0x000C), versions 1 to 3: name, datatype, dataspace and the elements'
bytes. If the datatype is committed, the message has its address; in files with shared messages the dataspace may be
elsewhere too. IV.A.2.w (reference count, 0x0016): headers of version 1 have it in their prefix. IV.A.2.o
(modification time in digits, 0x000E) and IV.A.2.s (0x0012), in seconds since 1970 (UTC).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import UTC, datetime

from hsparse.errors import Corrupt, TooLarge
from hsparse.format.dataspace_message import ByteReader, decode_shape, encode_shape
from hsparse.format.hdf5.addressed import Addressed
from hsparse.format.hdf5.file_fields import Widths, decode_name, encode_name
from hsparse.format.hdf5.messages.datatype_message import decode_datatype
from hsparse.format.hdf5.messages.file_type import FileType
from hsparse.format.hdf5.shared_messages import SharedLocation, decode_shared_location
from hsparse.model.dataspace import Shape, num_elements

TYPE_IS_SHARED, DATASPACE_IS_SHARED = 1, 2
MAX_PART = 65_535
"""Bytes of a name, a datatype or a dataspace."""


@dataclass(frozen=True, slots=True)
class AttributeMessage:
    """`type` and `shape` are locations if they are shared. `data` may be longer than the elements."""

    name: str
    type: FileType | SharedLocation
    shape: Shape | SharedLocation
    data: memoryview | bytes

    def value(self, datatype: FileType, shape: Shape) -> bytes:
        """Return the elements' bytes, given type and dataspace; raises `Corrupt` when there are too few."""
        size = num_elements(shape) * datatype.size
        if size > len(self.data):
            raise Corrupt(
                f"The attribute {self.name!r} has {len(self.data)} bytes; its elements need {size}."
            )
        return bytes(self.data[:size])


def decode_attribute(message: ByteReader, widths: Widths) -> AttributeMessage:
    """Read an attribute; raises `Corrupt`."""
    version, flags = message.numbers(2, 1, "attribute's header")
    if not 1 <= version <= 3 or (version > 1 and flags & ~(TYPE_IS_SHARED | DATASPACE_IS_SHARED)):
        raise Corrupt(f"The {message.subject} has an attribute of version {version} with flags {flags}.")
    flags = flags if version > 1 else 0
    sizes = message.numbers(3, 2, "attribute's header")
    if version == 3:
        message.take(1, "attribute's character set")
    parts = []
    for size, what in zip(sizes, ("name", "datatype", "dataspace"), strict=True):
        data = message.take(size + (-size % 8 if version == 1 else 0), f"attribute's {what}")[:size]
        parts.append(ByteReader(data, subject=f"attribute in the {message.subject}"))
    name, datatype, dataspace = parts
    return AttributeMessage(
        decode_name(bytes(name.data).partition(b"\0")[0]),
        decode_shared_location(datatype, widths) if flags & TYPE_IS_SHARED else decode_datatype(datatype),
        decode_shared_location(dataspace, widths)
        if flags & DATASPACE_IS_SHARED
        else decode_shape(dataspace, widths.length),
        message.take(message.left, "attribute's value"),
    )


def encode_attribute(
    name: str, datatype: Addressed, shape: Shape, data: Addressed, *, shared: bool = False
) -> Addressed:
    """Return the message, version 3: the first with names that are not ASCII.

    `datatype` is its message or, if `shared`, its location. `TooLarge` for a name or type beyond 65535 bytes.
    """
    title = encode_name(name) + b"\0"
    dataspace = encode_shape(shape)
    sizes = [len(title), len(datatype.data), len(dataspace)]
    for size, what in zip(sizes, ("name", "datatype", "dataspace"), strict=True):
        if size > MAX_PART:
            raise TooLarge(
                f"The {what} of attribute {name[:80]!r} has {size} bytes; a file takes {MAX_PART}."
            )
    head = struct.pack("<BBHHHB", 3, TYPE_IS_SHARED if shared else 0, *sizes, 0 if name.isascii() else 1)
    return Addressed.join((Addressed(head + title), datatype, Addressed(dataspace), data))


def decode_reference_count(message: ByteReader) -> int:
    """Read the message; raises `Corrupt`."""
    version = message.number(1, "reference count")
    if version:
        raise Corrupt(f"The {message.subject} has a reference count of version {version}; only 0 exists.")
    return message.number(4, "reference count")


def encode_reference_count(count: int) -> bytes:
    """Return the message."""
    return struct.pack("<BI", 0, count)


def decode_time(message: ByteReader) -> int:
    """Read message 0x0012; raises `Corrupt`."""
    version = message.number(1, "modification time")
    if version != 1:
        raise Corrupt(f"The {message.subject} has a modification time of version {version}; only 1 exists.")
    message.take(3, "modification time")
    return message.number(4, "modification time")


def decode_old_time(message: ByteReader) -> int:
    """Read message 0x000E, `YYYYMMDDhhmmss`; raises `Corrupt`."""
    digits = bytes(message.take(14, "modification time")).decode("ascii", "replace")
    try:
        return int(datetime.strptime(digits, "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp())
    except ValueError as error:
        raise Corrupt(f"The {message.subject} has the modification time {digits!r}.") from error
