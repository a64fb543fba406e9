"""File-backed chunks: where their pieces are in backing files, which byte ranges to read, and how pieces decode.

Close pieces are read in one range. A piece is a chunk of an HDF5 file, or a run of a contiguous dataset.

Clients describe the filters of a file incompletely. They give no filter masks; h5pyd's hsload omits fletcher32 and the
compression of bitshuffle. So a piece that does not decode as described is tried as libhdf5 may have written it:
with filters skipped that did not make it smaller, with a checksum, and with other compressions. A way that decodes is
certain: sizes and checksums must fit exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Corrupt
from hsparse.format.buffer import Buffer
from hsparse.format.filters.definition import Filter, Pipeline
from hsparse.format.filters.pipeline import LEFT_OUT_BY_CLIENTS, codec_of, undo_filters

MAX_GAP = 128 * 1024
"""The most bytes between two pieces of one range: they are read and discarded, which is cheaper than a request.

A request to S3 costs about 1 ms of one core here, as long as 128 KiB take at 125 MB/s; its 15 to 30 ms until the
first byte overlap with those of the other ranges, which are read concurrently.
"""
MAX_RANGE = 8 * 1024 * 1024
"""The most bytes of a coalesced range: S3 is fastest with concurrent ranges of 8 to 16 MiB."""


@dataclass(frozen=True, slots=True, eq=False)
class ChunkPieces:
    """Pieces of some chunks, by column, in any order; a chunk without pieces has no row.

    `chunk: (n,) uint32` is the number of the chunk, `place: (n, rank) uint32` the place in it, counted in pieces,
    `file: (n,) uint32` the number of the file and, in it, `offset: (n,) uint64` and `size: (n,) uint64` in bytes.
    `mask: (n,) uint32` is HDF5's filter mask.
    """

    chunk: NDArray[np.uint32]
    place: NDArray[np.uint32]
    file: NDArray[np.uint32]
    offset: NDArray[np.uint64]
    size: NDArray[np.uint64]
    mask: NDArray[np.uint32]

    def of(self, chunks: NDArray[np.intp]) -> ChunkPieces:
        """Return the pieces of `chunks`, whose numbers in the result are 0, 1, ... in this order."""
        if not len(self.chunk):
            return self
        number = np.full(max(int(self.chunk.max()), int(chunks.max(initial=0))) + 1, -1, np.int64)
        number[chunks] = np.arange(len(chunks))
        new = number[self.chunk]
        rows = np.flatnonzero(new >= 0)
        return replace(self.rows(rows), chunk=new[rows].astype(np.uint32))

    def rows(self, rows: NDArray[np.intp]) -> ChunkPieces:
        """Return some of the pieces, by their indices."""
        return ChunkPieces(
            self.chunk[rows],
            self.place[rows],
            self.file[rows],
            self.offset[rows],
            self.size[rows],
            self.mask[rows],
        )

    def span(self, gap: int) -> int:
        """Return the most bytes of ranges that have the pieces, with at most `gap` bytes between two of them."""
        most = int(self.size.sum()) + gap * len(self.size)
        if len(self.file) and (self.file == self.file[0]).all():
            return min(most, int((self.offset + self.size).max() - self.offset.min()))
        return most

    def counts(self, chunks: int) -> NDArray[np.intp]:
        """Return how many pieces each of `chunks` chunks has, (chunks,)."""
        return np.bincount(self.chunk, minlength=chunks)

    def firsts(self, chunks: int) -> tuple[NDArray[np.uint32], NDArray[np.uint64]]:
        """Return the file and the lowest offset of each of `chunks` chunks, (chunks,) each.

        Of a chunk without pieces both are 0; of one in more than one file, the file with the lowest number is meant.
        """
        order = np.lexsort((self.offset, self.file, self.chunk))
        found, places = np.unique(self.chunk[order], return_index=True)
        file, offset = np.zeros(chunks, np.uint32), np.zeros(chunks, np.uint64)
        file[found] = self.file[order][places]
        offset[found] = self.offset[order][places]
        return file, offset


@dataclass(slots=True)
class CoalescedRange:
    """Bytes `start` up to and without `stop` of a file, and the rows of `ChunkPieces` that lie in them."""

    file: int
    start: int
    stop: int
    rows: list[int]


def coalesce_ranges(
    pieces: ChunkPieces, close: int = MAX_GAP, longest: int = MAX_RANGE
) -> list[CoalescedRange]:
    """Return the ranges to read so that each piece lies in one, in order of file and offset.

    Pieces at most `close` bytes apart share a range, as long as that has at most `longest` bytes; a piece that
    is longer has its own.
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


def decode_piece(
    data: Buffer, dims: tuple[int, ...], dtype: np.dtype[Any], pipeline: Pipeline, mask: int = 0
) -> NDArray[Any]:
    """Return a piece's elements, shape `dims`, a view of `data` where there are no filters.

    `mask` is the filter mask, as far as it is known. `Corrupt` when no pipeline decodes to exactly that many elements.
    """
    expected = math.prod(dims) * dtype.itemsize
    reason = ""  # of the first failure; its error would keep this frame, and have itself, until a collection
    for filters, skipped in _ways(pipeline, mask, len(data) >= expected):
        try:
            return np.ndarray(dims, dtype, undo_filters(filters, data, skipped, expected))
        except Corrupt as error:
            reason = reason or error.message
    raise Corrupt(reason)


def pipeline_of(data: Buffer, size: int, pipeline: Pipeline, mask: int = 0) -> Pipeline:
    """Return the filters of a piece of `size` bytes of elements: the described ones, or others if only these decode it.

    `Corrupt` as `decode_piece`.
    """
    reason = ""
    ways = list(_ways(pipeline, mask, len(data) >= size))
    # Pipelines with a checksum at the end come first: decompressors may ignore its bytes.
    with_checksum = [(*pipeline, checksum) for checksum in LEFT_OUT_BY_CLIENTS]
    for filters, skipped in sorted(ways, key=lambda way: way[0] not in with_checksum):
        try:
            undo_filters(filters, data, skipped, size)
            return filters
        except Corrupt as error:
            reason = reason or error.message
    raise Corrupt(reason)


def mask_of(filters: Pipeline, described: Pipeline, mask: int, nbytes: int, size: int) -> int:
    """Return the filter mask of a piece of `nbytes` bytes, of `size` bytes of elements.

    `mask` is the mask for the filters `described`; `filters` are these, perhaps with a checksum added. Filters that
    decline to make data longer were skipped where the piece is not shorter.
    """
    if len(filters) > len(described):
        place = next(place for place, filter in enumerate(filters) if filter in LEFT_OUT_BY_CLIENTS)
        mask = mask & ((1 << place) - 1) | (mask >> place) << (place + 1)
        nbytes -= codec_of(filters[place]).growth(filters[place].values) or 0
    declined = sum(1 << place for place, filter in enumerate(filters) if codec_of(filter).declines)
    return mask | declined if not mask and nbytes >= size else mask


def place_piece(array: NDArray[Any], place: list[int], piece: NDArray[Any]) -> None:
    """Set the elements of a chunk at `place`, in units of pieces, to a piece's elements."""
    array[tuple(slice(at * size, (at + 1) * size) for at, size in zip(place, piece.shape, strict=True))] = (
        piece
    )


def place_start(array: NDArray[Any], data: Buffer) -> None:
    """Set the first elements of a chunk, in row-major order, to those in `data`, a run of a contiguous dataset."""
    count = len(data) // array.dtype.itemsize
    array.reshape(-1)[:count] = np.ndarray((count,), array.dtype, data)


def max_piece_size(dims: tuple[int, ...], itemsize: int, pipeline: Pipeline) -> int:
    """Return the most bytes that a piece of `dims` elements can take in a file: no filter doubles it."""
    size = math.prod(dims) * itemsize
    return 2 * size + 4096 if pipeline else size + 4


def _ways(pipeline: Pipeline, mask: int, long: bool) -> Iterator[tuple[Pipeline, int]]:
    """Yield pipelines and masks to try; `long`: the piece is not smaller than its elements."""
    for filters in _described_and_others(pipeline):
        yield from _masked(filters, mask, long)


def _described_and_others(pipeline: Pipeline) -> Iterator[Pipeline]:
    """Yield the described pipeline, then those with other client values that its filters may have in the file."""
    yield pipeline
    for place, filter in enumerate(pipeline):
        for values in codec_of(filter).other_values(filter.values):
            yield (*pipeline[:place], Filter(filter.id, values), *pipeline[place + 1 :])


def _masked(pipeline: Pipeline, mask: int, long: bool) -> Iterator[tuple[Pipeline, int]]:
    masks = [mask]
    declined = sum(1 << place for place, filter in enumerate(pipeline) if codec_of(filter).declines)
    if declined and not mask:
        # A filter that declines to make data longer leaves data as long as it was.
        masks = [declined, mask] if long else [mask, declined]
    for skipped in masks:
        yield pipeline, skipped
    for added in LEFT_OUT_BY_CLIENTS:
        if added.id in (filter.id for filter in pipeline):
            continue
        for skipped in masks:
            for place in reversed(range(len(pipeline) + 1)):
                low = skipped & ((1 << place) - 1)
                yield (*pipeline[:place], added, *pipeline[place:]), low | (skipped >> place) << (place + 1)
