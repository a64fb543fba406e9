"""The links of groups in symbol tables, the original form of HDF5 groups, with names in a local heap.

H5.format.html, III.A.1 (version 1 B-tree), III.B (symbol table node) and III.C (entry).
"""

from __future__ import annotations

from collections.abc import Iterator

from hsparse.errors import Corrupt
from hsparse.format.dataspace_message import ByteReader
from hsparse.hdf5.format.file_fields import Reads, Widths, check_signature, concurrently
from hsparse.hdf5.format.fractal_heap import LocalHeap, read_local_heap
from hsparse.hdf5.format.hdf5_file import Hdf5File, StructureWalk
from hsparse.hdf5.format.messages.group_messages import (
    LinkMessage,
    StoredHardLink,
    StoredSoftLink,
    SymbolTable,
)

GROUP_NODE = 0
SOFT_CACHE = 2
"""The cache type of a soft link's entry; the entry's scratch space has the offset of the path in the local heap."""
NODE_GUESS = 544
"""The size in bytes of a B-tree node with the default K of 16 (32 children) and addresses of 8 bytes."""
LEAF_GUESS = 328
"""The size in bytes of a symbol table node with the default K of 4 (8 entries)."""


def parse_symbol_table(file: Hdf5File, table: SymbolTable) -> Reads[tuple[LinkMessage, ...]]:
    """Read the links of a group from its symbol table, sorted by name; raises `Corrupt`."""
    heap = yield from read_local_heap(file, table.heap)
    walk = file.walk(f"group B-tree at address {table.btree}")
    nodes, level = [table.btree], None
    while level != 0:
        guess = walk.limit_guess(NODE_GUESS, len(nodes))
        found = yield from concurrently(_read_node(walk, address, guess) for address in nodes)
        below = found[0][0] if level is None else level - 1
        if any(other != below for other, _ in found):
            raise Corrupt(f"The group B-tree at address {table.btree} has a node whose level is not {below}.")
        level, nodes = below, [child for _, children in found for child in children]
        if not nodes:
            return ()
    guess = walk.limit_guess(LEAF_GUESS, len(nodes))
    leaves = yield from concurrently(_read_leaf(walk, address, guess) for address in nodes)
    return tuple(link for leaf in leaves for link in _entries(leaf, file.widths, heap))


def _read_node(walk: StructureWalk, address: int, guess: int) -> Reads[tuple[int, list[int]]]:
    """Read a B-tree node; return a pair: the node's level, and its children's addresses."""
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
            raise Corrupt(f"The {node.subject} has a child at the undefined address.")
        children.append(child)
    return level, children


def _read_leaf(walk: StructureWalk, address: int, guess: int) -> Reads[ByteReader]:
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
            raise Corrupt(f"The {leaf.subject} has an entry {name!r} without a name or an address.")
        if cache == SOFT_CACHE:
            yield LinkMessage(name, StoredSoftLink(heap.text(int.from_bytes(scratch[:4], "little"))))
        elif address is not None:
            yield LinkMessage(name, StoredHardLink(address))
