"""Version 2 B-trees: records of one size in order, of whatever kind.

H5.format.html, III.A.2. Groups have them by name (type 5) and creation order (6), attributes likewise (8, 9),
fractal heaps for huge objects (1). Records are returned as bytes: what they mean is known to who asks.
"""

from __future__ import annotations

from dataclasses import dataclass

from hsparse.errors import Corrupt
from hsparse.format.dataspace_message import Reader
from hsparse.format.hdf5.reads import Reads
from hsparse.format.hdf5.stored_file import CHECKSUM, StoredFile, Walk, check_checksum, check_signature
from hsparse.format.hdf5.together import together
from hsparse.format.hdf5.widths import width_of

NODE_OVERHEAD = 10
"""Bytes of a node's signature, version, type and checksum."""
MAX_TREE_DEPTH = 64


@dataclass(frozen=True, slots=True)
class _Tree:
    """A tree's header: record and node sizes in bytes, and the width of fields by level."""

    file: StoredFile
    kind: int
    record: int
    node: int
    widths: tuple[tuple[int, int], ...]
    """By level of a child: bytes of its number of records, and of the number of all below it."""

    def pointer(self, level: int) -> int:
        """Return the bytes of a pointer to a child, in a node of `level`."""
        return self.file.widths.address + sum(self.widths[level - 1])


@dataclass(frozen=True, slots=True)
class _Child:
    address: int
    count: int


def read_btree_v2(file: StoredFile, address: int, kind: int) -> Reads[list[memoryview]]:
    """Read all records of the tree of type `kind` whose header is at `address`, in order; raises `Corrupt`."""
    size = 16 + file.widths.address + 2 + file.widths.length + CHECKSUM
    header = yield from file.read(address, size, "B-tree header")
    check_signature(header, b"BTHD")
    check_checksum(header.data, header.thing)
    found = header.number(1, "type")
    node, record, depth = (
        header.number(4, "node size"),
        header.number(2, "record size"),
        header.number(2, "depth"),
    )
    header.take(2, "split and merge percent")
    root = file.widths.read_address(header, "root node's address")
    count, total = header.number(2, "number of records"), file.widths.read_length(header, "number of records")
    if found != kind or not record or depth > MAX_TREE_DEPTH or node < NODE_OVERHEAD + record:
        raise Corrupt(
            f"The {header.thing} is of type {found}, depth {depth}, with nodes of {node} bytes and records of "
            f"{record}; type {kind} is needed."
        )
    if total * record > file.size:
        raise Corrupt(f"The {header.thing} says {total} records of {record} bytes, more than the file has.")
    if root is None:
        return []
    tree = _Tree(file, kind, record, node, _widths(file, node, record, depth))
    walk = file.walk(f"B-tree at address {address}")
    records = yield from _read_below(tree, _Child(root, count), depth, walk)
    if len(records) != total:
        raise Corrupt(f"The {header.thing} says {total} records and has {len(records)}.")
    return records


def _widths(file: StoredFile, node: int, record: int, depth: int) -> tuple[tuple[int, int], ...]:
    most = (node - NODE_OVERHEAD) // record
    width, below = width_of(most), most
    found = [(width, 0)]
    for _ in range(1, depth):
        pointer = file.widths.address + sum(found[-1])
        fits = max(0, (node - NODE_OVERHEAD - pointer) // (record + pointer))
        below = (fits + 1) * below + fits
        found.append((width, width_of(below)))
    return tuple(found)


def _read_below(tree: _Tree, child: _Child, level: int, walk: Walk) -> Reads[list[memoryview]]:
    """Read a node of `level` and all below it, in order: between two children stands a record of the node."""
    reader = yield from _read_node(tree, child, level, walk)
    own = [reader.take(tree.record, "records") for _ in range(child.count)]
    if not level:
        return own
    children = _children(tree, reader, child.count, level)
    below = yield from together(_read_below(tree, one, level - 1, walk) for one in children)
    result = below[0]
    for record, records in zip(own, below[1:], strict=True):
        result.append(record)
        result += records
    return result


def _read_node(tree: _Tree, child: _Child, level: int, walk: Walk) -> Reads[Reader]:
    size = NODE_OVERHEAD - CHECKSUM + child.count * tree.record + CHECKSUM
    if level:
        size += (child.count + 1) * tree.pointer(level)
    if size > tree.node:
        raise Corrupt(
            f"The B-tree node at address {child.address} has {child.count} records in {tree.node} bytes."
        )
    reader = yield from walk.read(child.address, size, "B-tree node")
    check_signature(reader, b"BTIN" if level else b"BTLF")
    check_checksum(reader.data, reader.thing)
    if reader.number(1, "type") != tree.kind:
        raise Corrupt(f"The {reader.thing} is not of type {tree.kind}.")
    return reader


def _children(tree: _Tree, reader: Reader, count: int, level: int) -> list[_Child]:
    found = []
    count_width, total_width = tree.widths[level - 1]
    for _ in range(count + 1):
        address = tree.file.widths.read_address(reader, "child's address")
        if address is None:
            raise Corrupt(f"The {reader.thing} has a child without address.")
        found.append(_Child(address, reader.number(count_width, "child's records")))
        reader.take(total_width, "records below a child")
    return found
