"""What is read at once: runs of chunks that have about so many bytes together."""

from __future__ import annotations

from collections.abc import Iterator

from hsparse.format.hdf5.planned_chunks import Column

MOST_AT_ONCE = 16
"""The most that is read at once."""


def batches(sizes: Column, rows: range, page: int) -> Iterator[range]:
    """Yield runs of `rows` that have up to `page` bytes by `sizes: (len(rows),)`, or are one alone."""
    first = 0
    while first < len(rows):
        last = first + 1
        room = page - int(sizes[first])
        while last < min(len(rows), first + MOST_AT_ONCE) and int(sizes[last]) <= room:
            room -= int(sizes[last])
            last += 1
        yield rows[first:last]
        first = last
