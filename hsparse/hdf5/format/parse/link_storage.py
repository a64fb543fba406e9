"""Links and attributes that are not in the object header: symbol tables and dense storage.

H5.format.html, III.A.1 (version 1 B-tree), III.B (symbol table node) and III.C (entry): the links of a group
before HDF5 1.8, with names in a local heap. III.A.2, records of type 5 (links by name) and 8 (attributes by name):
messages in a fractal heap, found by a version 2 B-tree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hsparse.errors import Corrupt
from hsparse.format.dataspace_message import ByteReader
from hsparse.hdf5.format.btree_v2 import read_btree_v2, split_records
from hsparse.hdf5.format.file_fields import Reads, Widths, check_signature, concurrently
from hsparse.hdf5.format.fractal_heap import LocalHeap, read_fractal_heap, read_heap_objects, read_local_heap
from hsparse.hdf5.format.hdf5_file import Hdf5File, Walk
from hsparse.hdf5.format.messages.group_messages import (
    ATTRIBUTE_ID_SIZE,
    ATTRIBUTE_NAMES,
    HASH_SIZE,
    LINK_ID_SIZE,
    LINK_NAMES,
    DenseStorage,
    HardLink,
    LinkMessage,
    SoftLink,
    SymbolTable,
)
from hsparse.hdf5.format.object_header import SHARED_FLAG, MessageType, read_shared_messages

GROUP_NODE = 0
SOFT_CACHE = 2
"""The cache type of an entry whose scratch space has the place of a soft link's path."""
NODE_GUESS = 544
"""Bytes of a B-tree node with the usual 16 children to each side, 8 bytes an address."""
LEAF_GUESS = 328
"""Bytes of a symbol table node with the usual 4 entries to each side."""


def parse_symbol_table(file: Hdf5File, table: SymbolTable) -> Reads[tuple[LinkMessage, ...]]:
    """Read a group's links in the order of their names; raises `Corrupt`."""
    heap = yield from read_local_heap(file, table.heap)
    walk = file.walk(f"group B-tree at address {table.btree}")
    nodes, level = [table.btree], None
    while level != 0:
        guess = walk.limit_guess(NODE_GUESS, len(nodes))
        found = yield from concurrently(_read_node(walk, address, guess) for address in nodes)
        below = found[0][0] if level is None else level - 1
        if any(other != below for other, _ in found):
            raise Corrupt(
                f"The group B-tree at address {table.btree} has a node of another level than {below}."
            )
        level, nodes = below, [child for _, children in found for child in children]
        if not nodes:
            return ()
    guess = walk.limit_guess(LEAF_GUESS, len(nodes))
    leaves = yield from concurrently(_read_leaf(walk, address, guess) for address in nodes)
    return tuple(link for leaf in leaves for link in _entries(leaf, file.widths, heap))


def _read_node(walk: Walk, address: int, guess: int) -> Reads[tuple[int, list[int]]]:
    """Read a B-tree node: its level and its children's addresses."""
    widths = walk.file.widths
    head = 8 + 2 * widths.address

    def whole(start: ByteReader) -> int:
        used = int.from_bytes(start.data[6:8], "little")
        return head + used * (widths.length + widths.address) + widths.length

    node = yield from walk.read_sized(address, head, guess, whole, "group B-tree node")
    check_signature(node, b"TREE", GROUP_NODE)
    level = node.number(1, "level")
    used = node.number(2, "number of children")
    node.take(2 * widths.address + widths.length, "siblings")
    children = []
    for _ in range(used):
        child = widths.read_address(node, "child")
        widths.read_length(node, "key")
        if child is None:
            raise Corrupt(f"The {node.subject} has a child without address.")
        children.append(child)
    return level, children


def _read_leaf(walk: Walk, address: int, guess: int) -> Reads[ByteReader]:
    entry = 2 * walk.file.widths.address + 24

    def whole(start: ByteReader) -> int:
        return 8 + entry * int.from_bytes(start.data[6:8], "little")

    leaf = yield from walk.read_sized(address, 8, guess, whole, "symbol table node")
    check_signature(leaf, b"SNOD", 1)
    return leaf


def _entries(leaf: ByteReader, widths: Widths, heap: LocalHeap) -> Iterator[LinkMessage]:
    leaf.take(1, "header")
    for _ in range(leaf.number(2, "number of entries")):
        name = heap.text(leaf.number(widths.address, "name's offset"))
        address = widths.read_address(leaf, "object's address")
        cache = leaf.number(4, "cache type")
        leaf.take(4, "entry")
        scratch = leaf.take(16, "scratch space")
        if not name or (address is None and cache != SOFT_CACHE):
            raise Corrupt(f"The {leaf.subject} has an entry {name!r} that leads nowhere.")
        if cache == SOFT_CACHE:
            yield LinkMessage(name, SoftLink(heap.text(int.from_bytes(scratch[:4], "little"))))
        elif address is not None:
            yield LinkMessage(name, HardLink(address))


@dataclass(frozen=True, slots=True)
class DenseMessage:
    """A link or attribute message; `order` is that of an attribute's creation."""

    data: ByteReader
    order: int | None = None


def parse_dense_links(file: Hdf5File, storage: DenseStorage) -> Reads[list[DenseMessage]]:
    """Read a group's link messages, in the order of their names' hashes; raises `Corrupt`."""
    records = yield from _records(file, storage, LINK_NAMES, HASH_SIZE + LINK_ID_SIZE)
    ids = [record[HASH_SIZE:] for record in records]
    return [DenseMessage(data) for data in (yield from _objects(file, storage, ids, "link"))]


def parse_dense_attributes(file: Hdf5File, storage: DenseStorage) -> Reads[list[DenseMessage]]:
    """Read an object's attribute messages, in the order of their names' hashes; raises `Corrupt`."""
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
