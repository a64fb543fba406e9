"""A list of points in section 0 of a structured chunk, by columns, as the shuffle filter has left it.

HDF5 File Format Specification, "Dataspace Selection", points of version 2: what hsparse writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from hsparse.format.byte_planes import BytePlanes
from hsparse.format.dataspace_message import decode_image
from hsparse.format.selections.serialized_selection import POINTS, WIDTHS

HEAD, HEAD_DIMENSION = 64, 16
"""The most bytes before the points: so many, and so many a dimension."""
VERSION = 2


def shuffled_points(data: BytePlanes, dims: Sequence[int], count: int) -> tuple[NDArray[Any], ...] | None:
    """Return `count` points inside `dims`, one column of unsigned coordinates a dimension, in list order.

    `data` is the section without its checksum. None for anything else, which is for `decode_serialized` to judge.
    Columns have one byte below 256, two below 65536. Raises `Corrupt` if the section does not begin as one does.
    """
    rank = len(dims)
    found, reader = decode_image(data.take(0, HEAD + HEAD_DIMENSION * rank))
    if not rank or found != tuple(dims) or reader.numbers(2, 4, "selection header") != (POINTS, VERSION):
        return None
    width = reader.number(1, "selection header")
    if reader.number(4, "rank") != rank or width not in WIDTHS:
        return None
    stored, step = reader.number(width, "number of points"), rank * width
    if stored != count or reader.place + step * count != data.size:
        return None
    columns = []
    for dim, extent in enumerate(dims):
        narrow = min(width, next(size for size in (1, 2, 4, 8) if extent < 1 << 8 * size))
        column = data.column(reader.place + dim * width, step, count, width, narrow)
        if column is None or (count and int(column.max()) >= extent):
            return None
        columns.append(column)
    return tuple(columns)
