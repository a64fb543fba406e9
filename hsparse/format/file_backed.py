"""File-backed chunks: the location of their pieces in backing files, and the byte ranges to read.

A piece is a chunk of an HDF5 file, or a run of a contiguous dataset. Pieces that are close to each other are read in
one range.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.format.buffer import Buffer
from hsparse.format.filters.definition import Pipeline
from hsparse.format.filters.pipeline import LEFT_OUT_BY_CLIENTS, codec_of

MAX_GAP = 128 * 1024
"""The most bytes between two pieces of one range: reading and discarding them is cheaper than another request.

A request to S3 costs about 1 ms of one core, the time that 128 KiB take at 125 MB/s. Its latency of 15 to 30 ms does
not count, because ranges are read concurrently.
"""
MAX_RANGE = 8 * 1024 * 1024
"""The most bytes of a coalesced range: S3 is fastest with concurrent ranges of 8 to 16 MiB."""


@dataclass(frozen=True, slots=True, eq=False)
class ChunkPieces:
    """Pieces of chunks, by column, in any order; a chunk without pieces has no row.

    `chunk: (n,) uint32` is the number of the chunk, `place: (n, rank) uint32` the position in the chunk in units of
    pieces, and `file: (n,) uint32` the number of the file. `offset: (n,) uint64` and `size: (n,) uint64` locate the
    piece in the file, in bytes. `mask: (n,) uint32` is HDF5's filter mask.
    """

    chunk: NDArray[np.uint32]
    place: NDArray[np.uint32]
    file: NDArray[np.uint32]
    offset: NDArray[np.uint64]
    size: NDArray[np.uint64]
    mask: NDArray[np.uint32]

    def of(self, chunks: NDArray[np.intp]) -> ChunkPieces:
        """Return the pieces of `chunks`, which are renumbered 0, 1, ... in this order."""
        if not len(self.chunk):
            return self
        number = np.full(max(int(self.chunk.max()), int(chunks.max(initial=0))) + 1, -1, np.int64)
        number[chunks] = np.arange(len(chunks))
        new = number[self.chunk]
        rows = np.flatnonzero(new >= 0)
        return replace(self.rows(rows), chunk=new[rows].astype(np.uint32))

    def rows(self, rows: NDArray[np.intp]) -> ChunkPieces:
        """Return the pieces at the indices `rows`."""
        return ChunkPieces(
            self.chunk[rows],
            self.place[rows],
            self.file[rows],
            self.offset[rows],
            self.size[rows],
            self.mask[rows],
        )

    def span(self, gap: int) -> int:
        """Return an upper bound on the bytes of the ranges that cover all pieces with gaps of at most `gap` bytes."""
        most = int(self.size.sum()) + gap * len(self.size)
        if len(self.file) and (self.file == self.file[0]).all():
            return min(most, int((self.offset + self.size).max() - self.offset.min()))
        return most

    def counts(self, chunks: int) -> NDArray[np.intp]:
        """Return the number of pieces of each of `chunks` chunks, (chunks,)."""
        return np.bincount(self.chunk, minlength=chunks)

    def firsts(self, chunks: int) -> tuple[NDArray[np.uint32], NDArray[np.uint64]]:
        """Return a pair of arrays (chunks,): each chunk's lowest file number, and its lowest offset in this file.

        The file number and the offset are 0 for a chunk without pieces.
        """
        order = np.lexsort((self.offset, self.file, self.chunk))
        found, places = np.unique(self.chunk[order], return_index=True)
        file, offset = np.zeros(chunks, np.uint32), np.zeros(chunks, np.uint64)
        file[found] = self.file[order][places]
        offset[found] = self.offset[order][places]
        return file, offset


@dataclass(slots=True)
class CoalescedRange:
    """The bytes `start` to `stop` (exclusive) of a file, and the rows of `ChunkPieces` that lie in them."""

    file: int
    start: int
    stop: int
    rows: list[int]


def coalesce_ranges(
    pieces: ChunkPieces, close: int = MAX_GAP, longest: int = MAX_RANGE
) -> list[CoalescedRange]:
    """Return the ranges to read, ordered by file and offset, so that each piece lies in one range.

    Pieces at most `close` bytes apart share a range of at most `longest` bytes; a longer piece has its own range.
    """
    order = np.lexsort((pieces.offset, pieces.file)).tolist()
    files, offsets, sizes = pieces.file.tolist(), pieces.offset.tolist(), pieces.size.tolist()
    ranges: list[CoalescedRange] = []
    for row in order:
        start, stop = offsets[row], offsets[row] + sizes[row]
        last = ranges[-1] if ranges else None
        if (
            last is not None
            and last.file == files[row]
            and start - last.stop <= close
            and max(stop, last.stop) - last.start <= longest
        ):
            last.stop = max(stop, last.stop)
            last.rows.append(row)
        else:
            ranges.append(CoalescedRange(files[row], start, stop, [row]))
    return ranges


def mask_of(filters: Pipeline, described: Pipeline, mask: int, nbytes: int, size: int) -> int:
    """Return the filter mask of a piece that has `nbytes` bytes in the file and `size` bytes of elements.

    `mask` belongs to the filters `described`; `filters` are these filters, possibly with an added checksum. If `mask`
    is 0 but the piece is not shorter than its elements, the result marks the filters that HDF5 skips in this case.
    """
    if len(filters) > len(described):
        place = next(place for place, filter in enumerate(filters) if filter in LEFT_OUT_BY_CLIENTS)
        mask = mask & ((1 << place) - 1) | (mask >> place) << (place + 1)
        nbytes -= codec_of(filters[place]).growth(filters[place].values) or 0
    declined = sum(1 << place for place, filter in enumerate(filters) if codec_of(filter).declines)
    return mask | declined if not mask and nbytes >= size else mask


def place_piece(array: NDArray[Any], place: list[int], piece: NDArray[Any]) -> None:
    """Copy the elements of `piece` into a chunk's `array` at the position `place`, counted in pieces per dimension."""
    array[tuple(slice(at * size, (at + 1) * size) for at, size in zip(place, piece.shape, strict=True))] = (
        piece
    )


def place_start(array: NDArray[Any], data: Buffer) -> None:
    """Copy `data`, a run of a contiguous dataset, to the first elements of a chunk's `array` in row-major order."""
    count = len(data) // array.dtype.itemsize
    array.reshape(-1)[:count] = np.ndarray((count,), array.dtype, data)


def max_piece_size(dims: tuple[int, ...], itemsize: int, pipeline: Pipeline) -> int:
    """Return an upper bound on the bytes of a piece of shape `dims` in a file; no pipeline doubles the size."""
    size = math.prod(dims) * itemsize
    return 2 * size + 4096 if pipeline else size + 4
