"""The checksum of a stored record: its last key, in a form in which no other writer of JSON puts it.

    {"id": "g-...", "created": 1.5,
    "crc32":"0a1b2c3d"}

It is the CRC-32, in hex, of all bytes before the comma. HSDS and older versions of hsparse ignore the key. They keep
it when they store a changed record, but without the newline: so an outdated checksum is told from a wrong one.
"""

from __future__ import annotations

from typing import Any

from hsparse.errors import Corrupt
from hsparse.format.checksum import crc32
from hsparse.wire.message import Record

KEY = "crc32"
_BEGIN = b',\n"crc32":"'
_LENGTH = len(_BEGIN) + len('01234567"}')


def add_checksum(data: bytes) -> bytes:
    """Return the JSON of an object, of at least one key, with its checksum."""
    view = memoryview(data)[:-1]
    return b"".join((view, _end(view)))


def remove_checksum(data: bytes) -> bytes:
    """Return the JSON to which `add_checksum` has added a checksum."""
    return data[:-_LENGTH] + b"}"


def has_checksum(data: bytes) -> bool:
    """Say whether JSON ends with a checksum, right or wrong."""
    return data[-_LENGTH : len(_BEGIN) - _LENGTH] == _BEGIN


def check_checksum(data: bytes, key: str) -> None:
    """Raise `Corrupt` if the JSON in the object `key` has a checksum, and another than its bytes have."""
    if has_checksum(data) and data[-_LENGTH:] != _end(memoryview(data)[:-_LENGTH]):
        raise Corrupt(f"The object {key} is damaged: its checksum is wrong; restore it from a copy.")


def drop_checksum(record: Record) -> None:
    """Remove the key from decoded JSON, an outdated checksum's too."""
    record.pop(KEY, None)


def _end(data: Any) -> bytes:
    return b'%b%08x"}' % (_BEGIN, crc32(data))
