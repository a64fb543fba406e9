"""Decode the points or blocks in a structured chunk's shuffled section 0 to columns of coordinates.

The functions support points of version 2 and hyperslabs of version 3 (HDF5 File Format Specification, "Dataspace
Selection") as hsparse writes them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache

from hsparse.format.byte_planes import BytePlanes
from hsparse.format.dataspace_message import encode_image
from hsparse.format.selections.points import Columns
from hsparse.format.selections.selection_encoding import width_for
from hsparse.format.selections.serialized_selection import HYPERSLABS, POINTS, WIDTHS


def planar_points(data: BytePlanes, dims: Sequence[int], count: int) -> Columns | None:
    """Return `count` points inside `dims` as one column of unsigned coordinates per dimension, in list order.

    `data` is the section without its checksum. The result is None unless the section has points in the form that
    hsparse writes, with the chunk's dimensions as maximum dimensions; callers then use `decode_serialized`. A column
    has one byte per coordinate if its dimension is below 256, two if it is below 65536.
    """
    rank, width = len(dims), width_for(max(*dims, count)) if dims else 0
    expected = _head(tuple(dims), width)
    begin = len(expected) + width
    step = rank * width
    if begin + step * count != data.size or not rank:
        return None
    head = data.head(begin)
    if head != expected + count.to_bytes(width, "little"):
        return None
    return _columns(data, dims, begin, step, count, width)


def planar_blocks(data: BytePlanes, dims: Sequence[int]) -> tuple[Columns, Columns] | None:
    """Return a pair: first and (inclusive) last coordinates of blocks inside `dims`, in columns as `planar_points`.

    The result is None unless the section has blocks in the form that hsparse writes.
    """
    rank = len(dims)
    for width in WIDTHS:
        expected = _head_of_blocks(tuple(dims), width)
        begin, step = len(expected) + width, 2 * rank * width
        if data.head(len(expected)) != expected:
            continue
        count = int.from_bytes(data.head(begin)[-width:], "little")
        if begin + step * count != data.size or not count:
            return None
        columns = _columns(data, (*dims, *dims), begin, step, count, width)
        if columns is None:
            return None
        starts, ends = columns[:rank], columns[rank:]
        is_right = all((start <= end).all() for start, end in zip(starts, ends, strict=True))
        return (starts, ends) if is_right else None
    return None


def _columns(
    data: BytePlanes, extents: Sequence[int], begin: int, step: int, count: int, width: int
) -> Columns | None:
    """Return the columns of a table of coordinates, or None if a coordinate is not below its length in `extents`."""
    columns = []
    for place, extent in enumerate(extents):
        narrow = 1 if extent < 1 << 8 else 2 if extent < 1 << 16 else width
        column = data.column(begin + place * width, step, count, width, narrow)
        if column is None or (count and int(column.max()) >= extent):
            return None
        columns.append(column)
    return tuple(columns)


@lru_cache(maxsize=1024)
def _head(dims: tuple[int, ...], width: int) -> bytes:
    """Return the bytes of a section of points that precede the number of points."""
    return encode_image(dims, None, struct.pack("<IIBI", POINTS, 2, width, len(dims)))


@lru_cache(maxsize=1024)
def _head_of_blocks(dims: tuple[int, ...], width: int) -> bytes:
    """Return the bytes of a section of blocks that precede the number of blocks."""
    return encode_image(dims, None, struct.pack("<IIBBI", HYPERSLABS, 3, 0, width, len(dims)))
