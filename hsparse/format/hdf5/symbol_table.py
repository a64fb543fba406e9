"""Old-style groups: a version 1 B-tree of symbol table nodes, with names in a local heap.

H5.format.html, III.A.1 (B-tree), III.B (symbol table node) and III.C (entry).
"""

from __future__ import annotations

from collections.abc import Iterator

from hsparse.errors import Corrupt
from hsparse.format.dataspace_message import Reader
from hsparse.format.hdf5.link_message import Hard, Soft, StoredLink
from hsparse.format.hdf5.local_heap import LocalHeap, read_local_heap
from hsparse.format.hdf5.reads import Reads
from hsparse.format.hdf5.stored_file import StoredFile, Walk, check_signature
from hsparse.format.hdf5.symbol_table_message import SymbolTable
from hsparse.format.hdf5.together import together
from hsparse.format.hdf5.widths import Widths

GROUP_NODE = 0
SOFT_CACHE = 2
"""The cache type of an entry whose scratch space has the place of a soft link's path."""
NODE_GUESS = 544
"""Bytes of a B-tree node with the usual 16 children to each side, 8 bytes an address."""
LEAF_GUESS = 328
"""Bytes of a symbol table node with the usual 4 entries to each side."""


def read_symbol_table(file: StoredFile, table: SymbolTable) -> Reads[tuple[StoredLink, ...]]:
    """Read a group's links in the order of their names; raises `Corrupt`."""
    heap = yield from read_local_heap(file, table.heap)
    walk = file.walk(f"group B-tree at address {table.btree}")
    nodes, level = [table.btree], None
    while level != 0:
        guess = walk.share(NODE_GUESS, len(nodes))
        found = yield from together(_read_node(walk, address, guess) for address in nodes)
        below = found[0][0] if level is None else level - 1
        if any(other != below for other, _ in found):
            raise Corrupt(
                f"The group B-tree at address {table.btree} has a node of another level than {below}."
            )
        level, nodes = below, [child for _, children in found for child in children]
        if not nodes:
            return ()
    guess = walk.share(LEAF_GUESS, len(nodes))
    leaves = yield from together(_read_leaf(walk, address, guess) for address in nodes)
    return tuple(link for leaf in leaves for link in _entries(leaf, file.widths, heap))


def _read_node(walk: Walk, address: int, guess: int) -> Reads[tuple[int, list[int]]]:
    """Read a B-tree node: its level and its children's addresses."""
    widths = walk.file.widths
    head = 8 + 2 * widths.address

    def whole(start: Reader) -> int:
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
            raise Corrupt(f"The {node.thing} has a child without address.")
        children.append(child)
    return level, children


def _read_leaf(walk: Walk, address: int, guess: int) -> Reads[Reader]:
    entry = 2 * walk.file.widths.address + 24

    def whole(start: Reader) -> int:
        return 8 + entry * int.from_bytes(start.data[6:8], "little")

    leaf = yield from walk.read_sized(address, 8, guess, whole, "symbol table node")
    check_signature(leaf, b"SNOD", 1)
    return leaf


def _entries(leaf: Reader, widths: Widths, heap: LocalHeap) -> Iterator[StoredLink]:
    leaf.take(1, "header")
    for _ in range(leaf.number(2, "number of entries")):
        name = heap.text(leaf.number(widths.address, "name's offset"))
        address = widths.read_address(leaf, "object's address")
        cache = leaf.number(4, "cache type")
        leaf.take(4, "entry")
        scratch = leaf.take(16, "scratch space")
        if not name or (address is None and cache != SOFT_CACHE):
            raise Corrupt(f"The {leaf.thing} has an entry {name!r} that leads nowhere.")
        if cache == SOFT_CACHE:
            yield StoredLink(name, Soft(heap.text(int.from_bytes(scratch[:4], "little"))))
        elif address is not None:
            yield StoredLink(name, Hard(address))
