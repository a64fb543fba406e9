"""Version 2 B-trees: records of one size in order, of whatever kind.

H5.format.html, III.A.2. Groups have them by name (type 5) and creation order (6), attributes likewise (8, 9),
fractal heaps for huge objects (1), datasets for chunks (10 to 13). What records mean is known to who asks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Corrupt
from hsparse.format.buffer import Buffer, byte_view
from hsparse.format.dataspace_message import Reader
from hsparse.format.hdf5.btree2_shape import Btree2Shape
from hsparse.format.hdf5.checked_block import PREFIX, open_block
from hsparse.format.hdf5.file_bounds import FileBounds
from hsparse.format.hdf5.reads import ByteRange, Reads
from hsparse.format.hdf5.widths import Widths
from hsparse.format.structured.container import CHECKSUM

Records = NDArray[Any]
"""(n,) of the bytes of a record each, `V`."""


class TreeNode(NamedTuple):
    """A node: its address, its own records, its first one in the tree's order, and how many it has with all below."""

    address: int
    records: int
    first: int
    total: int


def each_record(records: Records) -> list[memoryview]:
    """Return the bytes of each record."""
    data, size = byte_view(records), records.itemsize
    return [data[start : start + size] for start in range(0, len(data), size)]


def header_size(widths: Widths) -> int:
    """Return the bytes of a tree's header."""
    return PREFIX + 4 + 2 + 2 + 1 + 1 + widths.address + 2 + widths.length + CHECKSUM.size


def read_btree_v2(bounds: FileBounds, widths: Widths, address: int, kind: int) -> Reads[Records]:
    """Read all records of the tree of type `kind` whose header is at `address`, in order; raises `Corrupt`.

    One step a level: the nodes of a level are asked for together.
    """
    what = f"B-tree header at {address}"
    (data,) = yield (bounds.block(address, header_size(widths), "B-tree header"),)
    header = Reader(open_block(data, b"BTHD", kind, what), thing=what)
    node_size, record_size = header.number(4, "node size"), header.number(2, "record size")
    depth = header.number(2, "depth")
    header.take(2, "split and merge percent")
    root = widths.read_address(header, "root node's address")
    count, total = header.number(2, "number of records"), widths.read_length(header, "number of records")
    shape = Btree2Shape.of(node_size, record_size, depth, widths.address)
    if total * record_size > bounds.end or total > shape.totals[-1] or (depth == 0 and count != total):
        raise Corrupt(f"The {what} has {total} records of {record_size} bytes, {count} of them in its root.")
    records = np.zeros(total, f"V{record_size}")
    if not total:
        return records
    nodes = [_node(root, count, 0, total, what)]
    for level in range(depth, -1, -1):
        if len({node.address for node in nodes}) < len(nodes):
            raise Corrupt(f"The tree with the {what} leads to one node twice.")
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


def _node_range(shape: Btree2Shape, level: int, node: TreeNode, bounds: FileBounds) -> ByteRange:
    """Return the range that a node uses of its bytes."""
    if node.records > shape.most[level] or (node.total and not node.records):
        raise Corrupt(f"The B-tree node at {node.address} has {node.records} records of {shape.most[level]}.")
    return bounds.block(node.address, shape.used(level, node.records), "B-tree node")


def _read_node(
    shape: Btree2Shape, widths: Widths, kind: int, level: int, node: TreeNode, data: Buffer, records: Records
) -> list[TreeNode]:
    """Put a node's records where they belong; return its children, between two of which stands a record of the node."""
    what = f"B-tree node at {node.address}"
    content = open_block(data, b"BTIN" if level else b"BTLF", kind, what)
    reader = Reader(content, thing=what)
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
