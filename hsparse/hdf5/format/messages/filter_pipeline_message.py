"""Filter pipelines of datasets (message 0x000B, versions 1 and 2), and of the sections of structured chunks.

H5.format.html, section IV.A.2.l. The names of known filters are written; when a message is read, names are ignored.

A dataset with structured chunks has one message with the filter pipelines of their sections (RFC "File Format Changes
for Enabling Sparse Storage in HDF5"). RFC version 17, section 3.1.2, has a separate message, version 0, without a type.
RFC version 28 has version 3 of the filter pipeline message. libhdf5's prototype has message 0x0019, version 1. All 3
have the same body, in which filters are encoded as in version 2 of the filter pipeline message.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from hsparse.errors import BadRequest, Corrupt
from hsparse.format.buffer import Buffer
from hsparse.format.dataspace_message import (
    NEWEST_REVISION,
    ByteReader,
    FormatRevision,
)
from hsparse.format.filters.definition import Filter
from hsparse.format.filters.filters_json import MAX_FILTERS
from hsparse.format.filters.pipeline import BY_ID

OPTIONAL = 1
FIRST_NAMED = 256
"""The lowest filter id outside of HDF5 itself. Filters with lower ids have no name in version 2 of the message."""


def decode_filter(message: ByteReader, version: int) -> Filter:
    """Decode one filter of a filter pipeline message of this version; raises `Corrupt`."""
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
    """Encode one filter for a filter pipeline message of this version."""
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
    """Return the zero-terminated name of a filter as its plugin defines it, or no bytes for an unknown filter."""
    return BY_ID[id].name.encode() + b"\0" if id in BY_ID else b""


def decode_pipeline(message: ByteReader) -> tuple[Filter, ...]:
    """Decode a filter pipeline message; return the filters in the order of their application on writing."""
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
    """Encode a filter pipeline message; raises `BadRequest` if there are more filters than HDF5 allows."""
    if len(pipeline) > MAX_FILTERS:
        raise BadRequest(f"A pipeline can have at most {MAX_FILTERS} filters, not {len(pipeline)}.")
    head = bytes((version, len(pipeline))) + (bytes(6) if version == 1 else b"")
    return head + b"".join(encode_filter(filter, version) for filter in pipeline)


MESSAGES = {
    FormatRevision.RFC_2023_07: (0x19, 0),
    FormatRevision.RFC_2025_10: (0x0B, 3),
    FormatRevision.LIB_2026_09: (0x19, 1),
}
"""Maps each format revision to the type and version of the message with the pipelines of sections.

RFC version 17 defines no type; this module uses the type of libhdf5's prototype, 0x19."""
DESCRIPTION = 2
"""The filters of sections are encoded as in this version of the filter pipeline message."""
Pipelines = tuple[tuple[Filter, ...], ...]


def is_section_pipelines(message_type: int, body: Buffer) -> bool:
    """Return whether a message has the filter pipelines of sections, in any revision of the format."""
    version = memoryview(body)[:1]
    return any(message_type == kind and version == bytes((number,)) for kind, number in MESSAGES.values())


def decode_section_pipelines(body: Buffer, sections: int) -> Pipelines:
    """Return the filter pipeline of each of `sections` sections, which is `()` if a section is unfiltered.

    Filters are in the order in which they are applied on writing. Bytes after the last pipeline
    are ignored as padding. Raises `Corrupt`.
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
                f"The message of the sections' filters list {filters} for section {section} after section {last}; "
                f"the chunk has {sections} sections."
            )
        reader.take(2, "section's header")  # the list's size in bytes, which follows from its entries
        pipelines[section] = tuple(decode_filter(reader, DESCRIPTION) for _ in range(filters))
        last = section
    return tuple(pipelines)


def encode_section_pipelines(
    pipelines: Sequence[tuple[Filter, ...]], revision: FormatRevision = NEWEST_REVISION
) -> bytes:
    """Encode the pipelines of sections, one of which has filters; raises `BadRequest` for too many filters."""
    filtered = [(number, pipeline) for number, pipeline in enumerate(pipelines) if pipeline]
    _, version = MESSAGES[revision]
    parts = [bytes((version, len(filtered)))]
    for number, pipeline in filtered:
        if len(pipeline) > MAX_FILTERS:
            raise BadRequest(f"Section {number} has {len(pipeline)} filters; the limit is {MAX_FILTERS}.")
        descriptions = b"".join(encode_filter(filter, DESCRIPTION) for filter in pipeline)
        parts.append(struct.pack("<BBH", number, len(pipeline), len(descriptions)) + descriptions)
    return b"".join(parts)
