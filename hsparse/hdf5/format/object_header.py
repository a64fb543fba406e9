"""Object headers, versions 1 and 2: the messages that describe an object, and messages shared with other objects.

H5.format.html, IV.A.1.a (version 1, without checksum) and IV.A.1.b (version 2), with continuation blocks; IV.A.2 has
the message types.

A shared message is in the header of another object or in the file's heap of shared messages: IV.A.2 "Shared Message",
versions 1 to 3. IV.A.2.p (message 0x000F, in the superblock extension) and III.I (the table of indexes) describe the
heap, which only files created with `H5Pset_shared_mesg_index` have. Readers find a message by its heap id; only
writers use the indexes by content.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from hsparse.errors import Corrupt, Unsupported
from hsparse.format.dataspace_message import ByteReader
from hsparse.hdf5.format.file_fields import (
    CHECKSUM_SIZE,
    Reads,
    Widths,
    address_bytes,
    check_signature,
    concurrently,
    open_page,
)
from hsparse.hdf5.format.fractal_heap import read_fractal_heap, read_heap_objects
from hsparse.hdf5.format.hdf5_file import Hdf5File, StructureWalk


class MessageType(IntEnum):
    """The type of an object header message."""

    DATASPACE = 0x01
    LINK_INFO = 0x02
    DATATYPE = 0x03
    OLD_FILL = 0x04
    FILL = 0x05
    LINK = 0x06
    EXTERNAL_FILES = 0x07
    LAYOUT = 0x08
    GROUP_INFO = 0x0A
    PIPELINE = 0x0B
    ATTRIBUTE = 0x0C
    COMMENT = 0x0D
    OLD_TIME = 0x0E
    SHARED_TABLE = 0x0F
    CONTINUATION = 0x10
    SYMBOL_TABLE = 0x11
    TIME = 0x12
    BTREE_K = 0x13
    ATTRIBUTE_INFO = 0x15
    REFERENCE_COUNT = 0x16


HIGHEST_TYPE = 0x19
"""The highest message type that the specification defines."""
SHARED_FLAG, REFUSE_UNKNOWN = 0x02, 0x80
"""Message flags: the message is shared; a reader that does not know the message's type must not open the object."""
HEADER_GUESS = 512
PREFIX_1 = 16
SHORTEST_HEADER = 11
"""The size in bytes of the shortest header: version 2, without messages."""
SIZE_BITS, ATTRIBUTE_ORDER, ATTRIBUTE_INDEX, PHASES, TIMES = 3, 4, 8, 16, 32
"""Flags of version 2: the width of the first block's size (2 bits), and which optional fields are present."""


@dataclass(frozen=True, slots=True)
class HeaderMessage:
    """The type, flags and bytes of a message; `order` is its creation order if the header tracks attributes' order."""

    kind: int
    flags: int
    data: memoryview
    order: int | None = None

    @property
    def shared(self) -> bool:
        """Whether `data` is the location of a shared message."""
        return bool(self.flags & SHARED_FLAG)


@dataclass(frozen=True, slots=True)
class ObjectHeader:
    """An object's messages in file order, without continuation and NIL messages.

    `references` is the number of hard links in version 1; version 2 stores it in a message. `times` are the optional
    access, modification, change and birth times of version 2, in seconds since 1970.
    """

    address: int
    version: int
    messages: tuple[HeaderMessage, ...]
    references: int | None = None
    times: tuple[int, ...] | None = None
    attribute_order: bool = False


@dataclass(frozen=True, slots=True)
class _MessageForm:
    """The encoding of the messages in one header; `ordered` is true if messages have a creation order."""

    version: int
    ordered: bool = False

    @property
    def overhead(self) -> int:
        """The size in bytes of the prefix of a message."""
        return 8 if self.version == 1 else 6 if self.ordered else 4


def read_object_header(file: Hdf5File, address: int) -> Reads[ObjectHeader]:
    """Read the object header at `address`; raises `Corrupt`, or `Unsupported` if a required message is unknown."""
    walk = file.walk(f"object header at address {address}")
    first = yield from walk.read_sized(address, SHORTEST_HEADER, HEADER_GUESS, _whole, "object header")
    if bytes(first.data[:4]) == b"OHDR":
        header, form, body = _begin_2(first, address)
    else:
        header, form, body = _begin_1(first, address)
    messages: list[HeaderMessage] = []
    blocks = [body]
    while blocks:
        onward = []
        for block in blocks:
            for message in _messages(block, form):
                if message.kind == MessageType.CONTINUATION:
                    onward.append(_continued(walk, message, block))
                elif message.kind:
                    _check_known(message, block)
                    messages.append(message)
        found = yield from concurrently(onward)
        blocks = [_opened(block, form) for block in found]
    return ObjectHeader(
        address, form.version, tuple(messages), header.references, header.times, header.attribute_order
    )


def first_block(start: memoryview) -> Iterator[tuple[HeaderMessage, int]]:
    """Yield pairs of each message in a header's first block and the offset of the message's bytes in the header.

    `start` begins with the header; raises `Corrupt` if it ends before the block ends. Checksums are not verified.
    """
    first = ByteReader(start, subject="object header")
    size = _whole(ByteReader(start, subject=first.subject))
    first = ByteReader(first.take(size, "first block"), subject=first.subject)
    if bytes(first.data[:4]) == b"OHDR":
        flags = first.data[5]
        form = _MessageForm(2, bool(flags & ATTRIBUTE_ORDER))
        begin, end = 6 + _optional(flags) + (1 << (flags & SIZE_BITS)), size - CHECKSUM_SIZE
    else:
        form, begin, end = _MessageForm(1), PREFIX_1, size
    block = ByteReader(first.data[begin:end], subject=first.subject)
    for message in _messages(block, form):
        yield message, begin + block.place - len(message.data)


def block_size(start: memoryview) -> int:
    """Return the size in bytes of a header's prefix and first block; raises `Corrupt` if `start` is too short."""
    return _whole(ByteReader(start, subject="object header"))


def _whole(start: ByteReader) -> int:
    """Return the size in bytes of a header's prefix and first block, including the checksum in version 2."""
    if bytes(start.data[:4]) != b"OHDR":
        return PREFIX_1 + int.from_bytes(start.data[8:12], "little")
    flags = start.data[5]
    width = 1 << (flags & SIZE_BITS)
    place = 6 + _optional(flags)
    start.take(place, "prefix")
    return place + width + start.number(width, "size of the first block") + CHECKSUM_SIZE


def _optional(flags: int) -> int:
    """Return the size in bytes of the optional fields of a prefix with these `flags`."""
    return (16 if flags & TIMES else 0) + (4 if flags & PHASES else 0)


def _begin_1(first: ByteReader, address: int) -> tuple[ObjectHeader, _MessageForm, ByteReader]:
    version, _ = first.numbers(2, 1, "prefix")
    if version != 1:
        raise Corrupt(f"The {first.subject} begins with {version}: no object header of version 1 or 2.")
    first.take(2, "prefix")
    references = first.number(4, "prefix")
    first.take(8, "prefix")
    header = ObjectHeader(address, 1, (), references)
    return header, _MessageForm(1), ByteReader(first.data[PREFIX_1:], subject=first.subject)


def _begin_2(first: ByteReader, address: int) -> tuple[ObjectHeader, _MessageForm, ByteReader]:
    check_signature(first, b"OHDR", 2)
    open_page(first.data, first.subject)
    flags = first.number(1, "prefix")
    times = first.numbers(4, 4, "times") if flags & TIMES else None
    first.take((4 if flags & PHASES else 0) + (1 << (flags & SIZE_BITS)), "prefix")
    ordered = bool(flags & ATTRIBUTE_ORDER)
    header = ObjectHeader(address, 2, (), None, times, ordered)
    return (
        header,
        _MessageForm(2, ordered),
        ByteReader(first.data[first.place : -CHECKSUM_SIZE], subject=first.subject),
    )


def _opened(block: ByteReader, form: _MessageForm) -> ByteReader:
    """Return the bytes of a continuation block that contain its messages; raises `Corrupt`."""
    if form.version == 1:
        return block
    check_signature(block, b"OCHK", None)
    open_page(block.data, block.subject)
    return ByteReader(block.data[4:-CHECKSUM_SIZE], subject=block.subject)


def _messages(block: ByteReader, form: _MessageForm) -> Iterator[HeaderMessage]:
    while block.left >= form.overhead:
        kind = block.number(2 if form.version == 1 else 1, "message")
        size = block.number(2, "message")
        flags = block.number(1, "message")
        block.take(3 if form.version == 1 else 0, "message")
        order = block.number(2, "message") if form.ordered else None
        yield HeaderMessage(kind, flags, block.take(size, f"message of type {kind:#04x}"), order)


def _continued(walk: StructureWalk, message: HeaderMessage, block: ByteReader) -> Reads[ByteReader]:
    reader = ByteReader(message.data, subject=block.subject)
    address = walk.file.widths.read_address(reader, "continuation's address")
    size = walk.file.widths.read_length(reader, "continuation's length")
    if address is None or size < 8:
        raise Corrupt(f"The {block.subject} continues at address {address} with {size} bytes.")
    return walk.read(address, size, "object header's continuation")


def _check_known(message: HeaderMessage, block: ByteReader) -> None:
    if message.kind > HIGHEST_TYPE and message.flags & REFUSE_UNKNOWN:
        raise Unsupported(f"The {block.subject} has a message of the unknown type {message.kind:#04x}.")


IN_HEAP, COMMITTED = 1, 2
HEAP_ID_SIZE = 8


class SharedHeapId(NamedTuple):
    """The heap id of a message in the file's heap of shared messages."""

    id: bytes


SharedLocation: TypeAlias = int | SharedHeapId
"""The location of a shared message: the address of an object header, or a heap id."""


def decode_shared_location(message: ByteReader, widths: Widths) -> SharedLocation:
    """Decode the location of a shared message; raises `Corrupt` if the version or address is invalid."""
    version, kind = message.numbers(2, 1, "shared message")
    if not 1 <= version <= 3:
        raise Corrupt(f"The {message.subject} has a shared message of version {version}; 1 to 3 exist.")
    if version == 3 and kind == IN_HEAP:
        return SharedHeapId(bytes(message.take(HEAP_ID_SIZE, "id of a shared message")))
    if version == 1:
        message.take(6 + widths.length, "shared message")
    address = widths.read_address(message, "address of a shared message")
    if address is None:
        raise Corrupt(f"The {message.subject} has a shared message without an address.")
    return address


def encode_shared_location(address: int) -> bytes:
    """Encode the location of a datatype committed at `address`, in version 3, which HDF5 1.8 and later read."""
    return bytes((3, COMMITTED)) + address_bytes(address)


def read_shared_table(file: Hdf5File, extension: ObjectHeader) -> Reads[tuple[tuple[int, int], ...]]:
    """Read `Hdf5File.shared`: a pair (bit mask of message types, heap address) for each index of shared messages.

    `extension` is the header of the superblock extension. The result is empty if it has no table of indexes.
    """
    for message in extension.messages:
        if message.kind == MessageType.SHARED_TABLE:
            return (
                yield from _read_table(file, ByteReader(message.data, subject="shared message table message"))
            )
    return ()


def _read_table(file: Hdf5File, message: ByteReader) -> Reads[tuple[tuple[int, int], ...]]:
    version = message.number(1, "version")
    address = file.widths.read_address(message, "table's address")
    count = message.number(1, "number of indexes")
    if version or address is None:
        raise Corrupt(f"The {message.subject} has version {version}, address {address}; it needs version 0.")
    size = 4 + count * (14 + 2 * file.widths.address) + CHECKSUM_SIZE
    table = yield from file.read(address, size, "shared message table")
    check_signature(table, b"SMTB", None)
    open_page(table.data, table.subject)
    found = []
    for _ in range(count):
        table.take(2, "index")
        types = table.number(2, "types of messages")
        table.take(4 + 3 * 2 + file.widths.address, "index")
        heap = file.widths.read_address(table, "heap's address")
        found += [] if heap is None else [(types, heap)]
    return tuple(found)


def read_shared_messages(file: Hdf5File, kind: int, ids: list[memoryview]) -> Reads[list[ByteReader]]:
    """Read the shared messages of type `kind` with these heap ids; raises `Corrupt`."""
    for types, address in file.shared:
        if types >> kind & 1:
            heap = yield from read_fractal_heap(file, address)
            found = yield from read_heap_objects(heap, ids)
            return [ByteReader(data, subject=f"message in the heap at address {address}") for data in found]
    raise Corrupt(
        f"An object has a shared message of type {kind:#04x}, but the file has no heap for this type."
    )
