"""A fractal heap and version 2 B-trees of a file that is planned, for many links or attributes.

H5.format.html, III.G and III.A.2. The heap is one direct block, as large as all objects need, and a tree is one
leaf, or a root over leaves beyond 60,000 records: sizes and places are then sums, and libhdf5 finds a name by
bisecting one block.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import partial

from hsparse.errors import TooLarge
from hsparse.format.checksum import lookup3
from hsparse.format.hdf5.addressed import Addressed, AddressOf, Key
from hsparse.format.hdf5.btree_v2 import NODE_OVERHEAD
from hsparse.format.hdf5.file_plan import Piece
from hsparse.format.hdf5.stored_file import CHECKSUM
from hsparse.format.hdf5.widths import UNDEFINED, width_of

BLOCK_HEAD = 4 + 1 + 8 + 4
"""Bytes before a direct block's first object: signature, version, heap's address, block's offset."""
OFFSET = 4
"""Bytes of an offset in a heap of 2^32 bytes."""
HEAP_BITS = 32
LEAST_BLOCK, LARGEST_BLOCK = 512, 2**31
"""HDF5's limits of a direct block."""
LARGE_BLOCK = 65_536
"""HDF5's own largest direct block of links and attributes."""
TABLE_WIDTH = 4
LEAST_NODE = 512
MAX_LEAF = 60_000
"""Records of a leaf: their number takes two bytes."""
SPLIT, MERGE = 100, 40
HEADER = 146
TREE_HEADER = 38


def plan_heap(name: Key, objects: Sequence[Addressed], id_length: int) -> tuple[list[Piece], list[bytes]]:
    """Return the pieces of a heap, the header's key being `(name, "heap")`, and the objects' ids in their order.

    `TooLarge` for an object that an id of `id_length` bytes cannot tell the length of, or more than 2 GiB.
    """
    width = id_length - 1 - OFFSET
    most = 2 ** (8 * width) - 1
    ids, end = [], BLOCK_HEAD
    for one in objects:
        if len(one.data) > most:
            raise TooLarge(
                f"A link or attribute has {len(one.data)} bytes; a file takes {most}: make an attribute a dataset."
            )
        ids.append(bytes(1) + struct.pack("<I", end) + len(one.data).to_bytes(width, "little"))
        end += len(one.data)
        if end > LARGEST_BLOCK:
            raise TooLarge(f"The links or attributes of one object have more than {LARGEST_BLOCK} bytes.")
    size = max(LEAST_BLOCK, 1 << (end - 1).bit_length())
    header, block = (name, "heap"), (name, "heap block")
    facts = _facts(id_length, most, size, len(objects))
    return [
        Piece(header, HEADER, partial(_make_header, facts, block)),
        Piece(block, size, partial(_make_block, Addressed.join(objects), header, size)),
    ], ids


def _facts(id_length: int, most: int, size: int, count: int) -> bytes:
    """Return a heap's header up to the root block's address: one block of `size` bytes with `count` objects.

    No space is said to be free: who adds an object then makes another block.
    """
    head = struct.pack("<4sBHHBI", b"FRHP", 0, id_length, 0, 0, most)
    nothing = struct.pack("<Q", 0) + UNDEFINED
    managed = struct.pack("<QQQQ", size, size, 0, count)
    table = struct.pack("<HQQHH", TABLE_WIDTH, size, max(size, LARGE_BLOCK), HEAP_BITS, 1)
    return head + nothing + nothing + managed + bytes(32) + table


def _make_header(facts: bytes, block: Key, address_of: AddressOf) -> bytes:
    return with_checksum(facts + struct.pack("<QH", address_of(block), 0))


def _make_block(content: Addressed, header: Key, size: int, address_of: AddressOf) -> bytes:
    head = struct.pack("<4sBQI", b"FHDB", 0, address_of(header), 0)
    data = head + content.filled(address_of)
    return data + bytes(size - len(data))


def plan_btree(name: Key, kind: int, records: Sequence[bytes]) -> list[Piece]:
    """Return the pieces of a tree of sorted `records` of one size; the header's key is `(name, kind)`.

    There must be a record.
    """
    size = len(records[0])
    count = len(records)
    if count <= MAX_LEAF:
        node = max(LEAST_NODE, NODE_OVERHEAD + count * size)
        leaf = Piece((name, kind, 0), node, partial(_make_leaf, kind, records, node))
        return [_tree_header(name, kind, size, node, 0, count, count), leaf]
    width = width_of(MAX_LEAF)
    node = NODE_OVERHEAD + MAX_LEAF * size
    # between two leaves stands a record of the root
    shares = [records[at : at + MAX_LEAF] for at in range(0, count, MAX_LEAF + 1)]
    between = [records[at] for at in range(MAX_LEAF, count, MAX_LEAF + 1)]
    if len(between) == len(shares):  # the last one has no leaf behind it
        shares[-1:] = [shares[-1][:-1], [between[-1]]]
        between[-1] = records[-2]
    pieces = [
        Piece((name, kind, number), node, partial(_make_leaf, kind, share, node))
        for number, share in enumerate(shares, 1)
    ]
    root = Addressed.join(
        (
            Addressed(b"BTIN" + bytes((0, kind)) + b"".join(between)),
            *(
                Addressed(bytes(8) + len(share).to_bytes(width, "little"), ((0, piece.key),))
                for piece, share in zip(pieces, shares, strict=True)
            ),
        )
    )
    top = Piece((name, kind, 0), node, partial(_make_root, root, node))
    return [_tree_header(name, kind, size, node, 1, len(between), count), top, *pieces]


def _tree_header(name: Key, kind: int, size: int, node: int, depth: int, count: int, total: int) -> Piece:
    head = struct.pack("<4sBBIHHBB", b"BTHD", 0, kind, node, size, depth, SPLIT, MERGE)
    content = Addressed(head + struct.pack("<QHQ", 0, count, total), ((len(head), (name, kind, 0)),))
    return Piece((name, kind), TREE_HEADER, partial(_make_checked, content))


def _make_checked(content: Addressed, address_of: AddressOf) -> bytes:
    return with_checksum(content.filled(address_of))


def _make_root(content: Addressed, node: int, address_of: AddressOf) -> bytes:
    data = _make_checked(content, address_of)
    return data + bytes(node - len(data))


def _make_leaf(kind: int, records: Sequence[bytes], node: int, _: AddressOf) -> bytes:
    data = with_checksum(b"BTLF" + bytes((0, kind)) + b"".join(records))
    return data + bytes(node - len(data))


def with_checksum(data: bytes) -> bytes:
    """Return bytes and the checksum of HDF5's metadata behind them."""
    return data + lookup3(data).to_bytes(CHECKSUM, "little")
