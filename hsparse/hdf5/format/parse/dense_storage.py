"""Links and attributes in dense storage: messages in a fractal heap, which a version 2 B-tree indexes by name.

H5.format.html, III.A.2: records of type 5 (links by name) and 8 (attributes by name).
"""

from __future__ import annotations

from dataclasses import dataclass

from hsparse.errors import Corrupt
from hsparse.format.dataspace_message import ByteReader
from hsparse.hdf5.format.btree_v2 import read_btree_v2, split_records
from hsparse.hdf5.format.file_fields import Reads
from hsparse.hdf5.format.fractal_heap import read_fractal_heap, read_heap_objects
from hsparse.hdf5.format.hdf5_file import Hdf5File
from hsparse.hdf5.format.messages.group_messages import (
    ATTRIBUTE_ID_SIZE,
    ATTRIBUTE_NAMES,
    HASH_SIZE,
    LINK_ID_SIZE,
    LINK_NAMES,
    DenseStorage,
)
from hsparse.hdf5.format.object_header import SHARED_FLAG, MessageType, read_shared_messages


@dataclass(frozen=True, slots=True)
class DenseMessage:
    """A link or attribute message; `order` is an attribute's creation order."""

    data: ByteReader
    order: int | None = None


def parse_dense_links(file: Hdf5File, storage: DenseStorage) -> Reads[list[DenseMessage]]:
    """Read a group's link messages, sorted by the hash of their names; raises `Corrupt`."""
    records = yield from _records(file, storage, LINK_NAMES, HASH_SIZE + LINK_ID_SIZE)
    ids = [record[HASH_SIZE:] for record in records]
    return [DenseMessage(data) for data in (yield from _objects(file, storage, ids, "link"))]


def parse_dense_attributes(file: Hdf5File, storage: DenseStorage) -> Reads[list[DenseMessage]]:
    """Read an object's attribute messages: first unshared, then shared messages, each sorted by name hash."""
    records = yield from _records(file, storage, ATTRIBUTE_NAMES, ATTRIBUTE_ID_SIZE + 1 + 4 + HASH_SIZE)
    own = [record for record in records if not record[ATTRIBUTE_ID_SIZE] & SHARED_FLAG]
    others = [record for record in records if record[ATTRIBUTE_ID_SIZE] & SHARED_FLAG]
    messages = yield from _objects(file, storage, [record[:ATTRIBUTE_ID_SIZE] for record in own], "attribute")
    if others:
        messages += yield from read_shared_messages(
            file, MessageType.ATTRIBUTE, [record[:ATTRIBUTE_ID_SIZE] for record in others]
        )
    orders = [
        int.from_bytes(record[ATTRIBUTE_ID_SIZE + 1 : ATTRIBUTE_ID_SIZE + 5], "little")
        for record in own + others
    ]
    return [DenseMessage(data, order) for data, order in zip(messages, orders, strict=True)]


def _records(file: Hdf5File, storage: DenseStorage, kind: int, size: int) -> Reads[list[memoryview]]:
    if storage.heap is None:
        return []
    if storage.names is None:
        raise Corrupt(f"The dense storage with heap at address {storage.heap} has no index by name.")
    records = yield from read_btree_v2(file.bounds, file.widths, storage.names, kind)
    if records.itemsize != size:
        raise Corrupt(
            f"The B-tree at address {storage.names} has records of {records.itemsize} bytes, not {size}."
        )
    return split_records(records)


def _objects(
    file: Hdf5File, storage: DenseStorage, ids: list[memoryview], what: str
) -> Reads[list[ByteReader]]:
    if storage.heap is None or not ids:
        return []
    heap = yield from read_fractal_heap(file, storage.heap)
    found = yield from read_heap_objects(heap, ids)
    return [ByteReader(data, subject=f"{what} in the heap at address {storage.heap}") for data in found]
