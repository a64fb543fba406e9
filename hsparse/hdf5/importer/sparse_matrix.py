"""Represent sparse matrices from any file format, and upload them to sparse datasets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.cli.bounded_pool import BoundedPool
from hsparse.cli.progress import Advance
from hsparse.client.http.retrying_client import RetryingClient
from hsparse.errors import Corrupt, Unsupported
from hsparse.format.selections.points import Points
from hsparse.hdf5.importer.dense_upload import MAX_REQUEST_BYTES, ValueUpload
from hsparse.hdf5.importer.file_data import Dims
from hsparse.hdf5.importer.matrix_chunks import ChunkUpload, Lines, lines_of
from hsparse.hdf5.importer.source import path_in_errors
from hsparse.model.initial_values import LARGEST_BATCH, chunk_of, matrix_filters

MatrixElements = tuple[NDArray[np.uint64], NDArray[Any]]
"""A pair: coordinates (n, rank) uint64, and values (n,)."""
Json = dict[str, Any]
ELEMENTS_PER_REQUEST = 1 << 19
"""The number of elements per request; if a chunk has more elements, a request may have more."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """A sparse array with `count` stored elements; `item` is the type JSON, `fill` the fill value (None: zero).

    The elements of a compressed matrix are in `lines`. Otherwise, `batches` yields pairs: the number of bytes of a
    batch in the file, and a function that reads the batch, with memory for at most `most` elements. `chunk`
    are the chunk dimensions that the user wants; if `chunk` is empty, `chunk_of` chooses dimensions.
    """

    shape: tuple[int, ...]
    item: Any
    itemsize: int
    count: int
    batches: Iterable[tuple[int, Callable[[], MatrixElements]]] = ()
    fill: Any = None
    most: int = ELEMENTS_PER_REQUEST
    chunk: tuple[int, ...] = ()
    lines: Lines | None = None


def matrix_body(matrix: Matrix) -> Json:
    """Return the request body that creates the dataset of a matrix."""
    if 0 in matrix.shape:
        raise Unsupported(f"A sparse dataset of extent {list(matrix.shape)} has no elements; leave it out.")
    dims = chunk_of(matrix.shape, matrix.count, matrix.chunk, by_chunks=False)
    layout = {
        "class": "H5D_STRUCT_CHUNK",
        "dims": list(dims),
        "flags": ["H5D_SPARSE_DATA"],
    }
    properties: Json = {"layout": layout, "filters": matrix_filters(dims)}
    if matrix.fill is not None:
        properties["fillValue"] = matrix.fill
    return {"type": matrix.item, "shape": list(matrix.shape), "creationProperties": properties}


class MatrixUpload(ValueUpload[Matrix]):
    """Uploads a matrix; a compressed matrix skips chunks that are `stored` with the same number of elements."""

    def __init__(
        self,
        server: RetryingClient,
        uploads: BoundedPool,
        path: str,
        record: Json,
        data: Matrix,
        advance: Advance,
        stored: Mapping[Dims, int],
    ) -> None:
        super().__init__(server, uploads, path, record, data, advance)
        self._stored = stored

    @property
    def _row(self) -> int:
        return self._data.itemsize + 8 * len(self._data.shape)

    def submit(self) -> None:
        """Submit all elements, except complete chunks of a compressed matrix that the server has already."""
        if self._data.lines is not None:
            data, shape = self._data.lines, self._data.shape
            record = self._record | {"type": self._data.item}
            ChunkUpload(self._server, self._uploads, self._path, record, data, self._advance, shape).submit(
                self._stored
            )
        for nbytes, read in self._data.batches:
            self._uploads.submit(
                4 * self._row * max(ELEMENTS_PER_REQUEST, self._data.most), partial(self._send, nbytes, read)
            )

    def check(self) -> None:
        """Raise `Corrupt` if the server has fewer elements than were sent, because some have equal coordinates."""
        if self._data.lines is not None:
            return  # each chunk was checked before it was sent
        answer = self._server.json("GET", f"{self._url}/defined", count_only=1)
        twice = self._data.count - int(answer["count"])
        if twice:
            raise Corrupt(
                f"{self._path}: {twice} of {self._data.count} elements have the coordinates of another element; "
                "add them up first (sum_duplicates)."
            )

    def _send(self, nbytes: int, read: Callable[[], MatrixElements]) -> None:
        with path_in_errors(self._path):
            coords, values = read()
            step = LARGEST_BATCH if LARGEST_BATCH * self._row <= MAX_REQUEST_BYTES else ELEMENTS_PER_REQUEST
            for at in range(0, len(values), step):
                part = Points(self._data.shape, coords[at : at + step])
                self._put_elements(part, np.ascontiguousarray(values[at : at + step]))
        self._advance(nbytes, len(values))


def row_of(pointers: NDArray[np.int64], begin: int, end: int) -> NDArray[np.int64]:
    """Return the row (or column) of each element in `begin:end` of a compressed matrix, (n,) int64."""
    first, counts = lines_of(pointers, begin, end)
    return np.repeat(np.arange(first, first + len(counts), dtype=np.int64), counts)


def check_pointers(pointers: NDArray[np.int64], lines: int, count: int) -> None:
    """Raise `Corrupt` unless the pointers are `lines` + 1 ascending numbers from 0 to `count`."""
    right = len(pointers) == lines + 1 and int(pointers[0]) == 0 and int(pointers[-1]) == count
    if not right or (np.diff(pointers) < 0).any():
        raise Corrupt(
            f"The {len(pointers)} pointers do not ascend from 0 to {count} elements in {lines} rows or columns."
        )


def matrix_coordinates(first: NDArray[Any], second: NDArray[Any], kind: str) -> NDArray[np.uint64]:
    """Return coordinates (n, 2) uint64 of two index columns, swapped for csc; `Corrupt` if an index is negative."""
    pair = (second, first) if kind == "csc" else (first, second)
    if len(first) and min(int(first.min()), int(second.min())) < 0:
        raise Corrupt("An index of the matrix is negative.")
    result = np.empty((len(first), 2), np.uint64)
    result[:, 0], result[:, 1] = pair
    return result
