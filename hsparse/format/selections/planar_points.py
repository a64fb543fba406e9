"""A list of points in section 0 of a structured chunk, by columns, as the shuffle filter has left it.

HDF5 File Format Specification, "Dataspace Selection", points of version 2: what hsparse writes.

Tests: tests/format/kinds/test_chunk_columns.py.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from numpy.typing import NDArray

from hsparse.format.byte_planes import BytePlanes
from hsparse.format.dataspace_message import encode_image
from hsparse.format.selections.serialized_selection import POINTS, width_for


def planar_points(data: BytePlanes, dims: Sequence[int], count: int) -> tuple[NDArray[Any], ...] | None:
    """Return `count` points inside `dims`, one column of unsigned coordinates a dimension, in list order.

    `data` is the section without its checksum. None for anything but points in the form that hsparse writes, with the
    dimensions of the chunk for maximum dimensions: it is for `decode_serialized` to judge. Columns have one byte below
    256, two below 65536.
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
    columns = []
    for dim, extent in enumerate(dims):
        narrow = 1 if extent < 1 << 8 else 2 if extent < 1 << 16 else width
        column = data.column(begin + dim * width, step, count, width, narrow)
        if column is None or (count and int(column.max()) >= extent):
            return None
        columns.append(column)
    return tuple(columns)


@lru_cache(maxsize=1024)
def _head(dims: tuple[int, ...], width: int) -> bytes:
    """Return the section before the number of its points."""
    return encode_image(dims, None, struct.pack("<IIBI", POINTS, 2, width, len(dims)))
