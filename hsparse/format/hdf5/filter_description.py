"""The description of a filter in a pipeline message.

H5.format.html, IV.A.2.l (message 0x000B), versions 1 and 2. Names of filters are for people: they are written where
they are known, and not looked at.
"""

from __future__ import annotations

import struct

from hsparse.format.dataspace_message import Reader
from hsparse.format.filters.definition import Filter
from hsparse.format.filters.table import BY_ID

OPTIONAL = 1
FIRST_NAMED = 256
"""Filters with smaller ids are HDF5's own, and have no name in version 2."""


def decode_filter(message: Reader, version: int) -> Filter:
    """Read one filter of a message of `version`; raises `Corrupt`."""
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
    """Return the bytes of one filter in a message of `version`."""
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
    return BY_ID[id].name.encode() + b"\0" if id in BY_ID else b""
