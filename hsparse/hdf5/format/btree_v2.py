"""Version 2 B-trees: sorted records of one size.

H5.format.html, III.A.2 "Version 2 B-trees". The trees index links by name (type 5) and creation order (6), attributes
by name (8) and creation order (9), huge objects of fractal heaps (1), and chunks (10 to 13). Callers interpret the
records. Levels are counted from the leaves, which are level 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Corrupt
from hsparse.format.buffer import Buffer, byte_view
from hsparse.format.dataspace_message import ByteReader
from hsparse.format.structured.container import CHECKSUM
from hsparse.hdf5.format.file_fields import BLOCK_PREFIX, ByteRange, Reads, Widths, open_block
from hsparse.hdf5.format.hdf5_file import FileBounds

SPLIT, MERGE = 100, 40
"""The percentage of used space above which libhdf5 splits a node, and below which it merges adjacent nodes."""
NODE_OVERHEAD = 10
"""The size in bytes of a node's signature, version, type and checksum together."""
MAX_RECORDS = 2**64
"""A tree has fewer records than this number, because the field for the number of records has at most 8 bytes."""


@dataclass(frozen=True, slots=True)
class BtreeV2Shape:
    """The shape of a tree: nodes of `node_size` bytes, records of `record_size` bytes, `depth` levels above the leaves.

    A node of level u has at most `most[u]` records; the node and those below it have at most `totals[u]` together. `of`
    raises `Corrupt` if a node has no room for a record, or the tree has room for 2^64 records or more.
    """

    node_size: int
    record_size: int
    depth: int
    most: tuple[int, ...]
    totals: tuple[int, ...]
    address_width: int = 8

    @classmethod
    def of(cls, node_size: int, record_size: int, depth: int, address_width: int = 8) -> BtreeV2Shape:
        room = node_size - NODE_OVERHEAD
        most = [room // record_size if record_size else 0]
        totals = [most[0]]
        for _ in range(depth):
            below = _width(totals[-1]) if len(totals) > 1 else 0
            pointer = address_width + _width(most[0]) + below
            most.append((room - pointer) // (record_size + pointer))
            totals.append((most[-1] + 1) * totals[-1] + most[-1])
            if most[-1] < 1 or totals[-1] >= MAX_RECORDS:
                break
        if min(most) < 1 or totals[-1] >= MAX_RECORDS:
            raise Corrupt(
                f"A tree of depth {depth} cannot have nodes of {node_size} bytes with records of {record_size}."
            )
        return cls(node_size, record_size, depth, tuple(most), tuple(totals), address_width)

    @classmethod
    def holding(cls, count: int, node_size: int, record_size: int, address_width: int = 8) -> BtreeV2Shape:
        """Return the shape of the lowest tree that has space for `count` records."""
        shape = cls.of(node_size, record_size, 0, address_width)
        while shape.totals[-1] < count:
            shape = cls.of(node_size, record_size, shape.depth + 1, address_width)
        return shape

    @property
    def count_width(self) -> int:
        """The width in bytes of the field, in a pointer to a node, for the number of records in the node itself."""
        return _width(self.most[0])

    def total_width(self, level: int) -> int:
        """Return the width in bytes of the field `TreeNode.total` in a pointer to a node of `level`; 0 for leaves."""
        return _width(self.totals[level]) if level else 0

    def pointer_size(self, level: int) -> int:
        """Return the size in bytes of a pointer to a node of `level`."""
        return self.address_width + self.count_width + self.total_width(level)

    def used(self, level: int, count: int) -> int:
        """Return the number of bytes in use in a node of `level` that has `count` records."""
        pointers = (count + 1) * self.pointer_size(level - 1) if level else 0
        return NODE_OVERHEAD + count * self.record_size + pointers


def _width(most: int) -> int:
    return max(1, (most.bit_length() + 7) // 8)


RecordArray = NDArray[Any]
"""Encoded records: an array (n,) of dtype `V<record size>`."""


class TreeNode(NamedTuple):
    """A node with `records` records of its own, and `total` records in the node and all nodes below it.

    `first` is the number, in tree order, of the first of these `total` records.
    """

    address: int
    records: int
    first: int
    total: int


def split_records(records: RecordArray) -> list[memoryview]:
    """Return the bytes of each record."""
    data, size = byte_view(records), records.itemsize
    return [data[start : start + size] for start in range(0, len(data), size)]


def btree_header_size(widths: Widths) -> int:
    """Return the size of a tree's header in bytes."""
    return BLOCK_PREFIX + 4 + 2 + 2 + 1 + 1 + widths.address + 2 + widths.length + CHECKSUM.size


def read_btree_v2(bounds: FileBounds, widths: Widths, address: int, kind: int) -> Reads[RecordArray]:
    """Read the records, in tree order, of the tree of type `kind` with its header at `address`; raises `Corrupt`."""
    what = f"B-tree header at {address}"
    (data,) = yield (bounds.block(address, btree_header_size(widths), "B-tree header"),)
    header = ByteReader(open_block(data, b"BTHD", kind, what), subject=what)
    node_size, record_size = header.number(4, "node size"), header.number(2, "record size")
    depth = header.number(2, "depth")
    header.take(2, "split and merge percent")
    root = widths.read_address(header, "root node's address")
    count, total = header.number(2, "number of records"), widths.read_length(header, "number of records")
    shape = BtreeV2Shape.of(node_size, record_size, depth, widths.address)
    if total * record_size > bounds.end or total > shape.totals[-1] or (depth == 0 and count != total):
        raise Corrupt(f"The {what} is wrong: {total} records of {record_size} bytes, {count} in its root.")
    records = np.zeros(total, f"V{record_size}")
    if not total:
        return records
    nodes = [_node(root, count, 0, total, what)]
    for level in range(depth, -1, -1):
        if len({node.address for node in nodes}) < len(nodes):
            raise Corrupt(f"The tree with the {what} refers to the same node twice.")
        found = yield tuple(_node_range(shape, level, node, bounds) for node in nodes)
        below: list[TreeNode] = []
        for node, data in zip(nodes, found, strict=True):
            below.extend(_read_node(shape, widths, kind, level, node, data, records))
        nodes = below
    return records


def _node(address: int | None, count: int, first: int, total: int, what: str) -> TreeNode:
    if address is None:
        raise Corrupt(f"The {what} has a node without address.")
    return TreeNode(address, count, first, total)


def _node_range(shape: BtreeV2Shape, level: int, node: TreeNode, bounds: FileBounds) -> ByteRange:
    """Return the range of the used bytes of a node; raises `Corrupt` if its number of records is impossible."""
    if node.records > shape.most[level] or (node.total and not node.records):
        raise Corrupt(
            f"The B-tree node at {node.address} has {node.records} records, not 1 to {shape.most[level]}."
        )
    return bounds.block(node.address, shape.used(level, node.records), "B-tree node")


def _read_node(
    shape: BtreeV2Shape,
    widths: Widths,
    kind: int,
    level: int,
    node: TreeNode,
    data: Buffer,
    records: RecordArray,
) -> list[TreeNode]:
    """Copy the records in a node into `records`; return the node's children.

    In tree order, one record of the node lies between two adjacent children.
    """
    what = f"B-tree node at {node.address}"
    content = open_block(data, b"BTIN" if level else b"BTLF", kind, what)
    reader = ByteReader(content, subject=what)
    own = np.frombuffer(reader.take(node.records * shape.record_size, "records"), records.dtype)
    if not level:
        records[node.first : node.first + node.records] = own
        return []
    children: list[TreeNode] = []
    first = node.first
    for _ in range(node.records + 1):
        address = widths.read_address(reader, "child's address")
        count = reader.number(shape.count_width, "child's records")
        total = reader.number(shape.total_width(level - 1), "records below a child") if level > 1 else count
        children.append(_node(address, count, first, total, what))
        first += total + 1
    if first - 1 != node.first + node.total:
        raise Corrupt(f"The {what} has {first - 1 - node.first} records in and below it, not {node.total}.")
    records[[child.first - 1 for child in children[1:]]] = own
    return children
