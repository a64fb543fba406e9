"""Fields shared by the structures of a file (addresses, lengths, names, checksummed blocks), and readers without I/O.

The superblock has the widths of addresses and lengths (H5.format.html, II, "Size of Offsets" and "Size of Lengths").
Both are 8 bytes in planned files, which `hsparse.hdf5.format.plan` lays out. Names are UTF-8; invalid
bytes become surrogates (`surrogateescape`), as in h5py. A checksummed block has a signature, a version, the type of its
records, content and a checksum (III.A.2, VII.C and VII.D).

`Addressed` is an encoded structure with addresses that are not known yet. The plan of a file first computes the sizes
of all structures; the addresses, 8 bytes each, are filled in when the bytes are requested.

`Reads` is a reader: a generator that yields byte ranges and is sent their bytes. The same reader works with an object
store, a local file and memory; the caller decides which ranges to merge or cache.
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
"""The encoded undefined address, which marks a structure that is not allocated."""
WIDTH_CODES = {2: "H", 4: "I", 8: "Q"}
"""Maps the width in bytes of an unsigned integer to its `struct` code."""
CHECKSUM_SIZE = CHECKSUM.size


class Widths(NamedTuple):
    """The widths, in bytes, of the addresses and lengths of a file. Addresses are relative to the base address."""

    address: int = 8
    length: int = 8

    def read_address(self, reader: ByteReader, what: str) -> int | None:
        """Read an address; return None for the undefined address."""
        address = reader.number(self.address, what)
        return None if address == 2 ** (8 * self.address) - 1 else address

    def read_length(self, reader: ByteReader, what: str) -> int:
        return reader.number(self.length, what)


def address_bytes(address: int | None) -> bytes:
    """Encode an address in 8 bytes; None is the undefined address."""
    return UNDEFINED if address is None else address.to_bytes(8, "little")


def width_of(number: int) -> int:
    """Return the width in bytes, at least 1, of an HDF5 variable-width field for numbers up to `number`."""
    return max(1, (number.bit_length() + 7) // 8)


def decode_name(data: memoryview | bytes) -> str:
    """Decode a name from UTF-8; invalid bytes become surrogates."""
    return bytes(data).decode("utf-8", "surrogateescape")


def encode_name(text: str) -> bytes:
    """Encode a name without a terminating zero; raises `BadRequest` if the name contains a zero character."""
    data = text.encode("utf-8", "surrogateescape")
    if b"\0" in data:
        raise BadRequest(f"The name {text!r} has a zero character, which ends a name in a file.")
    return data


BLOCK_PREFIX = 6
"""The size in bytes of a block's signature, version and record type together."""
NEWEST_BLOCK_VERSION = 1
"""The block version of structured chunks' indexes in some format revisions; all other blocks have version 0."""


def open_page(data: Buffer, what: str) -> memoryview:
    """Verify the checksum at the end of `data`; return the bytes before it. Raises `Corrupt`, naming `what`."""
    view = memoryview(data)
    (stored,) = CHECKSUM.unpack(view[-CHECKSUM.size :])
    found = lookup3(view[: -CHECKSUM.size])
    if found != stored:
        raise Corrupt(f"The {what} has checksum {found:#010x}, not {stored:#010x}.")
    return view[: -CHECKSUM.size]


def open_block(data: Buffer, signature: bytes, client: int, what: str) -> memoryview:
    """Verify a block's prefix and checksum; return the bytes between the two. `client` is the expected record type.

    Raises `Corrupt` if the prefix or checksum is wrong; `what` names the block in the message.
    """
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
    """Return the parts, joined and followed by their checksum."""
    content = b"".join(parts)
    return content + CHECKSUM.pack(lookup3(content))


def seal_block(signature: bytes, version: int, client: int, *parts: Buffer) -> bytes:
    """Return a block: the signature, version and record type `client`, then the parts, then a checksum."""
    return seal_page(signature, bytes((version, client)), *parts)


def check_signature(reader: ByteReader, signature: bytes, version: int | None = 0) -> None:
    """Read a structure's signature and, unless `version` is None, its version; raises `Corrupt` if one is wrong."""
    found = bytes(reader.take(len(signature), "signature"))
    if found != signature:
        raise Corrupt(f"The {reader.subject} begins with {found!r}, not with {signature!r}.")
    if version is not None and (other := reader.number(1, "version")) != version:
        raise Corrupt(f"The {reader.subject} has version {other}; only {version} is known.")


Key: TypeAlias = Hashable
"""A key that identifies a structure or an object of a planned file before its address is known."""
AddressOf: TypeAlias = Callable[[Key], int]


class Addressed(NamedTuple):
    """Encoded `data` with zeros instead of addresses; `places` has, for each address, its offset and target's key."""

    data: bytes
    places: tuple[tuple[int, Key], ...] = ()

    @classmethod
    def join(cls, parts: Iterable[Addressed]) -> Addressed:
        """Concatenate encoded structures, and adapt the offsets of their addresses."""
        pieces, places, end = [], [], 0
        for data, inside in parts:
            places += [(end + offset, key) for offset, key in inside]
            pieces.append(data)
            end += len(data)
        return cls(b"".join(pieces), tuple(places))

    def filled(self, address_of: AddressOf) -> bytes:
        """Return `data` with all addresses filled in; `address_of` returns the address of a key."""
        if not self.places:
            return self.data
        result = bytearray(self.data)
        for offset, key in self.places:
            result[offset : offset + 8] = address_of(key).to_bytes(8, "little")
        return bytes(result)


def address_to(key: Key | None) -> Addressed:
    """Return 8 bytes for the address of `key`, to be filled in later, or the undefined address if `key` is None."""
    return Addressed(b"\xff" * 8) if key is None else Addressed(bytes(8), ((0, key),))


Result = TypeVar("Result")


class ByteRange(NamedTuple):
    """`size` bytes of a file from `address` on, counted from the file's first byte (not from its base address)."""

    address: int
    size: int


Reads: TypeAlias = Generator[tuple[ByteRange, ...], Sequence[Buffer], Result]
"""A reader: a generator that yields the ranges it needs next, is sent their bytes in the same order, and returns a
result. Readers call each other with `yield from`."""


def run_reads(reads: Reads[Result], fetch: Callable[[tuple[ByteRange, ...]], Sequence[Buffer]]) -> Result:
    """Run a reader to its end and return its result; `fetch` returns exactly the bytes of each requested range."""
    try:
        wanted = next(reads)
        while True:
            wanted = reads.send(fetch(wanted))
    except StopIteration as done:
        found: Result = done.value
        return found


def concurrently(readers: Iterable[Reads[Result]]) -> Reads[list[Result]]:
    """Run readers concurrently and return their results in order. Each step yields the next ranges of all readers.

    The first error of a reader is raised, and no reader is run further.
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
