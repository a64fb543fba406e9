"""The fields that structures of a file have in common: addresses, lengths, names, and checksummed blocks.

H5.format.html, II: "Size of Offsets" and "Size of Lengths" of the superblock; planned files have 8 bytes of each.
Names are UTF-8; other bytes become surrogates (`surrogateescape`), as in h5py. A checksummed block has a signature,
a version, the type of its records, content and a checksum (III.A.2, VII.C and VII.D).

Bytes with addresses that are not known yet.

A file is planned by sizes. The size of a structure is known from its parts; its addresses, 8 bytes each, are
filled in when its bytes are requested.

Reading a file without I/O: readers are generators that yield byte ranges and are sent their bytes.

The same reader works over an object store, a local file and memory; the caller decides what is merged or cached. A
reader that needs the bytes of two places asks for both in one step.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

from hsparse.errors import BadRequest, Corrupt
from hsparse.format.buffer import Buffer
from hsparse.format.codec_library import lookup3
from hsparse.format.dataspace_message import ByteReader
from hsparse.format.structured.container import CHECKSUM

UNDEFINED = b"\xff" * 8
"""An address that leads nowhere."""
WIDTH_CODES = {2: "H", 4: "I", 8: "Q"}
"""`struct`'s codes of numbers, by their widths."""
CHECKSUM_SIZE = CHECKSUM.size


class Widths(NamedTuple):
    """Bytes of an address, counted from the file's base address, and of a length."""

    address: int = 8
    length: int = 8

    def read_address(self, reader: ByteReader, what: str) -> int | None:
        """Return an address, None where it is undefined."""
        address = reader.number(self.address, what)
        return None if address == 2 ** (8 * self.address) - 1 else address

    def read_length(self, reader: ByteReader, what: str) -> int:
        return reader.number(self.length, what)


def address_bytes(address: int | None) -> bytes:
    """Return the 8 bytes of an address, undefined for None."""
    return UNDEFINED if address is None else address.to_bytes(8, "little")


def width_of(number: int) -> int:
    """Return the fewest bytes that hold a number up to `number`, at least one: HDF5's variable-width fields."""
    return max(1, (number.bit_length() + 7) // 8)


def decode_name(data: memoryview | bytes) -> str:
    """Return a name as text."""
    return bytes(data).decode("utf-8", "surrogateescape")


def encode_name(text: str) -> bytes:
    """Return a name's bytes, without a zero at their end; `BadRequest` for a name that would end early."""
    data = text.encode("utf-8", "surrogateescape")
    if b"\0" in data:
        raise BadRequest(f"The name {text!r} has a zero character, which ends a name in a file.")
    return data


BLOCK_PREFIX = 6
"""The bytes of signature, version and client."""
NEWEST_BLOCK_VERSION = 1
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
    """Return the bytes between a block's prefix and its checksum; `Corrupt`, naming `what`, when either is wrong."""
    view = memoryview(data)
    if view[:4] != signature:
        raise Corrupt(f"The {what} begins with {bytes(view[:4])!r}, not with {signature!r}.")
    content = open_page(view, what)
    if content[4] > NEWEST_BLOCK_VERSION:
        raise Corrupt(f"The {what} has version {content[4]}; 0 and {NEWEST_BLOCK_VERSION} exist.")
    if content[5] != client:
        raise Corrupt(f"The {what} has records of type {content[5]}; the dataset's are of type {client}.")
    return content[BLOCK_PREFIX:]


def seal_page(*parts: Buffer) -> bytes:
    """Return the parts and their checksum."""
    content = b"".join(parts)
    return content + CHECKSUM.pack(lookup3(content))


def seal_block(signature: bytes, version: int, client: int, *parts: Buffer) -> bytes:
    """Return a block with its prefix and checksum."""
    return seal_page(signature, bytes((version, client)), *parts)


def check_signature(reader: ByteReader, signature: bytes, version: int | None = 0) -> None:
    """Read a structure's signature and version; raises `Corrupt` for others."""
    found = bytes(reader.take(len(signature), "signature"))
    if found != signature:
        raise Corrupt(f"The {reader.subject} begins with {found!r}, not with {signature!r}.")
    if version is not None and (other := reader.number(1, "version")) != version:
        raise Corrupt(f"The {reader.subject} has version {other}; only {version} is known.")


Key: TypeAlias = Hashable
"""The key of a structure or an object while a file is planned."""
AddressOf: TypeAlias = Callable[[Key], int]


class Addressed(NamedTuple):
    """`data` with zeros at `places`: (offset, key) of each address that belongs there."""

    data: bytes
    places: tuple[tuple[int, Key], ...] = ()

    @classmethod
    def join(cls, parts: Iterable[Addressed]) -> Addressed:
        """Return parts one after the other."""
        pieces, places, end = [], [], 0
        for data, inside in parts:
            places += [(end + offset, key) for offset, key in inside]
            pieces.append(data)
            end += len(data)
        return cls(b"".join(pieces), tuple(places))

    def filled(self, address_of: AddressOf) -> bytes:
        """Return the bytes with all addresses."""
        if not self.places:
            return self.data
        result = bytearray(self.data)
        for offset, key in self.places:
            result[offset : offset + 8] = address_of(key).to_bytes(8, "little")
        return bytes(result)


def address_to(key: Key | None) -> Addressed:
    """Return the 8 bytes of an address, undefined for None."""
    return Addressed(b"\xff" * 8) if key is None else Addressed(bytes(8), ((0, key),))


Result = TypeVar("Result")


class ByteRange(NamedTuple):
    """`size` bytes of a file from `address` on, counted from the file's first byte."""

    address: int
    size: int


Reads: TypeAlias = Generator[tuple[ByteRange, ...], Sequence[Buffer], Result]
"""A reader: it yields the ranges that it needs next, is sent their bytes in the same order, and returns a result.
Readers call each other with `yield from`."""


def run_reads(reads: Reads[Result], fetch: Callable[[tuple[ByteRange, ...]], Sequence[Buffer]]) -> Result:
    """Run a reader to its end; `fetch` returns the bytes of ranges, exactly as many as were asked for."""
    try:
        wanted = next(reads)
        while True:
            wanted = reads.send(fetch(wanted))
    except StopIteration as done:
        found: Result = done.value
        return found


def concurrently(readers: Iterable[Reads[Result]]) -> Reads[list[Result]]:
    """Run readers concurrently; return their results in order. Each step asks for what all of them need.

    The first error of any reader ends them all.
    """
    running: list[Reads[Result]] = []
    found: dict[int, Result] = {}
    wanted = {}
    for number, reader in enumerate(readers):
        running.append(reader)
        try:
            wanted[number] = next(reader)
        except StopIteration as done:
            found[number] = done.value
    while wanted:
        sent = iter((yield tuple(one for ranges in wanted.values() for one in ranges)))
        asked, wanted = wanted, {}
        for number, ranges in asked.items():
            data = [next(sent) for _ in ranges]
            try:
                wanted[number] = running[number].send(data)
            except StopIteration as done:
                found[number] = done.value
    return [found[number] for number in range(len(running))]
