"""The plans of object headers, global heaps, fractal heaps and version 2 B-trees.

The structures are simple, so that their sizes and offsets are sums. An object header is one block of version 2
(H5.format.html, IV.A.1.b). A collection of a global heap is closed once it has 64 KiB or more (III.E). A fractal heap
has one direct block (III.G). A B-tree is one leaf or, beyond 60,000 records, a root and leaves (III.A.2).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from hsparse.errors import TooLarge
from hsparse.hdf5.format.btree_v2 import MERGE, NODE_OVERHEAD, SPLIT
from hsparse.hdf5.format.file_fields import (
    UNDEFINED,
    Addressed,
    AddressOf,
    Key,
    address_to,
    seal_page,
    width_of,
)
from hsparse.hdf5.format.fractal_heap import HUGE, HUGE_RECORD, MANAGED
from hsparse.hdf5.format.global_heap import MAX_OBJECTS, OBJECT_HEAD, collection_size, encode_global_heap
from hsparse.hdf5.format.object_header import ATTRIBUTE_INDEX, ATTRIBUTE_ORDER
from hsparse.hdf5.format.plan.file_plan import FilePiece

MAX_MESSAGE = 65_535
SIZE_CODES = {1: 0, 2: 1, 3: 2, 4: 2}


@dataclass(frozen=True, slots=True)
class PlannedMessage:
    """The type, bytes and flags of a message; `order` is a creation order, written if the header tracks attributes'."""

    kind: int
    data: Addressed
    flags: int = 0
    order: int = 0


def plan_object_header(
    key: Key, messages: Sequence[PlannedMessage], *, attribute_order: bool = False
) -> FilePiece:
    """Return the piece of an object header; raises `TooLarge` if a message has more than 65535 bytes."""
    parts = []
    for message in messages:
        size = len(message.data.data)
        if size > MAX_MESSAGE:
            raise TooLarge(
                f"A message of type {message.kind:#04x} has {size} bytes; the limit is {MAX_MESSAGE}."
            )
        order = struct.pack("<H", message.order) if attribute_order else b""
        parts += [Addressed(struct.pack("<BHB", message.kind, size, message.flags) + order), message.data]
    body = Addressed.join(parts)
    code = SIZE_CODES[width_of(len(body.data))]
    flags = code | (ATTRIBUTE_ORDER | ATTRIBUTE_INDEX if attribute_order else 0)
    head = struct.pack("<4sBB", b"OHDR", 2, flags) + len(body.data).to_bytes(1 << code, "little")
    content = Addressed.join((Addressed(head), body))
    return FilePiece(key, len(content.data) + 4, partial(_make_header, content))


def _make_header(content: Addressed, address_of: AddressOf) -> bytes:
    return seal_page(content.filled(address_of))


FULL_COLLECTION = 65_536
"""No more objects are added to a collection that has at least this many bytes."""


class GlobalHeapPlan:
    """Collects the objects of a planned global heap; `name` distinguishes the collections of different heap plans."""

    def __init__(self, name: Key = "heap") -> None:
        self._name = name
        self._collections: list[list[Addressed]] = []
        self._used = FULL_COLLECTION

    def add(self, data: Addressed) -> tuple[Key, int]:
        """Add an object; return a pair: the key of its collection, and its number in the collection."""
        if self._used >= FULL_COLLECTION or len(self._collections[-1]) == MAX_OBJECTS:
            self._collections.append([])
            self._used = 0
        self._collections[-1].append(data)
        self._used += OBJECT_HEAD + len(data.data)
        return (self._name, len(self._collections) - 1), len(self._collections[-1])

    def pieces(self) -> Iterator[FilePiece]:
        """Yield the piece of each collection."""
        for number, objects in enumerate(self._collections):
            size = collection_size([len(one.data) for one in objects])
            yield FilePiece((self._name, number), size, partial(_make_collection, objects))


def _make_collection(objects: Sequence[Addressed], address_of: AddressOf) -> bytes:
    return encode_global_heap([one.filled(address_of) for one in objects])


BLOCK_HEAD = 4 + 1 + 8 + 4
"""The size in bytes of a direct block's prefix: signature, version, heap's address, block's offset."""
HEAP_BITS = 32
MAX_MANAGED = 65_535
"""The maximum size in bytes of a managed object; heap ids have two bytes for the size of an object."""
MIN_BLOCK, MAX_BLOCK = 512, 2**31
"""The minimum and maximum size in bytes of a direct block; the maximum is a limit of HDF5."""
LARGE_BLOCK = 65_536
"""The size in bytes of the largest direct block that HDF5 itself uses for links and attributes."""
TABLE_WIDTH = 4
MIN_NODE = 512
MAX_LEAF = 60_000
"""The maximum number of records in a leaf; nodes have two bytes for this number."""
HEAP_HEADER = 146
TREE_HEADER = 38


def plan_fractal_heap(
    name: Key, objects: Sequence[Addressed], id_length: int
) -> tuple[list[FilePiece], list[bytes]]:
    """Return a pair: the pieces of a heap, whose header has the key `(name, "heap")`, and the heap id of each object.

    An object of more than 65535 bytes is a separate piece, which a B-tree indexes. Raises `TooLarge` if all smaller
    objects together have more than 2 GiB.
    """
    header, block = (name, "heap"), (name, "heap block")
    managed: list[Addressed] = []
    huge: list[FilePiece] = []
    ids: list[bytes] = []
    end = BLOCK_HEAD
    for one in objects:
        size = len(one.data)
        if size > MAX_MANAGED:
            huge.append(FilePiece((name, "huge", len(huge)), size, one.filled))
            id = bytes((HUGE << 4,)) + len(huge).to_bytes(min(8, id_length - 1), "little")
        else:
            managed.append(one)
            id = bytes((MANAGED << 4,)) + struct.pack("<IH", end, size)
            end += size
        ids.append(id.ljust(id_length, b"\0"))
    if end > MAX_BLOCK:
        raise TooLarge(f"The links or attributes of one object have more than {MAX_BLOCK} bytes.")
    size = max(MIN_BLOCK, 1 << (end - 1).bit_length())
    content = _header(header, block, id_length, size, len(managed), huge)
    pieces = [
        FilePiece(header, HEAP_HEADER, partial(_make_checked, content)),
        FilePiece(block, size, partial(_make_block, Addressed.join(managed), header, size)),
    ]
    records = [
        Addressed(struct.pack("<QQQ", 0, piece.size, id), ((0, piece.key),))
        for id, piece in enumerate(huge, 1)
    ]
    return pieces + (plan_btree_v2(header, HUGE_RECORD, records) if huge else []) + huge, ids


def _header(
    header: Key, block: Key, id_length: int, size: int, count: int, huge: Sequence[FilePiece]
) -> Addressed:
    """Return the header of a heap with one block of `size` bytes, `count` managed objects, and `huge` objects.

    The header declares no free space, so libhdf5 allocates another block for an object that is added later.
    """
    head = struct.pack("<4sBHHBI", b"FRHP", 0, id_length, 0, 0, MAX_MANAGED)
    tree = address_to((header, HUGE_RECORD) if huge else None)
    free = struct.pack("<Q", 0) + UNDEFINED
    managed = struct.pack("<QQQQ", size, size, 0, count)
    others = struct.pack("<QQQQ", sum(piece.size for piece in huge), len(huge), 0, 0)
    table = struct.pack("<HQQHH", TABLE_WIDTH, size, max(size, LARGE_BLOCK), HEAP_BITS, 1)
    return Addressed.join(
        (
            Addressed(head + struct.pack("<Q", len(huge))),
            tree,
            Addressed(free + managed + others + table),
            address_to(block),
            Addressed(bytes(2)),
        )
    )


def _make_block(content: Addressed, header: Key, size: int, address_of: AddressOf) -> bytes:
    head = struct.pack("<4sBQI", b"FHDB", 0, address_of(header), 0)
    data = head + content.filled(address_of)
    return data + bytes(size - len(data))


def plan_btree_v2(name: Key, kind: int, records: Sequence[Addressed]) -> list[FilePiece]:
    """Return the pieces of a tree of sorted `records`; it has at least one record, and all records have one size.

    The key of the tree's header is `(name, kind)`.
    """
    size = len(records[0].data)
    count = len(records)
    if count <= MAX_LEAF:
        node = max(MIN_NODE, NODE_OVERHEAD + count * size)
        leaf = FilePiece((name, kind, 0), node, partial(_make_leaf, kind, records, node))
        return [_tree_header(name, kind, size, node, 0, count, count), leaf]
    width = width_of(MAX_LEAF)
    node = NODE_OVERHEAD + MAX_LEAF * size
    # one record of the root separates adjacent leaves
    leaves = [records[at : at + MAX_LEAF] for at in range(0, count, MAX_LEAF + 1)]
    between = [records[at] for at in range(MAX_LEAF, count, MAX_LEAF + 1)]
    if len(between) == len(leaves):  # the last record of the root needs a leaf after it
        leaves[-1:] = [leaves[-1][:-1], [between[-1]]]
        between[-1] = records[-2]
    pieces = [
        FilePiece((name, kind, number), node, partial(_make_leaf, kind, leaf_records, node))
        for number, leaf_records in enumerate(leaves, 1)
    ]
    root = Addressed.join(
        (
            Addressed(b"BTIN" + bytes((0, kind))),
            *between,
            *(
                Addressed(bytes(8) + len(leaf_records).to_bytes(width, "little"), ((0, piece.key),))
                for piece, leaf_records in zip(pieces, leaves, strict=True)
            ),
        )
    )
    top = FilePiece((name, kind, 0), node, partial(_make_node, root, node))
    return [_tree_header(name, kind, size, node, 1, len(between), count), top, *pieces]


def _tree_header(name: Key, kind: int, size: int, node: int, depth: int, count: int, total: int) -> FilePiece:
    head = struct.pack("<4sBBIHHBB", b"BTHD", 0, kind, node, size, depth, SPLIT, MERGE)
    content = Addressed(head + struct.pack("<QHQ", 0, count, total), ((len(head), (name, kind, 0)),))
    return FilePiece((name, kind), TREE_HEADER, partial(_make_checked, content))


def _make_checked(content: Addressed, address_of: AddressOf) -> bytes:
    return seal_page(content.filled(address_of))


def _make_node(content: Addressed, node: int, address_of: AddressOf) -> bytes:
    data = _make_checked(content, address_of)
    return data + bytes(node - len(data))


def _make_leaf(kind: int, records: Sequence[Addressed], node: int, address_of: AddressOf) -> bytes:
    return _make_node(Addressed.join((Addressed(b"BTLF" + bytes((0, kind))), *records)), node, address_of)
