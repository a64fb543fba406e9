"""The filter pipeline message, versions 1 and 2.

H5.format.html, IV.A.2.l (message 0x000B). Names of filters are for people: they are written where they are
known, and not looked at.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from hsparse.errors import BadRequest, Corrupt
from hsparse.format.dataspace_message import Reader
from hsparse.model.filter import Filter
from hsparse.model.filter_json import MAX_FILTERS, NAMES

OPTIONAL = 1
PREFIX = "H5Z_FILTER_"
FIRST_NAMED = 256
"""Filters with smaller ids are HDF5's own, and have no name in version 2."""


def decode_pipeline(message: Reader) -> tuple[Filter, ...]:
    """Read a pipeline in the order in which its filters encode; raises `Corrupt`."""
    version, count = message.numbers(2, 1, "filter pipeline's header")
    if version not in (1, 2) or count > MAX_FILTERS:
        raise Corrupt(
            f"The {message.thing} has a filter pipeline of version {version} with {count} filters; "
            f"there are versions 1 and 2, and at most {MAX_FILTERS} filters."
        )
    if version == 1:
        message.take(6, "filter pipeline's header")
    return tuple(_decode_filter(message, version) for _ in range(count))


def _decode_filter(message: Reader, version: int) -> Filter:
    id = message.number(2, "filter's id")
    named = version == 1 or id >= FIRST_NAMED
    length = message.number(2, "length of a filter's name") if named else 0
    flags, count = message.numbers(2, 2, "filter's flags")
    message.take(length + (-length % 8 if version == 1 else 0), "filter's name")
    values = message.numbers(count, 4, "filter's client data")
    if version == 1 and count % 2:
        message.take(4, "filter's padding")
    return Filter(id, values, bool(flags & OPTIONAL))


def encode_pipeline(pipeline: Sequence[Filter], version: int = 1) -> bytes:
    """Return the message; `BadRequest` for more filters than HDF5 has."""
    if len(pipeline) > MAX_FILTERS:
        raise BadRequest(f"A pipeline can have {MAX_FILTERS} filters, not {len(pipeline)}.")
    head = bytes((version, len(pipeline))) + (bytes(6) if version == 1 else b"")
    return head + b"".join(_encode_filter(filter, version) for filter in pipeline)


def _encode_filter(filter: Filter, version: int) -> bytes:
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
    """Return a filter's name, as its plugin gives it, and the zero that ends it; empty when it has none here."""
    names = [
        name.removeprefix(PREFIX) for name, known in NAMES.items() if known == id and name.startswith(PREFIX)
    ]
    return names[0].lower().encode() + b"\0" if names else b""
