"""The v2 B-tree of chunks: an index for datasets with several unlimited dimensions.

Dense chunks have record types 10 and 11 (H5.format.html, III.A.2 "Version 2 B-trees"). Structured chunks have types 12
and 13 (RFC "File Format Changes for Enabling Sparse Storage in HDF5", version 28, section 4.4).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Corrupt
from hsparse.format.buffer import Buffer, byte_view
from hsparse.hdf5.format.btree_v2 import (
    MERGE,
    SPLIT,
    BtreeV2Shape,
    TreeNode,
    btree_header_size,
    read_btree_v2,
)
from hsparse.hdf5.format.chunk_indexes.chunk_records import (
    ChunkRecords,
    decode_records,
    encode_records,
    is_ascending,
    record_type,
    sized_record_type,
    sort_rows,
)
from hsparse.hdf5.format.chunk_indexes.index_layout import IndexLayout
from hsparse.hdf5.format.chunk_indexes.index_plan import IndexPlan, check_planned
from hsparse.hdf5.format.file_fields import Reads, seal_block
from hsparse.hdf5.format.hdf5_file import FileBounds

HEADER = "IHHBBOHL"
"""The fields: node size, record size, depth, split and merge percentages, root address, number of records in the root,
number of records in the tree."""
FIRST_TYPE = 10
"""The record type of unfiltered dense chunks. The type of other chunks is this number plus `IndexLayout.client`."""
NODE_SIZE = 2048
INFO = struct.pack("<IBB", NODE_SIZE, SPLIT, MERGE)
"""The index information in the layout message. Readers ignore this information: libhdf5's prototype may store
another node size there."""
NODE_VERSION = 0


def read_chunk_btree_v2(layout: IndexLayout, address: int, bounds: FileBounds) -> Reads[ChunkRecords]:
    """Read the chunk records of the v2 B-tree with its header at `address`; raises `Corrupt` if it is invalid."""
    records = yield from read_btree_v2(bounds, layout.widths, address, FIRST_TYPE + layout.client)
    what = f"B-tree at {address}"
    elements = records.view(sized_record_type(layout, records.itemsize, what, scaled=True))
    scaled = elements["scaled"].astype(np.uint64)
    if not is_ascending(scaled):
        raise Corrupt(f"The records of the {what} are not in order.")
    return decode_records(layout, elements, scaled)


@dataclass(frozen=True, slots=True, eq=False)
class ChunkBtreeV2Plan(IndexPlan):
    """The plan of a v2 B-tree; `levels` has each level's nodes, root first, with addresses relative to the header."""

    shape: BtreeV2Shape
    levels: list[list[TreeNode]]

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

    def pointer(self, level: int, node: TreeNode, address: int) -> bytes:
        """Return the encoded pointer to a node of `level`, in a tree whose header is at `address`."""
        shape = self.shape
        total = node.total.to_bytes(shape.total_width(level), "little") if level else b""
        count = node.records.to_bytes(shape.count_width, "little")
        place = (address + node.address).to_bytes(shape.address_width, "little")
        return place + count + total


def plan_chunk_btree_v2(layout: IndexLayout, scaled: NDArray[np.uint64]) -> ChunkBtreeV2Plan:
    """Plan the v2 B-tree of chunks at `scaled: (n, rank) uint64` coordinates, with as few nodes as possible."""
    record_size = record_type(layout, layout.size_width, scaled=True).itemsize
    shape = BtreeV2Shape.holding(len(scaled), NODE_SIZE, record_size, layout.address_width)
    offset = btree_header_size(layout.widths)
    spans, levels = [(0, len(scaled))], list[list[TreeNode]]()
    for level in range(shape.depth, -1, -1):
        nodes, below = [], []
        for first, total in spans:
            children = _divide(shape, level, first, total)
            nodes.append(TreeNode(offset, len(children) - 1 if level else total, first, total))
            below.extend(children)
            offset += shape.node_size
        levels.append(nodes)
        spans = below
    return ChunkBtreeV2Plan(layout, sort_rows(scaled), check_planned(offset), shape, levels)


def _divide(shape: BtreeV2Shape, level: int, first: int, total: int) -> list[tuple[int, int]]:
    """Return a pair for each child of a node: its first record and its number of records.

    The node and its children have `total` records from `first` on; one record of the node is between adjacent children.
    """
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
