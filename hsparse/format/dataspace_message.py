"""The dataspace message, and the H5Sencode image that begins with it.

HDF5 File Format Specification, "The Dataspace Message", versions 1 and 2. An H5Sencode image is: message
id 1, encode version 0, size of lengths 8, length of the message (4 bytes), the message, the selection.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from hsparse.errors import Corrupt
from hsparse.format.buffer import Buffer

SIMPLE = 1
"""The type byte of version 2 for a dataspace with dimensions; 0 is scalar, 2 is null."""
MAX_DIMS_FLAG = 1


@dataclass(slots=True)
class Reader:
    """Bytes read from the front; `Corrupt` when they end too soon."""

    data: memoryview
    place: int = 0
    thing: str = "encoded selection"
    """What the bytes are, for messages."""

    @property
    def left(self) -> int:
        """The bytes not read yet."""
        return len(self.data) - self.place

    def take(self, length: int, what: str) -> memoryview:
        if length > len(self.data) - self.place:
            raise Corrupt(
                f"The {self.thing} ends inside its {what}: {length} bytes are needed, "
                f"{len(self.data) - self.place} are left."
            )
        self.place += length
        return self.data[self.place - length : self.place]

    def number(self, length: int, what: str) -> int:
        """Return a little-endian number of `length` bytes."""
        return int.from_bytes(self.take(length, what), "little")

    def numbers(self, count: int, length: int, what: str) -> tuple[int, ...]:
        data = self.take(count * length, what)
        return tuple(int.from_bytes(data[i : i + length], "little") for i in range(0, len(data), length))

    def done(self, what: str) -> None:
        if self.place != len(self.data):
            raise Corrupt(
                f"The {what} is followed by {len(self.data) - self.place} bytes that do not belong."
            )


def encode_image(
    dims: Sequence[int], max_dims: Sequence[int] | None, selection: bytes, message_version: int = 1
) -> bytes:
    """Return an H5Sencode image; `max_dims` are `dims` by default, 2^64-1 is unlimited."""
    rank = len(dims)
    if message_version == 1:
        head = struct.pack("<BBB5x", 1, rank, MAX_DIMS_FLAG if rank else 0)
    else:
        head = struct.pack("<BBBB", 2, rank, MAX_DIMS_FLAG if rank else 0, SIMPLE if rank else 0)
    message = head + struct.pack(f"<{2 * rank}Q", *dims, *(dims if max_dims is None else max_dims))
    return struct.pack("<BBBI", 1, 0, 8, len(message)) + message + selection


def decode_image(data: Buffer) -> tuple[tuple[int, ...], Reader]:
    """Return the dimensions of an H5Sencode image, and a reader at its selection; raises `Corrupt`.

    Maximum dimensions are not looked at: writers differ in what they put there.
    """
    reader = Reader(memoryview(data).cast("B"))
    head = bytes(reader.take(3, "header"))
    if head != b"\x01\x00\x08":
        raise Corrupt(f"The encoded selection begins with {head.hex(' ')}, not with 01 00 08.")
    length = reader.number(4, "header")
    message = Reader(reader.take(length, "dataspace message"))
    version, rank, flags = message.numbers(3, 1, "dataspace message")
    if version not in (1, 2):
        raise Corrupt(f"The dataspace message has version {version}; 1 and 2 exist.")
    if rank > 32 or flags & ~MAX_DIMS_FLAG:
        raise Corrupt(f"The dataspace message has rank {rank} and flags {flags}; neither is possible.")
    kind = message.number(5 if version == 1 else 1, "dataspace message")
    if version == 2 and kind != (SIMPLE if rank else 0):
        raise Corrupt(f"The dataspace message of rank {rank} has type {kind}.")
    dims = message.numbers(rank, 8, "dataspace dimensions")
    if flags & MAX_DIMS_FLAG:
        message.take(8 * rank, "maximum dimensions")
    message.done("dataspace message")
    return dims, reader
