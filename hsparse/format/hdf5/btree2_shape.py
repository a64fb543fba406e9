"""How many records the nodes of a v2 B-tree take, and how wide the pointers between them are.

H5.format.html, III.A.2 "Version 2 B-trees". Levels are counted from the leaves, which are 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from hsparse.errors import Corrupt

OVERHEAD = 10
"""The bytes of a node's signature, version, type and checksum."""
MOST_RECORDS = 2**64
"""More than any tree counts."""


@dataclass(frozen=True, slots=True)
class Btree2Shape:
    """Nodes of `node_size` bytes with records of `record_size`, in a tree of `depth` levels above its leaves.

    `most[u]` records are the most in a node of level u, `totals[u]` in it and all below. `Corrupt` when a node has no
    room for a record, or the tree for more records than can be counted.
    """

    node_size: int
    record_size: int
    depth: int
    most: tuple[int, ...]
    totals: tuple[int, ...]
    address_width: int = 8

    @classmethod
    def of(cls, node_size: int, record_size: int, depth: int, address_width: int = 8) -> Btree2Shape:
        room = node_size - OVERHEAD
        most = [room // record_size if record_size else 0]
        totals = [most[0]]
        for _ in range(depth):
            below = _width(totals[-1]) if len(totals) > 1 else 0
            pointer = address_width + _width(most[0]) + below
            most.append((room - pointer) // (record_size + pointer))
            totals.append((most[-1] + 1) * totals[-1] + most[-1])
            if most[-1] < 1 or totals[-1] >= MOST_RECORDS:
                break
        if min(most) < 1 or totals[-1] >= MOST_RECORDS:
            raise Corrupt(
                f"A tree of depth {depth} cannot have nodes of {node_size} bytes with records of {record_size}."
            )
        return cls(node_size, record_size, depth, tuple(most), tuple(totals), address_width)

    @classmethod
    def holding(cls, count: int, node_size: int, record_size: int, address_width: int = 8) -> Btree2Shape:
        """Return the lowest tree for `count` records."""
        shape = cls.of(node_size, record_size, 0, address_width)
        while shape.totals[-1] < count:
            shape = cls.of(node_size, record_size, shape.depth + 1, address_width)
        return shape

    @property
    def count_width(self) -> int:
        """The bytes of a node's number of records in a pointer to it."""
        return _width(self.most[0])

    def total_width(self, level: int) -> int:
        """Return the bytes of the number of records below, in a pointer to a node of `level`; leaves have none."""
        return _width(self.totals[level]) if level else 0

    def pointer_size(self, level: int) -> int:
        """Return the bytes of a pointer to a node of `level`."""
        return self.address_width + self.count_width + self.total_width(level)

    def used(self, level: int, count: int) -> int:
        """Return the bytes that a node of `level` with `count` records uses."""
        pointers = (count + 1) * self.pointer_size(level - 1) if level else 0
        return OVERHEAD + count * self.record_size + pointers


def _width(most: int) -> int:
    return max(1, (most.bit_length() + 7) // 8)
