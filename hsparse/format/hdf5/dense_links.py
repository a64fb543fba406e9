"""Dense storage of links and attributes: messages in a fractal heap, found by a version 2 B-tree.

H5.format.html, III.A.2: records of type 5 (links by name) and 8 (attributes by name).
"""

from __future__ import annotations

from dataclasses import dataclass

from hsparse.errors import Corrupt
from hsparse.format.dataspace_message import Reader
from hsparse.format.hdf5.btree_v2 import each_record, read_btree_v2
from hsparse.format.hdf5.dense_storage import DenseStorage
from hsparse.format.hdf5.fractal_heap import read_fractal_heap, read_heap_objects
from hsparse.format.hdf5.message_kind import MessageKind
from hsparse.format.hdf5.object_header import SHARED
from hsparse.format.hdf5.reads import Reads
from hsparse.format.hdf5.shared_heap import read_shared
from hsparse.format.hdf5.stored_file import StoredFile

LINK_NAMES, LINK_ORDERS, ATTRIBUTE_NAMES, ATTRIBUTE_ORDERS = 5, 6, 8, 9
"""Types of B-trees."""
LINK_ID, ATTRIBUTE_ID = 7, 8
"""Bytes of a heap id."""
HASH = 4


@dataclass(frozen=True, slots=True)
class DenseMessage:
    """A link or attribute message; `order` is that of an attribute's creation."""

    data: Reader
    order: int | None = None


def read_dense_links(file: StoredFile, storage: DenseStorage) -> Reads[list[DenseMessage]]:
    """Read a group's link messages, in the order of their names' hashes; raises `Corrupt`."""
    records = yield from _records(file, storage, LINK_NAMES, HASH + LINK_ID)
    ids = [record[HASH:] for record in records]
    return [DenseMessage(data) for data in (yield from _objects(file, storage, ids, "link"))]


def read_dense_attributes(file: StoredFile, storage: DenseStorage) -> Reads[list[DenseMessage]]:
    """Read an object's attribute messages, in the order of their names' hashes; raises `Corrupt`."""
    records = yield from _records(file, storage, ATTRIBUTE_NAMES, ATTRIBUTE_ID + 1 + 4 + HASH)
    own = [record for record in records if not record[ATTRIBUTE_ID] & SHARED]
    others = [record for record in records if record[ATTRIBUTE_ID] & SHARED]
    messages = yield from _objects(file, storage, [record[:ATTRIBUTE_ID] for record in own], "attribute")
    if others:
        messages += yield from read_shared(
            file, MessageKind.ATTRIBUTE, [record[:ATTRIBUTE_ID] for record in others]
        )
    orders = [
        int.from_bytes(record[ATTRIBUTE_ID + 1 : ATTRIBUTE_ID + 5], "little") for record in own + others
    ]
    return [DenseMessage(data, order) for data, order in zip(messages, orders, strict=True)]


def _records(file: StoredFile, storage: DenseStorage, kind: int, size: int) -> Reads[list[memoryview]]:
    if storage.heap is None:
        return []
    if storage.names is None:
        raise Corrupt(f"The dense storage with heap at address {storage.heap} has no index by name.")
    records = yield from read_btree_v2(file.bounds, file.widths, storage.names, kind)
    if records.itemsize != size:
        raise Corrupt(
            f"The B-tree at address {storage.names} has records of {records.itemsize} bytes, not {size}."
        )
    return each_record(records)


def _objects(
    file: StoredFile, storage: DenseStorage, ids: list[memoryview], what: str
) -> Reads[list[Reader]]:
    if storage.heap is None or not ids:
        return []
    heap = yield from read_fractal_heap(file, storage.heap)
    found = yield from read_heap_objects(heap, ids)
    return [Reader(data, thing=f"{what} in the heap at address {storage.heap}") for data in found]
