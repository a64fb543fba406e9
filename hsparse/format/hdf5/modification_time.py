"""The modification time messages, in seconds since 1970 (UTC).

H5.format.html, IV.A.2.o (message 0x000E, digits) and IV.A.2.s (message 0x0012).
"""

from __future__ import annotations

import struct
from datetime import UTC, datetime

from hsparse.errors import Corrupt
from hsparse.format.dataspace_message import Reader


def decode_time(message: Reader) -> int:
    """Read message 0x0012; raises `Corrupt`."""
    version = message.number(1, "modification time")
    if version != 1:
        raise Corrupt(f"The {message.thing} has a modification time of version {version}; only 1 exists.")
    message.take(3, "modification time")
    return message.number(4, "modification time")


def decode_old_time(message: Reader) -> int:
    """Read message 0x000E, `YYYYMMDDhhmmss`; raises `Corrupt`."""
    digits = bytes(message.take(14, "modification time")).decode("ascii", "replace")
    try:
        return int(datetime.strptime(digits, "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp())
    except ValueError as error:
        raise Corrupt(f"The {message.thing} has the modification time {digits!r}.") from error


def encode_time(seconds: int) -> bytes:
    """Return message 0x0012."""
    return struct.pack("<B3xI", 1, seconds)
