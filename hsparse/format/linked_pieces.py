"""Where the pieces of chunks lie in files, and which ranges are read for them: close ones in one request."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CLOSE = 128 * 1024
"""Bytes between two pieces that are read and thrown away rather than asking twice.

A request to S3 costs about 1 ms of one core here, as long as 128 KiB take at 125 MB/s; its 15 to 30 ms until the
first byte are shared with the other ranges, which are asked for at the same time.
"""
LONGEST = 8 * 1024 * 1024
"""Bytes of a range made of several pieces: S3 is fastest with ranges of 8 to 16 MiB side by side."""


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """Pieces of some chunks, by column, in any order; chunks without any have no row.

    `chunk: (n,) uint32` says which of the chunks, `place: (n, rank) uint32` where in it, in pieces, `file: (n,)
    uint32` which of the files, `offset: (n,) uint64` and `size: (n,) uint64` where there, in bytes. `mask: (n,)
    uint32` is HDF5's filter mask.
    """

    chunk: NDArray[np.uint32]
    place: NDArray[np.uint32]
    file: NDArray[np.uint32]
    offset: NDArray[np.uint64]
    size: NDArray[np.uint64]
    mask: NDArray[np.uint32]

    def of(self, chunks: NDArray[np.intp]) -> Pieces:
        """Return the pieces of `chunks`, which are numbered from 0 in this order in the result."""
        if not len(self.chunk):
            return self
        number = np.full(max(int(self.chunk.max()), int(chunks.max(initial=0))) + 1, -1, np.int64)
        number[chunks] = np.arange(len(chunks))
        new = number[self.chunk]
        rows = np.flatnonzero(new >= 0)
        return Pieces(
            new[rows].astype(np.uint32),
            self.place[rows],
            self.file[rows],
            self.offset[rows],
            self.size[rows],
            self.mask[rows],
        )

    def counts(self, chunks: int) -> NDArray[np.intp]:
        """Return how many pieces each of `chunks` chunks has, (chunks,)."""
        return np.bincount(self.chunk, minlength=chunks)

    def firsts(self, chunks: int) -> tuple[NDArray[np.uint32], NDArray[np.uint64]]:
        """Return the file and the lowest offset of each of `chunks` chunks, (chunks,) each.

        Of a chunk without pieces both are 0; of one in several files, the lowest-numbered file counts.
        """
        order = np.lexsort((self.offset, self.file, self.chunk))
        found, places = np.unique(self.chunk[order], return_index=True)
        file, offset = np.zeros(chunks, np.uint32), np.zeros(chunks, np.uint64)
        file[found] = self.file[order][places]
        offset[found] = self.offset[order][places]
        return file, offset


@dataclass(slots=True)
class ByteRange:
    """Bytes `start` up to and without `stop` of a file, and the rows of the pieces that lie in them."""

    file: int
    start: int
    stop: int
    rows: list[int]


def byte_ranges(pieces: Pieces, close: int = CLOSE, longest: int = LONGEST) -> list[ByteRange]:
    """Return the ranges to read so that each piece lies in one, in order of file and offset.

    Pieces at most `close` bytes apart share a range, as long as that has at most `longest` bytes; a piece that
    is longer has its own.
    """
    order = np.lexsort((pieces.offset, pieces.file)).tolist()
    files, offsets, sizes = pieces.file.tolist(), pieces.offset.tolist(), pieces.size.tolist()
    ranges: list[ByteRange] = []
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
            ranges.append(ByteRange(files[row], start, stop, [row]))
    return ranges
