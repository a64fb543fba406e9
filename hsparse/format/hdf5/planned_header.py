"""Object headers of version 2 of a file that is planned: one block, whatever is in it.

H5.format.html, IV.A.1.b. HDF5 1.8 and later read it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from hsparse.errors import TooLarge
from hsparse.format.hdf5.addressed import Addressed, AddressOf, Key
from hsparse.format.hdf5.file_plan import Piece
from hsparse.format.hdf5.object_header import ATTRIBUTE_INDEX, ATTRIBUTE_ORDER
from hsparse.format.hdf5.planned_heap import with_checksum
from hsparse.format.hdf5.widths import width_of

MAX_MESSAGE = 65_535
SIZE_CODES = {1: 0, 2: 1, 3: 2, 4: 2}


@dataclass(frozen=True, slots=True)
class PlannedMessage:
    """A message's type, bytes and flags; `order` is an attribute's, where that is tracked."""

    kind: int
    data: Addressed
    flags: int = 0
    order: int = 0


def plan_header(key: Key, messages: Sequence[PlannedMessage], *, attribute_order: bool = False) -> Piece:
    """Return the header's piece; `TooLarge` for a message of more than 65535 bytes."""
    parts = []
    for message in messages:
        size = len(message.data.data)
        if size > MAX_MESSAGE:
            raise TooLarge(
                f"A message of type {message.kind:#04x} has {size} bytes; a file takes {MAX_MESSAGE}."
            )
        order = struct.pack("<H", message.order) if attribute_order else b""
        parts += [Addressed(struct.pack("<BHB", message.kind, size, message.flags) + order), message.data]
    body = Addressed.join(parts)
    code = SIZE_CODES[width_of(len(body.data))]
    flags = code | (ATTRIBUTE_ORDER | ATTRIBUTE_INDEX if attribute_order else 0)
    head = struct.pack("<4sBB", b"OHDR", 2, flags) + len(body.data).to_bytes(1 << code, "little")
    content = Addressed.join((Addressed(head), body))
    return Piece(key, len(content.data) + 4, partial(_make, content))


def _make(content: Addressed, address_of: AddressOf) -> bytes:
    return with_checksum(content.filled(address_of))
