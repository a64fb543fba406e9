"""Where the pieces of chunks lie in files, and which ranges are read for them: close ones in one request.

Chunks put together of pieces of HDF5 files.

What clients tell of a file is less than the file knows. They name no filter masks; h5pyd's hsload leaves out
fletcher32, and what bitshuffle compresses with. So a piece that does not decode as told is tried as libhdf5 may
have written it: with filters skipped that did not make it smaller, with a checksum and with a compression that
nobody told of. Each of these is certain when it decodes: sizes and checksums must fit exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Corrupt
from hsparse.format.buffer import Buffer
from hsparse.format.filters.definition import Filter
from hsparse.format.filters.pipeline import undo_filters
from hsparse.format.filters.table import LEFT_OUT_BY_CLIENTS, codec_of

CLOSE = 128 * 1024
"""Bytes between two pieces that are read and thrown away rather than asking twice.

A request to S3 costs about 1 ms of one core here, as long as 128 KiB take at 125 MB/s; its 15 to 30 ms until the
first byte are shared with the other ranges, which are asked for at the same time.
"""
LONGEST = 8 * 1024 * 1024
"""Bytes of a range made of several pieces: S3 is fastest with ranges of 8 to 16 MiB side by side."""


@dataclass(frozen=True, slots=True, eq=False)
class ChunkPieces:
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

    def of(self, chunks: NDArray[np.intp]) -> ChunkPieces:
        """Return the pieces of `chunks`, which are numbered from 0 in this order in the result."""
        if not len(self.chunk):
            return self
        number = np.full(max(int(self.chunk.max()), int(chunks.max(initial=0))) + 1, -1, np.int64)
        number[chunks] = np.arange(len(chunks))
        new = number[self.chunk]
        rows = np.flatnonzero(new >= 0)
        return ChunkPieces(
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
class CoalescedRange:
    """Bytes `start` up to and without `stop` of a file, and the rows of the pieces that lie in them."""

    file: int
    start: int
    stop: int
    rows: list[int]


def coalesce_ranges(pieces: ChunkPieces, close: int = CLOSE, longest: int = LONGEST) -> list[CoalescedRange]:
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


Pipeline = tuple[Filter, ...]


def decode_piece(
    data: Buffer, dims: tuple[int, ...], dtype: np.dtype[Any], pipeline: Pipeline, mask: int = 0
) -> NDArray[Any]:
    """Return a piece's elements, shape `dims`, a view of `data` where there are no filters.

    `mask` is the filter mask as far as it is known. `Corrupt` when no way leads to exactly that many elements.
    """
    expected = math.prod(dims) * dtype.itemsize
    failure: Corrupt | None = None
    for filters, skipped in _ways(pipeline, mask, len(data) >= expected):
        try:
            return np.ndarray(dims, dtype, undo_filters(filters, data, skipped, expected))
        except Corrupt as error:
            failure = failure or error
    assert failure is not None
    raise failure


def pipeline_of(data: Buffer, size: int, pipeline: Pipeline, mask: int = 0) -> Pipeline:
    """Return the filters of a piece of `size` bytes of elements: those told, or more where a writer left some out.

    `Corrupt` as `decode_piece`.
    """
    failure: Corrupt | None = None
    ways = list(_ways(pipeline, mask, len(data) >= size))
    # With a checksum at the end first: decompressors may take it for bytes to be ignored.
    with_checksum = [(*pipeline, checksum) for checksum in LEFT_OUT_BY_CLIENTS]
    for filters, skipped in sorted(ways, key=lambda way: way[0] not in with_checksum):
        try:
            undo_filters(filters, data, skipped, size)
            return filters
        except Corrupt as error:
            failure = failure or error
    assert failure is not None
    raise failure


def mask_of(filters: Pipeline, told: Pipeline, mask: int, nbytes: int, size: int) -> int:
    """Return the filter mask of a piece of `nbytes` bytes, of `size` bytes of elements.

    `mask` is that for the filters `told`; `filters` are those and perhaps a checksum more. Filters that decline to
    make data longer were skipped where it is not shorter.
    """
    if len(filters) > len(told):
        place = next(place for place, filter in enumerate(filters) if filter in LEFT_OUT_BY_CLIENTS)
        mask = mask & ((1 << place) - 1) | (mask >> place) << (place + 1)
        nbytes -= codec_of(filters[place]).growth(filters[place].values) or 0
    declined = sum(1 << place for place, filter in enumerate(filters) if codec_of(filter).declines)
    return mask | declined if not mask and nbytes >= size else mask


def place_piece(array: NDArray[Any], place: list[int], piece: NDArray[Any]) -> None:
    """Set the part of a chunk at `place`, counted in pieces, to a piece's elements."""
    array[tuple(slice(at * size, (at + 1) * size) for at, size in zip(place, piece.shape, strict=True))] = (
        piece
    )


def place_start(array: NDArray[Any], data: Buffer) -> None:
    """Set the first elements of a chunk, in row-major order, to those in `data`: of a contiguous dataset."""
    count = len(data) // array.dtype.itemsize
    array.reshape(-1)[:count] = np.ndarray((count,), array.dtype, data)


def longest_piece(dims: tuple[int, ...], itemsize: int, pipeline: Pipeline) -> int:
    """Return the most bytes that a piece of `dims` elements can take in a file: no filter doubles it."""
    size = math.prod(dims) * itemsize
    return 2 * size + 4096 if pipeline else size + 4


def _ways(pipeline: Pipeline, mask: int, long: bool) -> Iterator[tuple[Pipeline, int]]:
    """Give pipelines and masks to try; `long`: the piece is not smaller than its elements."""
    for filters in _told_and_untold(pipeline):
        yield from _masked(filters, mask, long)


def _told_and_untold(pipeline: Pipeline) -> Iterator[Pipeline]:
    """Give the pipeline, then with other client values that its filters may have in the file."""
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
