"""Read FlatBuffers ("FlatBuffers Internals"), the encoding of Arrow's messages. No offset or length is trusted."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

MAX_NAME = 1024
"""The most bytes of a name. Without a limit a small schema could have many fields that share one very long name."""
INVALID = (struct.error, IndexError, ValueError, OverflowError)
"""The exceptions that reading invalid FlatBuffers may raise."""


class Table:
    """A FlatBuffers table. Its vtable has the offset of each field, or 0 if the field is absent."""

    def __init__(self, data: memoryview, place: int) -> None:
        self.data = data
        self._place = place
        self._vtable = place - unpack("<i", data, place)[0]
        (self._size,) = unpack("<H", data, self._vtable)

    def _at(self, field: int) -> int | None:
        entry = 4 + 2 * field
        if entry + 2 > self._size:
            return None
        (offset,) = unpack("<H", self.data, self._vtable + entry)
        return self._place + offset if offset else None

    def number(self, field: int, kind: str, default: int) -> int:
        at = self._at(field)
        return default if at is None else int(unpack(kind, self.data, at)[0])

    def _target(self, field: int) -> int | None:
        at = self._at(field)
        return None if at is None else at + int(unpack("<I", self.data, at)[0])

    def table(self, field: int) -> Table | None:
        at = self._target(field)
        return None if at is None else Table(self.data, at)

    def text(self, field: int) -> str:
        at = self._target(field)
        if at is None:
            return ""
        (length,) = unpack("<I", self.data, at)
        if length > MAX_NAME:
            raise ValueError(f"a name has {length} bytes; the limit is {MAX_NAME}")
        return bytes(part(self.data, at + 4, length)).decode()

    def tables(self, field: int) -> list[int]:
        """Return the offsets of the tables in a field that is a vector of tables."""
        at = self._target(field)
        if at is None:
            return []
        (count,) = unpack("<I", self.data, at)
        offsets = np.frombuffer(part(self.data, at + 4, 4 * count), "<u4").tolist()
        return [at + 4 + 4 * i + offset for i, offset in enumerate(offsets)]

    def pairs(self, field: int) -> list[tuple[int, int]]:
        """Return the elements of a field that is a vector of structs of two int64."""
        at = self._target(field)
        if at is None:
            return []
        (count,) = unpack("<I", self.data, at)
        return list(struct.iter_unpack("<qq", part(self.data, at + 4, 16 * count)))


def root_table(data: memoryview) -> Table:
    return Table(data, unpack("<I", data, 0)[0])


def unpack(kind: str, data: memoryview, at: int) -> tuple[Any, ...]:
    if at < 0:  # struct counts negative offsets from the end
        raise ValueError("an offset is negative")
    return struct.unpack_from(kind, data, at)


def part(data: memoryview, at: int, length: int) -> memoryview:
    if at < 0 or length < 0 or at + length > len(data):
        raise ValueError(f"{length} bytes at offset {at} end beyond the data")
    return data[at : at + length]
