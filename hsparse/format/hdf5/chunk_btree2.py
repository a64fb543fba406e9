"""The v2 B-tree of chunks: an index for datasets with several unlimited dimensions.

H5.format.html, III.A.2 "Version 2 B-trees", record types 10 and 11; for structured chunks types 12 and 13 of RFC
"File Format Changes for Enabling Sparse Storage in HDF5", version 28, section 4.4.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Corrupt
from hsparse.format.buffer import Buffer, byte_view
from hsparse.format.hdf5.btree2_shape import Btree2Shape
from hsparse.format.hdf5.checked_block import PREFIX, open_block, seal_block
from hsparse.format.hdf5.chunk_order import is_ascending, sort_rows
from hsparse.format.hdf5.chunk_records import (
    ChunkRecords,
    Elements,
    decode_records,
    encode_records,
    record_type,
    sized_record_type,
    view_elements,
)
from hsparse.format.hdf5.file_bounds import FileBounds
from hsparse.format.hdf5.index_layout import IndexLayout
from hsparse.format.hdf5.index_plan import IndexPlan, check_planned
from hsparse.format.hdf5.reads import ByteRange, Reads

HEADER = "IHHBBOHL"
"""Bytes of a node and of a record, depth, percent to split and merge at, address of the root, its number of records,
number of records in the tree."""
FIRST_TYPE = 10
"""The record type of dense chunks without filters; those of the other clients follow."""
NODE_SIZE, SPLIT, MERGE = 2048, 100, 40
INFO = struct.pack("<IBB", NODE_SIZE, SPLIT, MERGE)
"""The index information of the layout message. It is not read: the prototype may store another node size there."""
NODE_VERSION = 0


class _Node(NamedTuple):
    """A node: its address, its own records, its first one in the tree's order, and how many it has with all below."""

    address: int
    records: int
    first: int
    total: int


def read_btree2(layout: IndexLayout, address: int, bounds: FileBounds) -> Reads[ChunkRecords]:
    """Read the v2 B-tree of chunks at `address`; `Corrupt` when it is not one of such chunks."""
    what = f"v2 B-tree header at {address}"
    (data,) = yield (bounds.block(address, header_size(layout), "v2 B-tree header"),)
    content = open_block(data, b"BTHD", FIRST_TYPE + layout.client, what)
    node_size, record_size, depth, _, _, root, count, total = layout.fields(HEADER).unpack(content)
    dtype = sized_record_type(layout, record_size, what, scaled=True)
    shape = Btree2Shape.of(node_size, record_size, depth, layout.address_width)
    if total * record_size > bounds.end or (depth == 0 and count != total):
        raise Corrupt(f"The {what} has {total} records, {count} of them in its root.")
    elements = np.zeros(total, dtype)
    nodes = [_Node(root, count, 0, total)] if total else []
    for level in range(depth, -1, -1):
        ranges = tuple(_node_range(shape, level, node, bounds) for node in nodes)
        found = (yield ranges) if ranges else ()
        below: list[_Node] = []
        for node, data in zip(nodes, found, strict=True):
            below.extend(_read_node(layout, shape, level, node, data, elements))
        nodes = below
    scaled = elements["scaled"].astype(np.uint64)
    if not is_ascending(scaled):
        raise Corrupt(f"The records of the tree with the {what} are not in order.")
    return decode_records(layout, elements, scaled)


def _node_range(shape: Btree2Shape, level: int, node: _Node, bounds: FileBounds) -> ByteRange:
    """Return the range that a node uses of its bytes."""
    if node.records > shape.most[level] or (node.total and not node.records):
        raise Corrupt(
            f"The v2 B-tree node at {node.address} has {node.records} records of {shape.most[level]}."
        )
    return bounds.block(node.address, shape.used(level, node.records), "v2 B-tree node")


def _read_node(
    layout: IndexLayout, shape: Btree2Shape, level: int, node: _Node, data: Buffer, elements: Elements
) -> list[_Node]:
    """Put a node's records where they belong in `elements`; return its children."""
    what = f"v2 B-tree node at {node.address}"
    signature = b"BTIN" if level else b"BTLF"
    content = open_block(data, signature, FIRST_TYPE + layout.client, what)
    split = node.records * shape.record_size
    records = view_elements(content[:split], elements.dtype)
    if not level:
        elements[node.first : node.first + node.records] = records
        return []
    place, width, total_width = shape.address_width, shape.count_width, shape.total_width(level - 1)
    children: list[_Node] = []
    places: list[int] = []
    first, size = node.first, shape.pointer_size(level - 1)
    for start in range(split, len(content), size):
        pointer = content[start : start + size]
        address = int.from_bytes(pointer[:place], "little")
        count = int.from_bytes(pointer[place : place + width], "little")
        total = int.from_bytes(pointer[place + width :], "little") if total_width else count
        children.append(_Node(address, count, first, total))
        first += total
        places.append(first)
        first += 1
    if first - 1 != node.first + node.total:
        raise Corrupt(f"The {what} has {first - 1 - node.first} records in and below it, not {node.total}.")
    elements[places[:-1]] = records
    return children


@dataclass(frozen=True, slots=True, eq=False)
class Btree2Plan(IndexPlan):
    """`levels` are the nodes from the root's level to the leaves, with offsets for addresses."""

    shape: Btree2Shape
    levels: list[list[_Node]]

    def pieces(self, address: int, records: ChunkRecords) -> Iterator[tuple[int, Buffer]]:
        layout, shape = self.layout, self.shape
        elements = encode_records(
            records.take(self.order), record_type(layout, layout.size_width, scaled=True)
        )
        type_, root = FIRST_TYPE + layout.client, self.levels[0][0]
        place = address + root.address
        sizes = (shape.node_size, shape.record_size, shape.depth, SPLIT, MERGE)
        content = layout.fields(HEADER).pack(*sizes, place, root.records, root.total)
        yield 0, seal_block(b"BTHD", layout.block_version, type_, content)
        for number, nodes in enumerate(self.levels):
            if number == shape.depth:
                for node in nodes:
                    data = byte_view(elements[node.first : node.first + node.records])
                    yield node.address, seal_block(b"BTLF", NODE_VERSION, type_, data)
                return
            children = iter(self.levels[number + 1])
            for node in nodes:
                own = [next(children) for _ in range(node.records + 1)]
                places = [child.first - 1 for child in own[1:]]
                pointers = [self.pointer(shape.depth - number - 1, child, address) for child in own]
                data = byte_view(elements[places])
                yield node.address, seal_block(b"BTIN", NODE_VERSION, type_, data, *pointers)

    def pointer(self, level: int, node: _Node, address: int) -> bytes:
        """Return the pointer to a node of `level`."""
        shape = self.shape
        total = node.total.to_bytes(shape.total_width(level), "little") if level else b""
        count = node.records.to_bytes(shape.count_width, "little")
        place = (address + node.address).to_bytes(shape.address_width, "little")
        return place + count + total


def plan_btree2(layout: IndexLayout, scaled: NDArray[np.uint64]) -> Btree2Plan:
    """Plan the v2 B-tree of chunks at `scaled` coordinates, (n, rank): as few nodes as can be, evenly filled."""
    record_size = record_type(layout, layout.size_width, scaled=True).itemsize
    shape = Btree2Shape.holding(len(scaled), NODE_SIZE, record_size, layout.address_width)
    offset = header_size(layout)
    spans, levels = [(0, len(scaled))], list[list[_Node]]()
    for level in range(shape.depth, -1, -1):
        nodes, below = [], []
        for first, total in spans:
            children = _divide(shape, level, first, total)
            nodes.append(_Node(offset, len(children) - 1 if level else total, first, total))
            below.extend(children)
            offset += shape.node_size
        levels.append(nodes)
        spans = below
    return Btree2Plan(layout, sort_rows(scaled), check_planned(offset), shape, levels)


def _divide(shape: Btree2Shape, level: int, first: int, total: int) -> list[tuple[int, int]]:
    """Return first record and number of records of the children of a node; one record lies between two."""
    if not level:
        return []
    count = max(2, -(-(total + 1) // (shape.totals[level - 1] + 1)))
    each, more = divmod(total - (count - 1), count)
    children = []
    for number in range(count):
        length = each + (number < more)
        children.append((first, length))
        first += length + 1
    return children


def header_size(layout: IndexLayout) -> int:
    """Return the bytes of the header, which the root follows in what is written."""
    return PREFIX + layout.fields(HEADER).size + 4
