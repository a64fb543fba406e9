"""Blocks of a chunk index: a signature, a version, what the records are of, content, a checksum.

H5.format.html, III.A.2 (B-trees, version 2), VII.C and VII.D (fixed and extensible arrays).
"""

from __future__ import annotations

from hsparse.errors import Corrupt
from hsparse.format.buffer import Buffer
from hsparse.format.checksum import lookup3
from hsparse.format.structured.container import CHECKSUM

PREFIX = 6
"""The bytes of signature, version and client."""
NEWEST_VERSION = 1
"""The version of blocks of structured chunks in some revisions; 0 is everything else's."""


def open_page(data: Buffer, what: str) -> memoryview:
    """Return bytes without the checksum at their end; `Corrupt`, naming `what`, when it is wrong."""
    view = memoryview(data)
    (stored,) = CHECKSUM.unpack(view[-CHECKSUM.size :])
    found = lookup3(view[: -CHECKSUM.size])
    if found != stored:
        raise Corrupt(f"The {what} has checksum {found:#010x}, not {stored:#010x}.")
    return view[: -CHECKSUM.size]


def open_block(data: Buffer, signature: bytes, client: int, what: str) -> memoryview:
    """Return what lies between a block's prefix and its checksum; `Corrupt`, naming `what`, when either is wrong."""
    view = memoryview(data)
    if view[:4] != signature:
        raise Corrupt(f"The {what} begins with {bytes(view[:4])!r}, not with {signature!r}.")
    content = open_page(view, what)
    if content[4] > NEWEST_VERSION:
        raise Corrupt(f"The {what} has version {content[4]}; 0 and {NEWEST_VERSION} exist.")
    if content[5] != client:
        raise Corrupt(f"The {what} has records of type {content[5]}; the dataset's are of type {client}.")
    return content[PREFIX:]


def seal_page(*parts: Buffer) -> bytes:
    """Return the parts and their checksum."""
    content = b"".join(parts)
    return content + CHECKSUM.pack(lookup3(content))


def seal_block(signature: bytes, version: int, client: int, *parts: Buffer) -> bytes:
    """Return a block with its prefix and checksum."""
    return seal_page(signature, bytes((version, client)), *parts)
