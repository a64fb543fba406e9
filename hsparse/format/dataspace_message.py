"""Dataspace messages, H5Sencode images (which contain one), and the revisions of the structured chunk format.

The dataspace message is defined in the HDF5 File Format Specification, "The Dataspace Message" (H5.format.html,
IV.A.2.b), versions 1 and 2. An H5Sencode image is: message id 1, encode version 0, size of lengths 8, length of the
message (4 bytes), the message, the selection.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from hsparse.errors import BadRequest, Corrupt
from hsparse.format.buffer import Buffer
from hsparse.model.dataspace import MAX_EXTENT, MAX_RANK, UNLIMITED, Shape, dims_of, max_dims_of, num_elements

SCALAR, SIMPLE, NULL = range(3)
"""Values of the type byte in a message of version 2."""
MAX_DIMS_FLAG = 1
CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}
"""The format characters of `struct` for unsigned integers, by length in bytes."""


@dataclass(slots=True)
class ByteReader:
    """Reads bytes from front to back; the methods raise `Corrupt` if the bytes end too early."""

    data: memoryview
    place: int = 0
    subject: str = "encoded selection"
    """The name of the bytes, for error messages."""

    @property
    def left(self) -> int:
        """The number of bytes not read yet."""
        return len(self.data) - self.place

    def take(self, length: int, what: str) -> memoryview:
        if length > len(self.data) - self.place:
            raise Corrupt(
                f"The {self.subject} ends inside its {what}: {length} bytes are needed, "
                f"{len(self.data) - self.place} are left."
            )
        self.place += length
        return self.data[self.place - length : self.place]

    def number(self, length: int, what: str) -> int:
        """Read an unsigned little-endian integer of `length` bytes."""
        return int.from_bytes(self.take(length, what), "little")

    def numbers(self, count: int, length: int, what: str) -> tuple[int, ...]:
        """Read `count` unsigned little-endian integers of `length` bytes each."""
        data = self.take(count * length, what)
        if code := CODES.get(length):
            return struct.unpack(f"<{count}{code}", data)
        return tuple(int.from_bytes(data[i : i + length], "little") for i in range(0, len(data), length))

    def done(self, what: str) -> None:
        if self.place != len(self.data):
            raise Corrupt(f"The {what} is followed by {len(self.data) - self.place} unexpected bytes.")


def encode_dataspace(
    dims: Sequence[int] | None, max_dims: Sequence[int] | None = None, version: int = 1, width: int = 8
) -> bytes:
    """Return a dataspace message with lengths of `width` bytes; `dims` is None for a null dataspace.

    `max_dims` defaults to `dims`; the largest number of `width` bytes means unlimited. Raises `BadRequest` for a null
    dataspace in version 1, which cannot represent it.
    """
    rank = len(dims or ())
    flags = MAX_DIMS_FLAG if rank else 0
    if version == 2:
        head = bytes((2, rank, flags, NULL if dims is None else SIMPLE if rank else SCALAR))
    elif dims is None:
        raise BadRequest("A null dataspace has no message of version 1; use version 2.")
    else:
        head = struct.pack("<BBB5x", 1, rank, flags)
    numbers = (*(dims or ()), *(dims or () if max_dims is None else max_dims))
    return head + b"".join(number.to_bytes(width, "little") for number in numbers)


def encode_shape(shape: Shape, version: int = 1) -> bytes:
    """Return the message of a dataspace given in HDF5/JSON; a null dataspace is always written in version 2."""
    dims = dims_of(shape)
    limits = [2**64 - 1 if limit is None else limit for limit in max_dims_of(shape)]
    return encode_dataspace(dims, limits or None, 2 if dims is None else version)


def decode_shape(message: ByteReader, width: int = 8) -> Shape:
    """Return the dataspace read from a message with lengths of `width` bytes; raise `Corrupt` if it is invalid.

    Other bytes may follow. The result has `maxdims` only if they differ from the extent, as libhdf5 always writes them.
    """
    dims, limits = _decode(message, width)
    if dims is None:
        return {"class": "H5S_NULL"}
    if not dims:
        return {"class": "H5S_SCALAR"}
    shape: Shape = {"class": "H5S_SIMPLE", "dims": list(dims)}
    if max(dims) > MAX_EXTENT or num_elements(shape) > MAX_EXTENT:
        raise Corrupt(f"The {message.subject} has extent {list(dims)}: more than 2^63-1 elements.")
    if limits is not None and limits != dims:
        unlimited = 2 ** (8 * width) - 1
        if any(limit < dim for limit, dim in zip(limits, dims, strict=True)):
            raise Corrupt(f"The {message.subject} has extent {list(dims)} beyond its maximum {list(limits)}.")
        shape["maxdims"] = [UNLIMITED if limit == unlimited else limit for limit in limits]
    return shape


def _decode(message: ByteReader, width: int) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
    """Return a pair read from a message: the extent (None if null), and the maximum dimensions (None if absent)."""
    version, rank, flags = message.numbers(3, 1, "dataspace message")
    if version not in (1, 2):
        raise Corrupt(f"The {message.subject} has a dataspace message of version {version}; 1 and 2 exist.")
    if rank > MAX_RANK or flags & ~MAX_DIMS_FLAG:
        raise Corrupt(
            f"The {message.subject} has a dataspace of rank {rank} and flags {flags}, which is invalid."
        )
    kind = message.number(5 if version == 1 else 1, "dataspace message")
    if version == 2 and kind == NULL and not rank:
        return None, None
    if version == 2 and kind != (SIMPLE if rank else SCALAR):
        raise Corrupt(f"The {message.subject} has a dataspace of type {kind}, which cannot have rank {rank}.")
    dims = message.numbers(rank, width, "dataspace dimensions")
    return dims, message.numbers(rank, width, "maximum dimensions") if flags & MAX_DIMS_FLAG else None


def encode_image(
    dims: Sequence[int], max_dims: Sequence[int] | None, selection: bytes, message_version: int = 1
) -> bytes:
    """Return an H5Sencode image with an encoded `selection`; `max_dims` defaults to `dims`; 2^64-1 means unlimited."""
    return image_head(tuple(dims), max_dims and tuple(max_dims), message_version) + selection


@lru_cache(maxsize=1024)
def image_head(
    dims: tuple[int, ...], max_dims: tuple[int, ...] | None = None, message_version: int = 1
) -> bytes:
    """Return the bytes of an H5Sencode image before its selection, which are the same for all chunks of a dataset."""
    message = encode_dataspace(dims, max_dims, message_version)
    return struct.pack("<BBBI", 1, 0, 8, len(message)) + message


def decode_image(data: Buffer) -> tuple[tuple[int, ...], ByteReader]:
    """Return a pair: the dimensions of an H5Sencode image, and a reader at its selection; raise `Corrupt` if invalid.

    Maximum dimensions are ignored, because writers use different ones.
    """
    reader = ByteReader(memoryview(data).cast("B"))
    head = bytes(reader.take(3, "header"))
    if head != b"\x01\x00\x08":
        raise Corrupt(f"The encoded selection begins with {head.hex(' ')}, not with 01 00 08.")
    length = reader.number(4, "header")
    message = ByteReader(reader.take(length, "dataspace message"))
    dims, _ = _decode(message, 8)
    if dims is None:
        raise Corrupt("The encoded selection has a null dataspace, which has no elements.")
    message.done("dataspace message")
    return dims, reader


class FormatRevision(Enum):
    """A revision of the format of structured chunks in HDF5 files, by its source; all revisions can be read."""

    RFC_2023_07 = "rfc-2023-07"
    """RFC "File Format Changes for Enabling Sparse Storage in HDF5", version 17."""
    RFC_2025_10 = "rfc-2025-10"
    """The same RFC, version 28."""
    LIB_2026_09 = "lib-2026-09"
    """The format that the HDF5 library's prototype writes and reads as of September 2026."""


NEWEST_REVISION = FormatRevision.LIB_2026_09
"""The revision that is written by default."""
