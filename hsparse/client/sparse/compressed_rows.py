"""Build a matrix in compressed rows (CSR) from chunks: the chunks with the same rows form a band.

A conversion scatters elements over all rows. A conversion of one band stays in the processor's cache, and scipy
releases the interpreter's lock for it, so bands are converted concurrently.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.optional_module import OptionalModule

SCIPY = OptionalModule("scipy.sparse", "scipy")

CONVERTED_ELEMENTS = 1 << 20
"""The approximate number of elements that are converted at a time, so that they fit into the processor's cache."""


def index_type(*most: int) -> np.dtype[Any]:
    """Return the index type that scipy uses for numbers up to `most`: int32 if they fit, else int64."""
    return np.dtype(np.int32 if max(most) <= np.iinfo(np.int32).max else np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class CompressedRows:
    """A CSR matrix: row i has the `indices` and `values` from `pointers[i]` to `pointers[i + 1]`.

    Indices ascend in each row and have no repeats; values have the machine's byte order.
    """

    shape: tuple[int, int]
    pointers: NDArray[Any]
    indices: NDArray[Any]
    values: NDArray[Any]

    def __len__(self) -> int:
        return len(self.values)

    @property
    def arrays(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """The tuple (values, indices, pointers), in scipy's order."""
        return self.values, self.indices, self.pointers

    def to_scipy(self) -> Any:
        """Return a `csr_array` of these arrays."""
        found = SCIPY.load().csr_array(self.shape, dtype=self.values.dtype)
        # The constructor would check all indices again.
        found.data, found.indices, found.indptr = self.arrays
        found.has_sorted_indices = found.has_canonical_format = True
        return found


@dataclass(frozen=True, slots=True, eq=False)
class BandPiece:
    """The elements of a band from one chunk, in row-major order: (n,) rows within the band, columns and values.

    Columns may have any integer type; they count from `first_column` of the matrix.
    """

    rows: NDArray[Any]
    columns: NDArray[Any]
    values: NDArray[Any]
    first_column: int = 0


class RowBands:
    """Collects the rows of a matrix by bands, which any thread may fill in any order.

    `rows` has the first row and the end of each band, ascending; rows outside all bands are empty. `most` has the
    maximum number of elements of each band.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        rows: Sequence[tuple[int, int]],
        most: Sequence[int],
        dtype: np.dtype[Any],
    ) -> None:
        self._shape = shape
        self._rows = rows
        self._begins = np.cumsum([0, *most])
        self._sizes = np.zeros(len(most), np.int64)
        total = int(self._begins[-1])
        index = index_type(total, *shape)
        self._counts = np.zeros(shape[0] + 1, index)
        self._indices = np.empty(total, index)  # unused parts take no physical memory
        self._values = np.empty(total, dtype.newbyteorder("="))

    def fill(self, band: int, pieces: Sequence[BandPiece]) -> None:
        """Set the elements of a band from pieces, whose ranges of columns must ascend."""
        at, (first, end) = int(self._begins[band]), self._rows[band]
        for low, high, some in _lower_bands(pieces, end - first):
            size = sum(len(piece.values) for piece in some)
            room = slice(at, at + size)
            if len(some) == 1:
                counts = _count_rows(some[0].rows, high - low)
                self._place(some[0], self._indices[room])
                self._values[room] = some[0].values
            else:
                found = self._compressed(some, high - low)
                counts = np.diff(found.indptr)
                self._indices[room], self._values[room] = found.indices, found.data
            self._counts[first + low + 1 : first + high + 1] = counts
            at += size
        self._sizes[band] = at - int(self._begins[band])

    def result(self) -> CompressedRows:
        """Return all rows, after all bands were filled."""
        pointers = np.cumsum(self._counts, dtype=self._counts.dtype)
        indices, values = self._indices, self._values
        if int(self._sizes.sum()) < len(values):
            rooms = [
                slice(begin, begin + size)
                for begin, size in zip(self._begins.tolist(), self._sizes.tolist(), strict=False)
            ]
            indices, values = (np.concatenate([one[room] for room in rooms]) for one in (indices, values))
        return CompressedRows(self._shape, pointers, indices, values)

    def _compressed(self, pieces: Sequence[BandPiece], height: int) -> Any:
        """Return a band as scipy's CSR; the conversion is stable, so columns keep ascending in each row."""
        ends = np.cumsum([len(piece.columns) for piece in pieces]).tolist()
        columns = np.empty(ends[-1], self._indices.dtype)
        for piece, end in zip(pieces, ends, strict=True):
            self._place(piece, columns[end - len(piece.columns) : end])
        rows = np.concatenate([piece.rows for piece in pieces], dtype=self._indices.dtype)
        values = np.concatenate([piece.values for piece in pieces], dtype=self._values.dtype)
        found = SCIPY.load().coo_array((values, (rows, columns)), shape=(height, self._shape[1]))
        found.has_canonical_format = True  # saves a search for duplicates
        return found.tocsr()

    def _place(self, piece: BandPiece, room: NDArray[Any]) -> None:
        """Write the columns of a piece, counted from the matrix's first column, to `room`."""
        room[:] = piece.columns  # adding with a conversion takes twice as long
        if piece.first_column:
            room += room.dtype.type(piece.first_column)


def _count_rows(rows: NDArray[Any], height: int) -> NDArray[np.intp]:
    """Return an array, (height,), of how often each row below `height` occurs in the ascending `rows`."""
    ends = np.searchsorted(rows, np.arange(height, dtype=rows.dtype), "right")
    ends[1:] -= ends[:-1].copy()
    return ends


def _lower_bands(pieces: Sequence[BandPiece], height: int) -> Iterator[tuple[int, int, Sequence[BandPiece]]]:
    """Split a band into parts of at most about `CONVERTED_ELEMENTS`; yield triples (first row, end row, pieces)."""
    size = sum(len(piece.values) for piece in pieces)
    if len(pieces) == 1 or size <= CONVERTED_ELEMENTS:
        if size:
            yield 0, height, pieces
        return
    step = max(1, height * CONVERTED_ELEMENTS // size)
    edges = [*range(0, height, step), height]
    cuts = [np.searchsorted(piece.rows, edges).tolist() for piece in pieces]
    for number, (low, high) in enumerate(pairwise(edges)):
        some = [
            replace(
                piece,
                rows=piece.rows[a:b] - piece.rows.dtype.type(low),
                columns=piece.columns[a:b],
                values=piece.values[a:b],
            )
            for piece, (a, b) in zip(pieces, (cut[number : number + 2] for cut in cuts), strict=True)
            if a < b
        ]
        if some:
            yield low, high, some
