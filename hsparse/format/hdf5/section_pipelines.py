"""The filter pipelines of a structured chunk's sections: one message for a dataset.

RFC "File Format Changes for Enabling Sparse Storage in HDF5", version 17, section 3.1.2: a message of its own,
version 0, of no type; in version 28 it is the filter pipeline message, version 3; the prototype has type 0x0019,
version 1. The body is the same. A description of a filter is that of the filter pipeline message, version 2.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from hsparse.errors import BadRequest, Corrupt
from hsparse.format.buffer import Buffer
from hsparse.format.dataspace_message import Reader
from hsparse.format.filters.definition import Filter
from hsparse.format.filters.filters_json import MAX_FILTERS
from hsparse.format.hdf5.filter_description import decode_filter, encode_filter
from hsparse.format.hdf5.format_revision import NEWEST, FormatRevision

MESSAGES = {
    FormatRevision.RFC_2023_07: (0x19, 0),
    FormatRevision.RFC_2025_10: (0x0B, 3),
    FormatRevision.LIB_2026_09: (0x19, 1),
}
"""Type and version of the message. That version 17's, without a type, goes by what it became is our choice."""
DESCRIPTION = 2
"""The version of the filter pipeline message whose descriptions of filters these are."""
Pipelines = tuple[tuple[Filter, ...], ...]


def is_section_pipelines(message_type: int, body: Buffer) -> bool:
    """Say whether a message has pipelines of sections: version 3 of the filter pipeline message, or one of its own."""
    version = memoryview(body)[:1]
    return any(message_type == kind and version == bytes((number,)) for kind, number in MESSAGES.values())


def decode_section_pipelines(body: Buffer, sections: int) -> Pipelines:
    """Return the pipeline of each of `sections` sections, `()` where there is none, in the order they encode.

    What follows the last description is padding. Raises `Corrupt`.
    """
    reader = Reader(memoryview(body), thing="message of the sections' filters")
    version, count = reader.numbers(2, 1, "header")
    if version not in {number for _, number in MESSAGES.values()}:
        raise Corrupt(f"The message of the sections' filters has version {version}; 0, 1 and 3 exist.")
    pipelines: list[tuple[Filter, ...]] = [()] * sections
    last = -1
    for _ in range(count):
        section, filters = reader.numbers(2, 1, "section's header")
        if not last < section < sections or filters > MAX_FILTERS:
            raise Corrupt(
                f"The message of the sections' filters has {filters} of section {section} after section {last}; "
                f"the chunk has {sections} sections."
            )
        reader.take(2, "section's header")  # the list's length, which follows from what is in it
        pipelines[section] = tuple(decode_filter(reader, DESCRIPTION) for _ in range(filters))
        last = section
    return tuple(pipelines)


def encode_section_pipelines(
    pipelines: Sequence[tuple[Filter, ...]], revision: FormatRevision = NEWEST
) -> bytes:
    """Return the message of a dataset with at least one filter; `BadRequest` for more filters than HDF5 has."""
    filtered = [(number, pipeline) for number, pipeline in enumerate(pipelines) if pipeline]
    _, version = MESSAGES[revision]
    parts = [bytes((version, len(filtered)))]
    for number, pipeline in filtered:
        if len(pipeline) > MAX_FILTERS:
            raise BadRequest(f"Section {number} has {len(pipeline)} filters; it can have {MAX_FILTERS}.")
        descriptions = b"".join(encode_filter(filter, DESCRIPTION) for filter in pipeline)
        parts.append(struct.pack("<BBH", number, len(pipeline), len(descriptions)) + descriptions)
    return b"".join(parts)
