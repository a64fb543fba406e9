"""The object reference count message: how many hard links lead to an object, where it is not one.

H5.format.html, IV.A.2.w (message 0x0016). Headers of version 1 have the number in their prefix.
"""

from __future__ import annotations

import struct

from hsparse.errors import Corrupt
from hsparse.format.dataspace_message import Reader


def decode_reference_count(message: Reader) -> int:
    """Read the message; raises `Corrupt`."""
    version = message.number(1, "reference count")
    if version:
        raise Corrupt(f"The {message.thing} has a reference count of version {version}; only 0 exists.")
    return message.number(4, "reference count")


def encode_reference_count(count: int) -> bytes:
    """Return the message."""
    return struct.pack("<BI", 0, count)
