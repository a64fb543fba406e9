"""Write matrices to sparse datasets in bands, so that each stored chunk is written once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hsparse.client.connection import Connection, Json
from hsparse.client.errors import InvalidValue
from hsparse.client.progress import Advance
from hsparse.client.sources.upload import upload
from hsparse.client.types.datatype import type_item
from hsparse.format.selections.points import Points, Selection
from hsparse.format.structured.region import encode_region
from hsparse.model.initial_values import LARGEST_BATCH, chunk_of, matrix_filters

Corner: TypeAlias = tuple[int, int]
MAX_THREADS = 4


def sparse_body(
    shape: Sequence[int],
    dtype: np.dtype[Any],
    count: int,
    chunks: Sequence[int] | None = None,
    filters: Sequence[Any] | None = None,
) -> Json:
    """Return the request body that creates a sparse dataset, with default chunks and filters for `count` elements."""
    dims = list(chunk_of(tuple(shape), count, tuple(chunks or ())))
    layout = {"class": "H5D_STRUCT_CHUNK", "dims": dims, "flags": ["H5D_SPARSE_DATA"]}
    properties = {"layout": layout, "filters": matrix_filters(dims) if filters is None else list(filters)}
    return {"type": type_item(dtype), "shape": list(shape), "creationProperties": properties}


class MatrixWriter:
    """Writes the defined elements of a matrix to the new sparse dataset `id`.

    The matrix is any object with a shape whose slices are csr or csc matrices of scipy, or dask arrays of these.
    """

    def __init__(self, connection: Connection, id: str, chunks: Sequence[int], advance: Advance) -> None:
        self._connection = connection
        self._id = id
        self._chunks = chunks
        self._advance = advance

    def write(self, matrix: Any, axis: int) -> None:
        """Write the whole matrix in bands along `axis`, the axis along which slices of the matrix are cheap."""
        bands = (self._parts(matrix, axis, first, last) for first, last in _bands(matrix, axis, self._chunks))
        parts = (part for band in bands for part in band)
        with ThreadPoolExecutor(MAX_THREADS, "hsparse-write") as pool:
            while some := list(islice(parts, MAX_THREADS)):  # at most this many are in memory
                list(pool.map(lambda part: self._send(matrix.shape, *part), some))

    def _parts(self, matrix: Any, axis: int, first: int, last: int) -> Iterator[tuple[Corner, Any]]:
        """Yield a pair for each piece of a band: the row and column where it begins, and all elements of its chunks.

        A piece has at most about `LARGEST_BATCH` elements; a piece with more elements is divided into lines.
        """
        band, across = _slice(matrix, axis, first, last), 1 - axis
        length, step = matrix.shape[across], self._chunks[across]
        if band.nnz > LARGEST_BATCH:
            step *= max(1, LARGEST_BATCH * -(-length // step) // band.nnz)
        else:
            step = length
        for low in range(0, length, step):
            piece = band if step == length else _slice(band, across, low, min(low + step, length))
            for line, part in self._lines(piece, axis):
                yield ((first + line, low) if axis == 0 else (low, first + line)), part

    def _lines(self, piece: Any, axis: int) -> Iterator[tuple[int, Any]]:
        """Halve a piece into parts of at most `LARGEST_BATCH` elements, or one line; yield (first line, matrix)."""
        count = piece.shape[axis]
        if piece.nnz <= LARGEST_BATCH or count == 1:
            yield 0, piece
            return
        for start, stop in ((0, count // 2), (count // 2, count)):
            for line, part in self._lines(_slice(piece, axis, start, stop), axis):
                yield start + line, part

    def _send(self, shape: tuple[int, ...], corner: Corner, part: Any) -> None:
        found = part.tocoo()
        coords = np.empty((found.nnz, 2), np.uint64)
        coords[:, 0], coords[:, 1] = found.row, found.col
        coords += np.array(corner, np.uint64)
        if len(coords):
            values = np.ascontiguousarray(found.data)
            upload(Points(shape, coords), values, self._chunks, 16 + values.itemsize, self._put)
        self._advance(found.nnz * found.data.itemsize)

    def _put(self, points: Selection, values: NDArray[Any]) -> None:
        self._connection.json("PUT", f"/datasets/{self._id}/value", encode_region(points, values), sparse=1)


def _bands(matrix: Any, axis: int, chunks: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows or columns: of one chunk's length, or of as many whole chunks as the longest block has."""
    length, step = matrix.shape[axis], chunks[axis]
    if hasattr(matrix, "numblocks"):
        step = max(step, max(matrix.chunks[axis]) // step * step)
    for first in range(0, length, step):
        yield first, min(first + step, length)


def _slice(matrix: Any, axis: int, first: int, last: int) -> Any:
    band = matrix[first:last] if axis == 0 else matrix[:, first:last]
    band = band.compute() if hasattr(band, "compute") else band
    if not hasattr(band, "nnz"):
        raise InvalidValue(f"A slice of the matrix is a {type(band).__name__}, not a sparse matrix of scipy.")
    if not getattr(band, "has_canonical_format", True):
        band = band.copy()
        band.sum_duplicates()
    return band
