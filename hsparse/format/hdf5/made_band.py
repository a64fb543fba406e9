"""A band of a matrix: its elements in order, made of the chunks that it has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Corrupt, Moved
from hsparse.format.buffer import Buffer, byte_view
from hsparse.format.chunk_rows import sections_of
from hsparse.format.hdf5.matrix_bands import MatrixBands, MatrixPart
from hsparse.format.kinds.sparse_chunk import open_sparse


@dataclass(frozen=True, slots=True, eq=False)
class MadeBand:
    """The elements of one band, by lines and then by the other coordinate.

    `lines: (n,)` count from the band's first one, `across: (n,)` are the matrix's, `values: (n,)` bytes as in files.
    """

    lines: NDArray[Any]
    across: NDArray[Any]
    values: NDArray[Any]

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""
        return self.lines.nbytes + self.across.nbytes + self.values.nbytes


class BandMaker:
    """One band on its way: `add` is given the stored bytes of all its chunks, in their order."""

    def __init__(self, bands: MatrixBands, band: int) -> None:
        self._bands = bands
        self._row = int(bands.rows[band])
        self._first = int(bands.lines[band])
        count = int(bands.starts[band + 1] - bands.starts[band])
        # Sorting 16 bits takes time in proportion to their number.
        self._lines = np.empty(count, np.min_scalar_type(bands.spec.dims[bands.axis] - 1))
        self._across = np.empty(count, bands.index)
        self._values = np.empty(count, f"V{bands.spec.dtype.itemsize}")
        self._have = 0

    def add(self, data: Buffer) -> None:
        """Add the next chunk; `Corrupt` when its bytes do not decode, `Moved` where the extent is shrinking."""
        bands, row = self._bands, self._row
        spec, axis, shape = bands.spec, bands.axis, bands.shape
        try:
            chunk = open_sparse(
                data, sections_of(bands.chunks.sections[row]), spec.dims, spec.dtype, spec.filters
            )
        except Corrupt as error:
            raise Corrupt(f"A chunk of {spec.dataset} is corrupt: {error.message}") from error
        stop = self._have + len(chunk.offsets)
        if len(chunk.offsets) != int(bands.chunks.defined[row]):
            raise AssertionError(
                f"A chunk of {spec.dataset} has {len(chunk.offsets)} elements, not as planned."
            )
        places = np.divmod(chunk.offsets, np.uint32(spec.dims[1]))
        begin = int(bands.chunks.scaled[row, 1 - axis]) * spec.dims[1 - axis]
        lines, across = places[axis], places[1 - axis].astype(np.int64) + begin
        if self._first + int(lines.max()) >= shape[axis] or int(across.max()) >= shape[1 - axis]:
            raise Moved(f"{spec.dataset} has elements outside of its extent: it is being made smaller.")
        self._lines[self._have : stop] = lines
        self._across[self._have : stop] = across
        self._values[self._have : stop] = np.frombuffer(byte_view(chunk.values), self._values.dtype)
        self._row, self._have = row + 1, stop

    def finish(self) -> MadeBand:
        """Return the band once all chunks were added."""
        # Chunks and their elements are in order of the other coordinate already, so that a stable sort keeps it.
        order = np.argsort(self._lines, kind="stable")
        lines, self._lines = self._lines[order], self._lines[:0]
        across, self._across = self._across[order], self._across[:0]
        values, self._values = self._values[order], self._values[:0]
        return MadeBand(lines, across, values)


def column_bytes(
    bands: MatrixBands, band: int, made: MadeBand, part: MatrixPart, first: int, last: int
) -> Buffer:
    """Return the entries of values or indices from `first` to before `last`, as a file has them.

    They are numbers in the matrix; what is not in the band is left out.
    """
    begin = int(bands.starts[band])
    inside = slice(max(0, first - begin), max(0, last - begin))
    if part is MatrixPart.VALUES:
        return byte_view(made.values[inside])
    if part is MatrixPart.ACROSS:
        return byte_view(made.across[inside])
    along = made.lines[inside].astype(bands.index) + bands.index.type(int(bands.lines[band]))
    return byte_view(along)


def known_pointers(bands: MatrixBands, first: int, last: int) -> NDArray[np.int64]:
    """Return the pointers from `first` to before `last`, without what lines of their own band have before them."""
    numbers = np.arange(first, last, dtype=np.uint64)
    band = np.searchsorted(bands.lines, numbers, "right").astype(np.int64) - 1
    step = np.uint64(bands.spec.dims[bands.axis])
    behind = np.zeros(len(numbers), np.int64)
    found = band >= 0
    behind[found] = numbers[found] - bands.lines[band[found]] >= step
    return bands.starts[np.maximum(band, 0) + behind].astype(np.int64)


def add_pointers(
    bands: MatrixBands, band: int, made: MadeBand, pointers: NDArray[np.int64], first: int
) -> None:
    """Add a band's elements to `pointers`, which are those from `first` on, of lines in it."""
    begin, step = int(bands.lines[band]), bands.spec.dims[bands.axis]
    low, high = max(first, begin + 1), min(first + len(pointers), begin + step)
    if low < high:
        lines = np.arange(low - begin, high - begin, dtype=made.lines.dtype)
        pointers[low - first : high - first] += np.searchsorted(made.lines, lines)
