"""Object header messages: attribute, reference count, modification time, fill value and filter pipelines.

Attribute (H5.format.html, IV.A.2.m, message 0x000C), versions 1 to 3: name, datatype, dataspace and the elements'
bytes. If the datatype is committed, the message has its address; in files with shared messages, the message may have
the location of the dataspace. Reference count (IV.A.2.w, 0x0016): headers of version 1 have it in their prefix.
Modification time: IV.A.2.o (0x000E) in digits, IV.A.2.s (0x0012) in seconds since 1970 (UTC). Fill value: IV.A.2.f
(0x0005), versions 1 to 3, and IV.A.2.e (0x0004), the old one. Filter pipeline: IV.A.2.l (0x000B), versions 1 and 2;
names of filters are informative, so known names are written, and all names are ignored when read.

Pipelines of a structured chunk's sections (RFC "File Format Changes for Enabling Sparse Storage in HDF5") are one
message of a dataset: in RFC version 17, section 3.1.2, a separate message, version 0, without a type; in version 28
version 3 of the filter pipeline message; in the library's prototype message 0x0019, version 1. All have the same body,
which describes filters as version 2 of the filter pipeline message does.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from hsparse.errors import BadRequest, Corrupt, TooLarge
from hsparse.format.buffer import Buffer
from hsparse.format.dataspace_message import (
    NEWEST_REVISION,
    ByteReader,
    FormatRevision,
    decode_shape,
    encode_shape,
)
from hsparse.format.filters.definition import Filter
from hsparse.format.filters.filters_json import MAX_FILTERS
from hsparse.format.filters.pipeline import BY_ID
from hsparse.hdf5.format.file_fields import Addressed, Widths, decode_name, encode_name
from hsparse.hdf5.format.messages.datatype_message import decode_datatype
from hsparse.hdf5.format.messages.file_type import FileType
from hsparse.hdf5.format.object_header import SharedLocation, decode_shared_location
from hsparse.model.dataspace import Shape, num_elements

TYPE_IS_SHARED, DATASPACE_IS_SHARED = 1, 2
MAX_PART = 65_535
"""The largest size in bytes of an attribute's name, datatype or dataspace."""


@dataclass(frozen=True, slots=True)
class AttributeMessage:
    """An attribute; a shared `type` or `shape` is its location. `data` may be longer than the elements."""

    name: str
    type: FileType | SharedLocation
    shape: Shape | SharedLocation
    data: memoryview | bytes

    def value(self, datatype: FileType, shape: Shape) -> bytes:
        """Return the bytes of the elements of this type and dataspace; raises `Corrupt` if `data` is too short."""
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
    """Return the bytes of an attribute message that precede the value; raises `Corrupt`."""
    version, _ = message.numbers(2, 1, "attribute's header")
    sizes = message.numbers(3, 2, "attribute's header")
    message.take(1 if version == 3 else 0, "attribute's character set")
    for size in sizes:
        message.take(size + (-size % 8 if version == 1 else 0), "attribute's head")
    return bytes(message.data[: message.place])


def encode_attribute(
    name: str, datatype: Addressed, shape: Shape, data: Addressed, *, shared: bool = False
) -> Addressed:
    """Encode an attribute message of version 3, the first version with names that are not ASCII.

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


def decode_reference_count(message: ByteReader) -> int:
    """Decode a reference count message; raises `Corrupt`."""
    version = message.number(1, "reference count")
    if version:
        raise Corrupt(f"The {message.subject} has a reference count of version {version}; only 0 exists.")
    return message.number(4, "reference count")


def encode_reference_count(count: int) -> bytes:
    """Encode a reference count message."""
    return struct.pack("<BI", 0, count)


def decode_time(message: ByteReader) -> int:
    """Decode message 0x0012, the modification time in seconds since 1970 (UTC); raises `Corrupt`."""
    version = message.number(1, "modification time")
    if version != 1:
        raise Corrupt(f"The {message.subject} has a modification time of version {version}; only 1 exists.")
    message.take(3, "modification time")
    return message.number(4, "modification time")


def decode_old_time(message: ByteReader) -> int:
    """Decode message 0x000E, digits `YYYYMMDDhhmmss` (UTC), to seconds since 1970; raises `Corrupt`."""
    digits = bytes(message.take(14, "modification time")).decode("ascii", "replace")
    try:
        return int(datetime.strptime(digits, "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp())
    except ValueError as error:
        raise Corrupt(f"The {message.subject} has the modification time {digits!r}.") from error


EARLY, LATE, INCREMENTAL = 1, 2, 3
"""The times at which space is allocated; 0 is undecided."""
ON_ALLOCATION, NEVER, IF_SET = 0, 1, 2
"""The times at which fill values are written."""


@dataclass(frozen=True, slots=True)
class FillValue:
    """A fill value; `value` is one element's bytes in the file's type, empty for zeros, None if undefined."""

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
    """Encode message 0x0005 in version 2 or 3."""
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


OPTIONAL = 1
FIRST_NAMED = 256
"""Filters with smaller ids are HDF5's own; they have no name in version 2 of the message."""


def decode_filter(message: ByteReader, version: int) -> Filter:
    """Decode one filter of a message of `version`; raises `Corrupt`."""
    id = message.number(2, "filter's id")
    named = version == 1 or id >= FIRST_NAMED
    length = message.number(2, "length of a filter's name") if named else 0
    flags, count = message.numbers(2, 2, "filter's flags")
    message.take(length + (-length % 8 if version == 1 else 0), "filter's name")
    values = message.numbers(count, 4, "filter's client data")
    if version == 1 and count % 2:
        message.take(4, "filter's padding")
    return Filter(id, values, bool(flags & OPTIONAL))


def encode_filter(filter: Filter, version: int) -> bytes:
    """Encode one filter for a message of `version`."""
    named = version == 1 or filter.id >= FIRST_NAMED
    name = _name(filter.id) if named else b""
    if version == 1:
        name += bytes(-len(name) % 8)
    length = struct.pack("<H", len(name)) if named else b""
    flags = struct.pack("<HH", OPTIONAL if filter.optional else 0, len(filter.values))
    values = struct.pack(f"<{len(filter.values)}I", *filter.values)
    padding = bytes(4) if version == 1 and len(filter.values) % 2 else b""
    return struct.pack("<H", filter.id) + length + flags + name + values + padding


def _name(id: int) -> bytes:
    """Return a filter's zero-terminated name, as its plugin defines it; empty if the filter is not known."""
    return BY_ID[id].name.encode() + b"\0" if id in BY_ID else b""


def decode_pipeline(message: ByteReader) -> tuple[Filter, ...]:
    """Decode a filter pipeline, in the order in which the filters are applied on writing; raises `Corrupt`."""
    version, count = message.numbers(2, 1, "filter pipeline's header")
    if version not in (1, 2) or count > MAX_FILTERS:
        raise Corrupt(
            f"The {message.subject} has a filter pipeline of version {version} with {count} filters; "
            f"there are versions 1 and 2, and at most {MAX_FILTERS} filters."
        )
    if version == 1:
        message.take(6, "filter pipeline's header")
    return tuple(decode_filter(message, version) for _ in range(count))


def encode_pipeline(pipeline: Sequence[Filter], version: int = 1) -> bytes:
    """Encode a filter pipeline message; raises `BadRequest` for more filters than HDF5 allows."""
    if len(pipeline) > MAX_FILTERS:
        raise BadRequest(f"A pipeline can have at most {MAX_FILTERS} filters, not {len(pipeline)}.")
    head = bytes((version, len(pipeline))) + (bytes(6) if version == 1 else b"")
    return head + b"".join(encode_filter(filter, version) for filter in pipeline)


MESSAGES = {
    FormatRevision.RFC_2023_07: (0x19, 0),
    FormatRevision.RFC_2025_10: (0x0B, 3),
    FormatRevision.LIB_2026_09: (0x19, 1),
}
"""Type and version of the message by revision. RFC version 17 has no type; 0x19, the prototype's, is our choice."""
DESCRIPTION = 2
"""The message describes filters as this version of the filter pipeline message does."""
Pipelines = tuple[tuple[Filter, ...], ...]


def is_section_pipelines(message_type: int, body: Buffer) -> bool:
    """Return whether a message has the pipelines of sections, in any revision of the format."""
    version = memoryview(body)[:1]
    return any(message_type == kind and version == bytes((number,)) for kind, number in MESSAGES.values())


def decode_section_pipelines(body: Buffer, sections: int) -> Pipelines:
    """Decode the pipelines of `sections` sections, `()` for unfiltered ones; filters are in the order of encoding.

    Bytes after the last description are ignored as padding. Raises `Corrupt`.
    """
    reader = ByteReader(memoryview(body), subject="message of the sections' filters")
    version, count = reader.numbers(2, 1, "header")
    if version not in {number for _, number in MESSAGES.values()}:
        raise Corrupt(f"The message of the sections' filters has version {version}; 0, 1 and 3 exist.")
    pipelines: list[tuple[Filter, ...]] = [()] * sections
    last = -1
    for _ in range(count):
        section, filters = reader.numbers(2, 1, "section's header")
        if not last < section < sections or filters > MAX_FILTERS:
            raise Corrupt(
                f"The message of the sections' filters lists {filters} for section {section} after section {last}; "
                f"the chunk has {sections} sections."
            )
        reader.take(2, "section's header")  # the list's size in bytes, which follows from its entries
        pipelines[section] = tuple(decode_filter(reader, DESCRIPTION) for _ in range(filters))
        last = section
    return tuple(pipelines)


def encode_section_pipelines(
    pipelines: Sequence[tuple[Filter, ...]], revision: FormatRevision = NEWEST_REVISION
) -> bytes:
    """Encode the pipelines of sections, not all of them empty; raises `BadRequest` for too many filters."""
    filtered = [(number, pipeline) for number, pipeline in enumerate(pipelines) if pipeline]
    _, version = MESSAGES[revision]
    parts = [bytes((version, len(filtered)))]
    for number, pipeline in filtered:
        if len(pipeline) > MAX_FILTERS:
            raise BadRequest(f"Section {number} has {len(pipeline)} filters; the limit is {MAX_FILTERS}.")
        descriptions = b"".join(encode_filter(filter, DESCRIPTION) for filter in pipeline)
        parts.append(struct.pack("<BBH", number, len(pipeline), len(descriptions)) + descriptions)
    return b"".join(parts)
