"""Shared messages: in the header of another object, or in the file's heap of shared messages.

H5.format.html, IV.A.2 "Shared Message", versions 1 to 3; IV.A.2.p (message 0x000F, in the superblock extension) and
III.I (the table of indexes) for the heap, which only files made with `H5Pset_shared_mesg_index` have. A heap id
leads to a message; the indexes by content serve writers only.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from hsparse.errors import Corrupt
from hsparse.format.dataspace_message import ByteReader
from hsparse.format.hdf5.file_fields import CHECKSUM_SIZE, Widths, address_bytes, check_signature, open_page
from hsparse.format.hdf5.fractal_heap import read_fractal_heap, read_heap_objects
from hsparse.format.hdf5.hdf5_file import Hdf5File
from hsparse.format.hdf5.object_header import MessageType, ObjectHeader
from hsparse.format.hdf5.reads import Reads

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
