"""The attribute message of an object header (message 0x000C, versions 1 to 3).

H5.format.html, section IV.A.2.m. A committed datatype is given by its address. In files with shared messages, it
may have the location of the dataspace instead of the dataspace.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from hsparse.errors import Corrupt, TooLarge
from hsparse.format.dataspace_message import (
    ByteReader,
    decode_shape,
    encode_shape,
)
from hsparse.hdf5.format.file_fields import Addressed, Widths, decode_name, encode_name
from hsparse.hdf5.format.messages.datatype_message import decode_datatype
from hsparse.hdf5.format.messages.file_type import FileType
from hsparse.hdf5.format.object_header import SharedLocation, decode_shared_location
from hsparse.model.dataspace import Shape, num_elements

TYPE_IS_SHARED, DATASPACE_IS_SHARED = 1, 2
MAX_PART = 65_535
"""The maximum size in bytes of an attribute's name, of its datatype and of its dataspace."""


@dataclass(frozen=True, slots=True)
class AttributeMessage:
    """An attribute; `data` begins with its elements, and may be longer.

    If the datatype or dataspace is a shared message, `type` or `shape` is the location of the shared message.
    """

    name: str
    type: FileType | SharedLocation
    shape: Shape | SharedLocation
    data: memoryview | bytes

    def value(self, datatype: FileType, shape: Shape) -> bytes:
        """Return the bytes of the elements, given their type and dataspace; raises `Corrupt` if `data` is too short."""
        size = num_elements(shape) * datatype.size
        if size > len(self.data):
            raise Corrupt(
                f"The attribute {self.name!r} has {len(self.data)} bytes; its elements need {size}."
            )
        return bytes(self.data[:size])


def decode_attribute(message: ByteReader, widths: Widths) -> AttributeMessage:
    """Decode an attribute message; raises `Corrupt`."""
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


def attribute_head(message: ByteReader) -> bytes:
    """Return the bytes of an attribute message that precede the attribute's value; raises `Corrupt`."""
    version, _ = message.numbers(2, 1, "attribute's header")
    sizes = message.numbers(3, 2, "attribute's header")
    message.take(1 if version == 3 else 0, "attribute's character set")
    for size in sizes:
        message.take(size + (-size % 8 if version == 1 else 0), "attribute's head")
    return bytes(message.data[: message.place])


def encode_attribute(
    name: str, datatype: Addressed, shape: Shape, data: Addressed, *, shared: bool = False
) -> Addressed:
    """Encode an attribute message of version 3, the first version in which names need not be ASCII.

    `datatype` is the datatype message or, if `shared`, its location. Raises `TooLarge` if the name, datatype or
    dataspace has more than 65535 bytes.
    """
    title = encode_name(name) + b"\0"
    dataspace = encode_shape(shape)
    sizes = [len(title), len(datatype.data), len(dataspace)]
    for size, what in zip(sizes, ("name", "datatype", "dataspace"), strict=True):
        if size > MAX_PART:
            raise TooLarge(
                f"The {what} of attribute {name[:80]!r} has {size} bytes; the limit is {MAX_PART}."
            )
    head = struct.pack("<BBHHHB", 3, TYPE_IS_SHARED if shared else 0, *sizes, 0 if name.isascii() else 1)
    return Addressed.join((Addressed(head + title), datatype, Addressed(dataspace), data))
