"""Object headers, versions 1 and 2: the messages that describe an object.

H5.format.html, IV.A.1.a (version 1, without checksum) and IV.A.1.b (version 2), continuation blocks included;
IV.A.2 for the types of messages.

Shared messages: in the header of another object, or in the file's heap of shared messages.

H5.format.html, IV.A.2 "Shared Message", versions 1 to 3; IV.A.2.p (message 0x000F, in the superblock extension) and
III.I (the table of indexes) for the heap, which only files made with `H5Pset_shared_mesg_index` have. A heap id
leads to a message; the indexes by content serve writers only.
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
from hsparse.hdf5.format.hdf5_file import Hdf5File, Walk


class MessageType(IntEnum):
    """A message's type."""

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
"""The highest message type that is known."""
SHARED_FLAG, REFUSE_UNKNOWN = 0x02, 0x80
"""Flags of messages: shared; a reader that does not know the type must not open the object."""
HEADER_GUESS = 512
PREFIX_1 = 16
SHORTEST_HEADER = 11
"""Bytes of the shortest header, one of version 2 without messages."""
SIZE_BITS, ATTRIBUTE_ORDER, ATTRIBUTE_INDEX, PHASES, TIMES = 3, 4, 8, 16, 32
"""Flags of version 2: the bytes of the first block's size, and which fields there are."""


@dataclass(frozen=True, slots=True)
class HeaderMessage:
    """A message's type, flags and bytes; `order` is that of its creation, where attributes' order is tracked."""

    kind: int
    flags: int
    data: memoryview
    order: int | None = None

    @property
    def shared(self) -> bool:
        """Say whether the bytes are only the location of the message."""
        return bool(self.flags & SHARED_FLAG)


@dataclass(frozen=True, slots=True)
class ObjectHeader:
    """An object's messages in file order, without continuations and gaps.

    `references` is the number of hard links in version 1; version 2 has a message for it. `times` are access,
    modification, change and birth in seconds since 1970, where version 2 has them.
    """

    address: int
    version: int
    messages: tuple[HeaderMessage, ...]
    references: int | None = None
    times: tuple[int, ...] | None = None
    attribute_order: bool = False


@dataclass(frozen=True, slots=True)
class _Form:
    """The form of messages in one header."""

    version: int
    ordered: bool = False

    @property
    def overhead(self) -> int:
        """The bytes before a message."""
        return 8 if self.version == 1 else 6 if self.ordered else 4


def read_object_header(file: Hdf5File, address: int) -> Reads[ObjectHeader]:
    """Read the object header at `address`; raises `Corrupt`, and `Unsupported` for messages that must be known."""
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


def _whole(start: ByteReader) -> int:
    """Return the bytes of the prefix and the first block."""
    if bytes(start.data[:4]) != b"OHDR":
        return PREFIX_1 + int.from_bytes(start.data[8:12], "little")
    flags = start.data[5]
    width = 1 << (flags & SIZE_BITS)
    place = 6 + _optional(flags)
    start.take(place, "prefix")
    return place + width + start.number(width, "size of the first block") + CHECKSUM_SIZE


def _optional(flags: int) -> int:
    """Return the bytes of the prefix's optional fields."""
    return (16 if flags & TIMES else 0) + (4 if flags & PHASES else 0)


def _begin_1(first: ByteReader, address: int) -> tuple[ObjectHeader, _Form, ByteReader]:
    version, _ = first.numbers(2, 1, "prefix")
    if version != 1:
        raise Corrupt(f"The {first.subject} begins with {version}: no object header of version 1 or 2.")
    first.take(2, "prefix")
    references = first.number(4, "prefix")
    first.take(8, "prefix")
    header = ObjectHeader(address, 1, (), references)
    return header, _Form(1), ByteReader(first.data[PREFIX_1:], subject=first.subject)


def _begin_2(first: ByteReader, address: int) -> tuple[ObjectHeader, _Form, ByteReader]:
    check_signature(first, b"OHDR", 2)
    open_page(first.data, first.subject)
    flags = first.number(1, "prefix")
    times = first.numbers(4, 4, "times") if flags & TIMES else None
    first.take((4 if flags & PHASES else 0) + (1 << (flags & SIZE_BITS)), "prefix")
    ordered = bool(flags & ATTRIBUTE_ORDER)
    header = ObjectHeader(address, 2, (), None, times, ordered)
    return (
        header,
        _Form(2, ordered),
        ByteReader(first.data[first.place : -CHECKSUM_SIZE], subject=first.subject),
    )


def _opened(block: ByteReader, form: _Form) -> ByteReader:
    """Return the messages' bytes of a continuation block."""
    if form.version == 1:
        return block
    check_signature(block, b"OCHK", None)
    open_page(block.data, block.subject)
    return ByteReader(block.data[4:-CHECKSUM_SIZE], subject=block.subject)


def _messages(block: ByteReader, form: _Form) -> Iterator[HeaderMessage]:
    while block.left >= form.overhead:
        kind = block.number(2 if form.version == 1 else 1, "message")
        size = block.number(2, "message")
        flags = block.number(1, "message")
        block.take(3 if form.version == 1 else 0, "message")
        order = block.number(2, "message") if form.ordered else None
        yield HeaderMessage(kind, flags, block.take(size, f"message of type {kind:#04x}"), order)


def _continued(walk: Walk, message: HeaderMessage, block: ByteReader) -> Reads[ByteReader]:
    reader = ByteReader(message.data, subject=block.subject)
    address = walk.file.widths.read_address(reader, "continuation's address")
    size = walk.file.widths.read_length(reader, "continuation's length")
    if address is None or size < 8:
        raise Corrupt(f"The {block.subject} continues at address {address} with {size} bytes.")
    return walk.read(address, size, "object header's continuation")


def _check_known(message: HeaderMessage, block: ByteReader) -> None:
    if message.kind > HIGHEST_TYPE and message.flags & REFUSE_UNKNOWN:
        raise Unsupported(
            f"The {block.subject} has a message of type {message.kind:#04x}, which is not known here."
        )


IN_HEAP, COMMITTED = 1, 2
HEAP_ID_SIZE = 8


class SharedHeapId(NamedTuple):
    """The id of a message in the file's heap of shared messages."""

    id: bytes


SharedLocation: TypeAlias = int | SharedHeapId
"""The location of a message: the address of an object header, or an id in the heap."""


def decode_shared_location(message: ByteReader, widths: Widths) -> SharedLocation:
    """Return where the message is; raises `Corrupt`."""
    version, kind = message.numbers(2, 1, "shared message")
    if not 1 <= version <= 3:
        raise Corrupt(f"The {message.subject} has a shared message of version {version}; 1 to 3 exist.")
    if version == 3 and kind == IN_HEAP:
        return SharedHeapId(bytes(message.take(HEAP_ID_SIZE, "id of a shared message")))
    if version == 1:
        message.take(6 + widths.length, "shared message")
    address = widths.read_address(message, "address of a shared message")
    if address is None:
        raise Corrupt(f"The {message.subject} has a shared message that is nowhere.")
    return address


def encode_shared_location(address: int) -> bytes:
    """Return the shared message for the datatype committed at `address`: version 3, which HDF5 1.8 reads."""
    return bytes((3, COMMITTED)) + address_bytes(address)


def read_shared_table(file: Hdf5File, extension: ObjectHeader) -> Reads[tuple[tuple[int, int], ...]]:
    """Read of each index the types of its messages, a bit each, and its heap's address; none where none are shared.

    `extension` is the superblock's.
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
        raise Corrupt(f"The {message.subject} has version {version} and address {address}.")
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
    """Read messages of type `kind` by their heap ids; raises `Corrupt`."""
    for types, address in file.shared:
        if types >> kind & 1:
            heap = yield from read_fractal_heap(file, address)
            found = yield from read_heap_objects(heap, ids)
            return [ByteReader(data, subject=f"message in the heap at address {address}") for data in found]
    raise Corrupt(f"The file shares no messages of type {kind:#04x}, though an object has one.")
