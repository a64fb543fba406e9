"""The v1 B-tree of chunks: the chunk index of datasets whose layout message has a version below 4.

H5.format.html, III.A.1 "Version 1 B-trees", node type 1. A key has the chunk's size, its filter mask and the
coordinates of its first element; a last coordinate, for the bytes of an element, is 0. Each node ends with the
upper bound of its last child, a key without a child. Nodes have no checksums.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest, Corrupt
from hsparse.format.buffer import Buffer, byte_view
from hsparse.hdf5.format.chunk_indexes.chunk_records import (
    ChunkRecords,
    EncodedRecords,
    dense_records,
    is_ascending,
    sort_rows,
)
from hsparse.hdf5.format.chunk_indexes.index_layout import IndexLayout
from hsparse.hdf5.format.chunk_indexes.index_plan import IndexPlan, check_planned
from hsparse.hdf5.format.file_fields import Reads
from hsparse.hdf5.format.hdf5_file import FileBounds

HEADER = "4sBBHOO"
"""The fields: signature, node type, level, number of entries, addresses of the left and right siblings."""
CHUNKS = 1


def read_chunk_btree_v1(layout: IndexLayout, address: int, bounds: FileBounds) -> Reads[ChunkRecords]:
    """Read the chunk records of the v1 B-tree with its root at `address`; raises `Corrupt` if it is invalid."""
    node_size, what = _node_size(layout), "v1 B-tree node"
    (data,) = yield (bounds.block(address, node_size, what),)
    level = memoryview(data)[5]
    entries = _open_node(layout, data, level, address)
    while level:
        level -= 1
        children = entries["child"].tolist()
        ranges = tuple(bounds.block(child, node_size, what) for child in children)
        found = (yield ranges) if ranges else ()
        nodes = [_open_node(layout, data, level, child) for child, data in zip(children, found, strict=True)]
        entries = np.concatenate(nodes) if nodes else entries[:0]
    return _records(layout, entries, address)


def _records(layout: IndexLayout, entries: EncodedRecords, address: int) -> ChunkRecords:
    """Return the chunk records of all leaf entries; raises `Corrupt` if keys are unsorted or do not fit `layout`."""
    steps = np.array((*layout.chunk, layout.element_size), np.uint64)
    scaled, rest = np.divmod(entries["start"].astype(np.uint64), steps)
    sizes = entries["size"].astype(np.uint64)
    if rest.any() or scaled[:, -1].any():
        raise Corrupt(f"The v1 B-tree at {address} has a chunk that does not begin at a chunk boundary.")
    scaled = np.ascontiguousarray(scaled[:, :-1])
    if not is_ascending(scaled):
        raise Corrupt(f"The chunks of the v1 B-tree at {address} are not in order.")
    if not layout.filtered and (sizes != layout.chunk_bytes).any():
        raise Corrupt(
            f"The v1 B-tree at {address} has an unfiltered chunk whose size is not {layout.chunk_bytes} bytes."
        )
    return dense_records(scaled, entries["child"].astype(np.uint64), sizes, entries["mask"].astype(np.uint32))


def _open_node(layout: IndexLayout, data: Buffer, level: int, address: int) -> EncodedRecords:
    """Return the entries of a node; raises `Corrupt` if a field of the node's header is wrong."""
    signature, kind, found, count, _, _ = layout.fields(HEADER).unpack_from(data)
    if (signature, kind, found) != (b"TREE", CHUNKS, level) or count > 2 * layout.k:
        raise Corrupt(
            f"The v1 B-tree node at {address} has signature {signature!r}, type {kind}, level {found} and {count} "
            f"entries; expected b'TREE', {CHUNKS}, {level} and at most {2 * layout.k}."
        )
    return np.frombuffer(data, _entry_type(layout), count, layout.fields(HEADER).size)


def _entry_type(layout: IndexLayout) -> np.dtype[Any]:
    """Return the packed dtype of an entry: a key, followed by the address of a child."""
    return np.dtype(
        [
            ("size", "<u4"),
            ("mask", "<u4"),
            ("start", "<u8", (layout.rank + 1,)),
            ("child", f"<u{layout.address_width}"),
        ]
    )


def _node_size(layout: IndexLayout) -> int:
    entry = _entry_type(layout).itemsize
    return layout.fields(HEADER).size + 2 * layout.k * entry + entry - layout.address_width


@dataclass(frozen=True, slots=True, eq=False)
class ChunkBtreeV1Plan(IndexPlan):
    """The plan of a v1 B-tree: all nodes are laid out, but the chunks' addresses are not known.

    `levels` has a list for each level, root first: each node's first chunk number, and at the end the number of chunks.
    """

    levels: list[list[int]]

    def pieces(self, address: int, records: ChunkRecords) -> Iterator[tuple[int, Buffer]]:
        layout, node_size = self.layout, _node_size(self.layout)
        header = layout.fields(HEADER)
        keys = self.keys(records.take(self.order))
        offset = 0
        for number, starts in enumerate(self.levels):
            level, count = len(self.levels) - 1 - number, len(starts) - 1
            entries, splits = keys, starts
            if level:
                below = self.levels[number + 1]
                entries = keys[below]
                children = address + offset + node_size * (count + np.arange(len(below), dtype=np.uint64))
                entries["child"] = children
                splits = np.searchsorted(below, starts).tolist()
            for node in range(count):
                own = address + offset
                left = own - node_size if node else layout.undefined
                right = own + node_size if node < count - 1 else layout.undefined
                start, stop = splits[node], splits[node + 1]
                head = header.pack(b"TREE", CHUNKS, level, stop - start, left, right)
                # A node ends with the first key of the next node, without its child address.
                yield offset, head + bytes(byte_view(entries[start : stop + 1])[: -layout.address_width])
                offset += node_size
        assert offset == self.size, layout

    def keys(self, records: ChunkRecords) -> EncodedRecords:
        """Return the entries of all chunks and then the last key; raises `BadRequest` if a chunk has 4 GiB."""
        layout = self.layout
        if len(records) and int(records.size.max()) >> 32:
            raise BadRequest(
                f"A chunk has {int(records.size.max())} bytes; chunks with a v1 B-tree must have less than 4 GiB."
            )
        keys = np.zeros(len(records) + 1, _entry_type(layout))
        keys["size"][:-1], keys["mask"][:-1] = records.size, records.mask
        keys["child"][:-1] = records.address
        chunk = np.array(layout.chunk, np.uint64)
        keys["start"][:-1, :-1] = records.scaled * chunk
        keys["start"][-1, :-1] = (records.scaled[-1] + np.uint64(1)) * chunk
        keys["start"][-1, -1] = layout.element_size
        return keys


def plan_chunk_btree_v1(layout: IndexLayout, scaled: NDArray[np.uint64]) -> ChunkBtreeV1Plan:
    """Plan the v1 B-tree of chunks at `scaled: (n, rank) uint64` coordinates; n is at least 1.

    The root node comes first. The tree has as few nodes as possible, and the nodes of a level are filled evenly.
    """
    order = sort_rows(scaled)
    levels = [_split(list(range(len(scaled) + 1)), 2 * layout.k)]
    while len(levels[0]) > 2:
        levels.insert(0, _split(levels[0], 2 * layout.k))
    count = sum(len(starts) - 1 for starts in levels)
    return ChunkBtreeV1Plan(layout, order, check_planned(count * _node_size(layout)), levels)


def _split(starts: list[int], most: int) -> list[int]:
    """Group children evenly into as few nodes as possible, with at most `most` children each.

    `starts` has each child's first chunk number, then the number of chunks. The result has the same items for nodes.
    """
    children = len(starts) - 1
    count = -(-children // most)
    return [starts[number * children // count] for number in range(count + 1)]
