"""The file's heap of shared messages, which only files made with `H5Pset_shared_mesg_index` have.

H5.format.html, IV.A.2.p (message 0x000F, in the superblock extension) and III.I (the table of indexes). A message
there is found by its heap id; the indexes by content are for who writes.
"""

from __future__ import annotations

from hsparse.errors import Corrupt
from hsparse.format.dataspace_message import Reader
from hsparse.format.hdf5.checked_block import open_page
from hsparse.format.hdf5.fractal_heap import read_fractal_heap, read_heap_objects
from hsparse.format.hdf5.message_kind import MessageKind
from hsparse.format.hdf5.object_header import ObjectHeader
from hsparse.format.hdf5.reads import Reads
from hsparse.format.hdf5.stored_file import CHECKSUM, StoredFile, check_signature


def read_shared_table(file: StoredFile, extension: ObjectHeader) -> Reads[tuple[tuple[int, int], ...]]:
    """Read of each index the types of its messages, a bit each, and its heap's address; none where none are shared.

    `extension` is the superblock's.
    """
    for message in extension.messages:
        if message.kind == MessageKind.SHARED_TABLE:
            return (yield from _read_table(file, Reader(message.data, thing="shared message table message")))
    return ()


def _read_table(file: StoredFile, message: Reader) -> Reads[tuple[tuple[int, int], ...]]:
    version = message.number(1, "version")
    address = file.widths.read_address(message, "table's address")
    count = message.number(1, "number of indexes")
    if version or address is None:
        raise Corrupt(f"The {message.thing} has version {version} and address {address}.")
    size = 4 + count * (14 + 2 * file.widths.address) + CHECKSUM
    table = yield from file.read(address, size, "shared message table")
    check_signature(table, b"SMTB", None)
    open_page(table.data, table.thing)
    found = []
    for _ in range(count):
        table.take(2, "index")
        types = table.number(2, "types of messages")
        table.take(4 + 3 * 2 + file.widths.address, "index")
        heap = file.widths.read_address(table, "heap's address")
        found += [] if heap is None else [(types, heap)]
    return tuple(found)


def read_shared(file: StoredFile, kind: int, ids: list[memoryview]) -> Reads[list[Reader]]:
    """Read messages of type `kind` by their heap ids; raises `Corrupt`."""
    for types, address in file.shared:
        if types >> kind & 1:
            heap = yield from read_fractal_heap(file, address)
            found = yield from read_heap_objects(heap, ids)
            return [Reader(data, thing=f"message in the heap at address {address}") for data in found]
    raise Corrupt(f"The file shares no messages of type {kind:#04x}, though an object has one.")
