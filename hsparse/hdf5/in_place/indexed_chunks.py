"""Chunks of matrices whose elements are ordered by row: coo matrices sorted by row, and events grouped by pulse."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Corrupt
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.kinds.sparse import SparseChunk
from hsparse.hdf5.importer.file_objects import FileObjects
from hsparse.hdf5.importer.hdf5_matrix import open_column
from hsparse.hdf5.importer.matrix_chunks import added_up
from hsparse.hdf5.importer.matrix_forms import MatrixForm
from hsparse.hdf5.in_place.file_chunks import IndexColumn, MatrixChunks, Scaled

ELEMENTS_AT_ONCE = 1 << 20
"""Elements (or events) that are processed at a time, which bounds the memory."""


class EventChunks(MatrixChunks):
    """The chunks of a matrix of event counts, pulses by pixels: bands of whole pulses."""

    def _of_lines(self, first: int, last: int, begin: int, end: int) -> SparseChunk:
        offsets, values = np.empty(0, np.uint32), np.empty(0, np.uint32)
        for at in range(begin, end, ELEMENTS_AT_ONCE):
            some = self._offsets(first, last, at, min(at + ELEMENTS_AT_ONCE, end))
            offsets, values = added_up(
                np.concatenate((offsets, some)), np.concatenate((values, np.ones(len(some), np.uint32)))
            )
        return SparseChunk(self._spec.dims, offsets, values.astype(self._spec.dtype, copy=False))


class CooChunks(MatrixChunks):
    """The chunks of a coo matrix whose elements are sorted by row: bands of whole rows."""

    def __init__(
        self, objects: FileObjects, form: MatrixForm, spec: ChunkSpec, first: tuple[int, ...]
    ) -> None:
        super().__init__(objects, form, spec, first)
        self._rows = IndexColumn(open_column(objects, form.indices[0], "indices"))
        self._firsts: dict[int, int] = {}
        """Maps the number of each block of the row column that a search has read to the row of its first element."""

    def sizes(self) -> dict[Scaled, int]:
        found: Counter[int] = Counter()
        for begin in range(0, self._count, ELEMENTS_AT_ONCE):
            rows = self._rows.read(begin, min(begin + ELEMENTS_AT_ONCE, self._count))
            places = rows.astype(np.int64) + self._before
            bands, counts = np.unique(places // self._spec.dims[0], return_counts=True)
            found.update(dict(zip(bands.tolist(), counts.tolist(), strict=True)))
        return {self._scaled(one): count * self._itemsize for one, count in found.items()}

    def _bounds(self, first: int, last: int) -> tuple[int, int]:
        return self._begin(first), self._begin(last)

    def _begin(self, row: int) -> int:
        """Return the number of elements in the rows before `row`, by binary search."""
        low, high = 0, -(-self._count // self._rows.step)
        while low < high:  # find the first block that begins with this row or a later one
            middle = (low + high) // 2
            if self._first(middle) < row:
                low = middle + 1
            else:
                high = middle
        if not low:
            return 0
        begin = (low - 1) * self._rows.step
        block = self._rows.read(begin, min(begin + self._rows.step, self._count))
        return begin + int(np.searchsorted(block, row))

    def _first(self, block: int) -> int:
        if block not in self._firsts:
            begin = block * self._rows.step
            self._firsts[block] = int(self._rows.read(begin, begin + 1)[0])
        return self._firsts[block]

    def _within(self, first: int, last: int, begin: int, end: int) -> NDArray[np.uint32]:
        rows = self._rows.read(begin, end)
        if int(rows.min()) < first or int(rows.max()) >= last:
            raise Corrupt("The row indices of the matrix are not in ascending order.")
        return np.asarray(rows - rows.dtype.type(first), np.uint32)
