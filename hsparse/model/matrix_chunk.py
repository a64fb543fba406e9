"""Choosing chunk dimensions of sparse datasets that are written at once, when the number of elements is known."""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt, prod
from typing import Any

from hsparse.errors import Unsupported
from hsparse.model.layout import MAX_CHUNK_ELEMENTS

IN_CHUNK = 1 << 15
"""The average number of elements in a chunk: half of what coordinates of two bytes allow, for chunks above average."""
BAND, LOW_BAND = 16384, 4096
"""Rows of a chunk of a matrix, unless they have too many elements: if it is written by chunks, or in another order."""
LARGEST_BATCH = 1 << 21
"""The most elements of a request that has all elements of its chunks: each write of a part encodes a chunk again."""
LARGEST_BAND = 1 << 24
"""The most elements of the rows of a chunk, which are read for each request that has the elements of some chunks."""


def chunk_of(
    shape: tuple[int, ...], count: int, chunk: tuple[int, ...] = (), *, by_chunks: bool = True
) -> tuple[int, ...]:
    """Return chunk dimensions, so that a chunk has `IN_CHUNK` of `count` elements on average.

    A chunk of a matrix is tall: rows are read many at a time, columns a few. Its number of rows is a power of two, so
    that a block of that many rows, or of a part of them, is in one chunk. Others have equal dimensions. A wanted
    `chunk` is cut to the shape; `Unsupported` if it has another rank. `by_chunks` says that the writer sends whole
    chunks, so that a row of chunks may have more elements than a request.
    """
    if chunk:
        if len(chunk) != len(shape):
            raise Unsupported(f"The chunk has {len(chunk)} dimensions, the sparse array {len(shape)}.")
        return tuple(map(min, chunk, shape))
    wanted = min(MAX_CHUNK_ELEMENTS, max(IN_CHUNK, prod(shape) * IN_CHUNK // max(1, count)))
    if len(shape) != 2:
        return _equal_sides(shape, wanted)
    most, rows = (LARGEST_BAND, BAND) if by_chunks else (LARGEST_BATCH, LOW_BAND)
    band = min(rows, most * 7 // 8 * shape[0] // max(1, count))  # rows differ by an eighth, and more
    rows = min(shape[0], 1 << max(1, band, isqrt(wanted)).bit_length() - 1)
    if wanted // rows < shape[1]:
        return rows, wanted // rows
    return min(shape[0], wanted // shape[1]), shape[1]


def matrix_filters(dims: Sequence[int]) -> list[dict[str, Any]]:
    """Return `creationProperties.filters` of a matrix written at once, whose chunks of `dims` have few elements.

    Hardly any of them has more than 65535, so points have coordinates of two bytes where the dimensions allow it.
    """
    size = len(dims) * (2 if max(dims, default=0) <= 1 << 16 else 4)
    return [
        {"id": 2, "section": "H5_SECTION_SELECTION", "element_size": size},  # shuffle
        {"id": 1, "level": 4, "section": "H5_SECTION_SELECTION"},  # deflate
        {"id": 2, "section": "H5_SECTION_FIXED"},
        {"id": 1, "level": 4, "section": "H5_SECTION_FIXED"},
    ]


def _equal_sides(shape: tuple[int, ...], wanted: int) -> tuple[int, ...]:
    """Return chunk dimensions of `wanted` elements that are equal, except where the shape ends before."""
    chunk = [0] * len(shape)
    left = wanted
    for place, dim in enumerate(sorted(range(len(shape)), key=lambda dim: shape[dim])):
        remaining = len(shape) - place
        side = left if remaining == 1 else isqrt(left) if remaining == 2 else int(left ** (1 / remaining))
        chunk[dim] = max(1, min(shape[dim], side))
        left = max(1, left // chunk[dim])
    return tuple(chunk)
