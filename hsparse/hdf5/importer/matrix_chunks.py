"""Upload compressed matrices (csr, csc) as chunks, each by one request.

Chunks are cut from lines (rows, or columns of csc): lines are read, and their elements are sorted by chunk.
The server only checks and stores the bytes. A chunk on the server is complete, so a resumed import skips the chunk.

Tests: tests/cli/importer/test_matrix_chunks.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.cli.bounded_pool import BoundedPool
from hsparse.cli.progress import Advance
from hsparse.client.http.retrying_client import RetryingClient
from hsparse.errors import Corrupt, TooLarge
from hsparse.format.buffer import byte_view
from hsparse.format.chunk_spec import chunk_name, chunk_spec
from hsparse.format.dataspace_message import image_head
from hsparse.format.kinds.sparse import SparseChunk
from hsparse.format.plan.grid import Grid
from hsparse.format.selections.extent import coordinate_columns, strides
from hsparse.format.selections.selection_encoding import (
    blocks_size,
    encode_offsets,
    encode_points,
    points_size,
)
from hsparse.format.structured.container import METADATA_FIXED, build
from hsparse.hdf5.importer.dense_upload import ValueUpload, points_in_chunk
from hsparse.hdf5.importer.file_data import Dims
from hsparse.hdf5.importer.source import path_in_errors

ELEMENTS_AT_ONCE = 1 << 18
"""The number of elements that are cut at a time: few enough for the processor's cache, which halves the time."""
MAX_CUT_ELEMENTS = 1 << 22
"""The maximum number of elements cut at a time; chunks of the file with more elements are read several times."""
CUT_BYTES = 32
"""The bytes of memory that cutting takes for each element, not counting its value."""
MAX_ROWS_ELEMENTS = 1 << 22
"""The maximum number of elements in rows of chunks that are cut together; one row of chunks may have more."""
MAX_WAITING_BYTES = 192 * 1024 * 1024
"""The maximum bytes of cut elements in memory. Lines with more are read repeatedly, for some chunks at a time."""
SHORT_RUN = 4
"""Elements are sorted one by one if the runs of elements of the same chunk are shorter than this on average."""
MAX_NUMBERED_CHUNKS = 1 << 16
"""The maximum number of chunks that are cut together: two-byte chunk numbers are sorted very fast."""


@dataclass(frozen=True, slots=True)
class Lines:
    """The stored elements of a compressed matrix, line by line: rows or, if `axis` is 1, columns.

    `pointers`, (lines + 1,) int64, has each line's first element. `read(begin, end)` returns the indices (within their
    lines) and values of elements; multiples of `step` elements are read fastest. All elements take `nbytes` in the
    file. With `adds_up`, values with equal coordinates are added.
    """

    axis: int
    pointers: NDArray[np.int64]
    read: Callable[[int, int], tuple[NDArray[Any], NDArray[Any]]]
    step: int
    nbytes: int
    adds_up: bool = False


@dataclass(frozen=True, slots=True)
class _CutPart:
    """Chunks that are cut together: chunks `low:high` of the rows of chunks `first:last`.

    `begin:end` are the elements of all lines of these rows.
    """

    first: int
    last: int
    low: int
    high: int
    begin: int
    end: int

    @property
    def width(self) -> int:
        return self.high - self.low

    @property
    def size(self) -> int:
        """The number of chunks in this part."""
        return (self.last - self.first) * self.width


@dataclass(frozen=True, slots=True, eq=False)
class _Piece:
    """Elements of a `_CutPart`, sorted by chunk: chunk k has the elements `bounds[k]:bounds[k + 1]`.

    They result from `counts[k]` elements of the matrix; there are fewer of them if equal coordinates were added up.
    """

    counts: NDArray[np.intp]
    bounds: list[int]
    offsets: NDArray[np.uint32]
    values: NDArray[Any]


class ChunkUpload(ValueUpload[Lines]):
    """Uploads the chunks of a compressed matrix of `shape`."""

    def __init__(
        self,
        server: RetryingClient,
        uploads: BoundedPool,
        path: str,
        record: dict[str, Any],
        data: Lines,
        advance: Advance,
        shape: Dims,
    ) -> None:
        super().__init__(server, uploads, path, record, data, advance)
        self._spec = chunk_spec(record)
        self._grid = Grid(shape, self._spec.dims)
        self._counts = self._grid.counts
        self._empty = SparseChunk.empty(self._spec.dims, self._spec.dtype)
        self._axis = data.axis
        self._byte_rate = data.nbytes / max(1, int(data.pointers[-1]))

    def submit(self, stored: Mapping[Dims, int]) -> None:
        """Submit all chunks, except chunks that the server has `stored` with the same number of elements."""
        for part in self._parts():
            there = sum(stored.get(self._scaled(part, number), 0) for number in range(part.size))
            if part.width == self._counts[1 - self._axis] and there == part.end - part.begin:
                self._count(there, before=True)
                continue
            pieces = self._pieces(part)
            counts = np.sum([piece.counts for piece in pieces], axis=0).tolist()
            for number, count in enumerate(counts):
                scaled = self._scaled(part, number)
                if count == stored.get(scaled, 0):
                    self._count(count, before=True)
                else:
                    nbytes = 4 * count * (4 + self._spec.dtype.itemsize)
                    self._uploads.submit(nbytes, partial(self._send, scaled, pieces, number, count))

    def _parts(self) -> Iterator[_CutPart]:
        """Yield the parts of the matrix that are cut one after the other; parts without elements are omitted."""
        bands, width = self._counts[self._axis], self._counts[1 - self._axis]
        pointers, lines = self._data.pointers, self._spec.dims[self._axis]
        starts = pointers[np.minimum(np.arange(bands + 1) * lines, len(pointers) - 1)]
        most = max(1, MAX_WAITING_BYTES // (4 + self._spec.dtype.itemsize))
        first = 0
        while first < bands:
            last = int(np.searchsorted(starts, starts[first] + MAX_ROWS_ELEMENTS, "right")) - 1
            last = min(max(last, first + 1), first + max(1, MAX_NUMBERED_CHUNKS // width), bands)
            begin, end = int(starts[first]), int(starts[last])
            step = -(-width // max(1, -(-(end - begin) // most)))
            for low in range(0, width if end > begin else 0, step):
                yield _CutPart(first, last, low, min(low + step, width), begin, end)
            first = last

    def _pieces(self, part: _CutPart) -> list[_Piece]:
        """Return all elements of a part; chunks of the previous part are sent while this part is read."""
        found: dict[int, _Piece] = {}
        for begin, end in self._ranges(part):
            nbytes = (end - begin) * (CUT_BYTES + 3 * self._spec.dtype.itemsize)
            self._uploads.submit(nbytes, partial(self._cut_into, found, part, (begin, end)))
        self._uploads.finish()
        return [found[begin] for begin in sorted(found)]

    def _cut_into(self, found: dict[int, _Piece], part: _CutPart, bounds: tuple[int, int]) -> None:
        found[bounds[0]] = self._cut(part, bounds)

    def _ranges(self, part: _CutPart) -> Iterator[tuple[int, int]]:
        """Yield ranges of a part's elements. Ranges end at multiples of `Lines.step` or have `MAX_CUT_ELEMENTS`."""
        step = min(MAX_CUT_ELEMENTS, max(1, ELEMENTS_AT_ONCE // self._data.step) * self._data.step)
        cuts = range((part.begin // step + 1) * step, part.end, step)
        return pairwise((part.begin, *cuts, part.end))

    def _cut(self, part: _CutPart, bounds: tuple[int, int]) -> _Piece:
        """Read the elements in the range `bounds` of a part, and sort these elements by chunk."""
        with path_in_errors(self._path):
            indices, values = self._data.read(*bounds)
            indices = checked_indices(indices, self._grid.extent[1 - self._axis])
        if values.dtype != self._empty.values.dtype:  # complex numbers are compounds
            values = values.view(self._empty.values.dtype)
        length, line_length = self._spec.dims[1 - self._axis], self._spec.dims[self._axis]
        strides = (self._spec.dims[1], 1)
        # Values that are constant in a line are computed once per line.
        first, counts = lines_of(self._data.pointers, *bounds)
        lines = np.arange(first, first + len(counts))
        chunks = indices // indices.dtype.type(length)
        offsets = (indices - chunks * indices.dtype.type(length)).astype(np.uint32, copy=False)
        if strides[1 - self._axis] != 1:
            offsets *= np.uint32(strides[1 - self._axis])
        in_chunk = (lines % line_length * strides[self._axis]).astype(np.uint32)
        offsets += np.repeat(in_chunk, counts)
        if part.width < self._counts[1 - self._axis]:
            kept = np.flatnonzero((chunks >= part.low) & (chunks < part.high))
            chunks, offsets, values = chunks[kept] - chunks.dtype.type(part.low), offsets[kept], values[kept]
            counts = np.diff(np.searchsorted(kept, np.append(0, np.cumsum(counts))))
        number = np.uint16 if part.size <= MAX_NUMBERED_CHUNKS else np.int64
        numbers = chunks.astype(number)
        if part.last - part.first > 1:
            numbers += np.repeat(((lines // line_length - part.first) * part.width).astype(number), counts)
        if self._data.adds_up:
            counts = np.bincount(numbers, minlength=part.size)
            places, values = added_up(numbers.astype(np.uint64) << np.uint64(32) | offsets, values)
            ends = np.searchsorted(places >> np.uint64(32), np.arange(part.size, dtype=np.uint64), "right")
            offsets = places.astype(np.uint32)
        else:
            order, counts = order_of(numbers, part.size)
            ends = np.cumsum(counts)
            if order is not None:
                offsets, values = offsets[order], values[order]
        return _Piece(counts, [0, *ends.tolist()], offsets, values)

    def _scaled(self, part: _CutPart, number: int) -> Dims:
        band, place = divmod(number, part.width)
        pair = part.first + band, part.low + place
        return pair[::-1] if self._axis else pair

    def _send(self, scaled: Dims, pieces: list[_Piece], number: int, count: int) -> None:
        """Encode and send a chunk that results from `count` elements of the matrix."""
        slices = [(piece, slice(*piece.bounds[number : number + 2])) for piece in pieces]
        offsets = np.concatenate([piece.offsets[some] for piece, some in slices])
        values = np.concatenate([piece.values[some] for piece, some in slices])
        rows, width = self._spec.dims
        if self._data.adds_up:
            offsets, values = added_up(offsets, values)
        if self._axis and rows <= 1 << 16:
            # Columns are in order already: a stable sort by two-byte rows is 5 times as fast as one by offsets.
            order = np.argsort((offsets // np.uint32(width)).astype(np.uint16), kind="stable")
            offsets, values = offsets[order], values[order]
        chunk = self._empty.merge(offsets, values)
        with path_in_errors(self._path):
            twice = len(offsets) - len(chunk.offsets)
            if twice:
                raise Corrupt(
                    f"{twice} of {len(offsets)} elements have the coordinates of another element, in the chunk "
                    f"{chunk_name(scaled)}; add them up first (sum_duplicates)."
                )
            if not self._takes_chunks or not self._put_whole(scaled, chunk):
                points = points_in_chunk(self._grid, scaled, chunk.offsets)
                self._put_elements(points, chunk.values)
        self._count(count)

    def _put_whole(self, scaled: Dims, chunk: SparseChunk) -> bool:
        """Send a chunk by one request; return False if the chunk is too large, and must be sent as elements."""
        contents = encode_places(chunk.offsets, chunk.dims), byte_view(chunk.values)
        stored = build(contents, METADATA_FIXED, self._spec.filters)
        try:
            self._put_chunk(scaled, stored.data, stored.sections)
        except TooLarge:
            return False
        return True

    def _count(self, elements: int, *, before: bool = False) -> None:
        """Report progress by a number of elements; `before` if an earlier import has stored these elements."""
        self._advance(int(elements * self._byte_rate), elements, before=before)


def order_of(numbers: NDArray[Any], size: int) -> tuple[NDArray[np.intp] | None, NDArray[np.intp]]:
    """Return a pair: the stable sort order of numbers below `size` (None if sorted), and the count of each number.

    If equal numbers form long runs, only the runs are sorted, which takes less than half the time.
    """
    ends = np.flatnonzero(numbers[1:] != numbers[:-1]) + 1
    starts = np.append(0, ends)[: len(numbers)]
    of_runs = numbers[starts]
    ascend = (of_runs[1:] >= of_runs[:-1]).all()
    if ascend or len(starts) * SHORT_RUN > len(numbers):
        order = None if ascend else np.argsort(numbers, kind="stable")
        return order, np.bincount(numbers, minlength=size)
    lengths, runs = np.diff(starts, append=len(numbers)), np.argsort(of_runs, kind="stable")
    counts = np.bincount(of_runs, lengths, size).astype(np.intp)
    starts, lengths = starts[runs], lengths[runs]
    # The step to the next element is 1 inside of a run, and leads to the next run at the end of one.
    steps = np.ones(len(numbers), np.intp)
    steps[0] = starts[0]
    steps[np.cumsum(lengths[:-1])] = starts[1:] - (starts[:-1] + lengths[:-1] - 1)
    return np.cumsum(steps, out=steps), counts


def added_up(places: NDArray[Any], counts: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return a pair: the distinct `places`, (n,) integers, ascending, and the sum of `counts` of each place."""
    order = np.argsort(places, kind="stable")
    places = places[order]
    first = np.flatnonzero(np.append(True, places[1:] != places[:-1])[: len(places)])
    return places[first], np.add.reduceat(counts[order], first, dtype=counts.dtype) if len(first) else counts


def checked_indices(indices: NDArray[Any], extent: int) -> NDArray[Any]:
    """Return indices as uint32, or uint64 if the extent exceeds 2**32; raises `Corrupt` beyond the extent."""
    if len(indices):
        if int(indices.min()) < 0:
            raise Corrupt("An index of the matrix is negative.")
        if (highest := int(indices.max())) >= extent:
            raise Corrupt(f"An index of the matrix is {highest}, not below its extent {extent}.")
    return indices.astype(np.uint32 if extent <= 1 << 32 else np.uint64, copy=False)


def encode_places(offsets: NDArray[np.uint32], dims: Dims) -> bytes:
    """Return the result of `encode_offsets`, but in a third of the time if the elements are scattered."""
    if not len(offsets) or not are_scattered(offsets, dims):
        return encode_offsets(offsets, dims)
    return image_head(dims, None) + encode_points(coordinate_columns(offsets, dims))


def are_scattered(offsets: NDArray[np.uint32], dims: Dims) -> bool:
    """Return whether points certainly take fewer bytes than boxes, because few elements have a neighbour."""
    count, width = len(offsets), dims[-1]
    row = int(np.searchsorted(offsets, (int(offsets[0]) // width + 1) * width))
    if not count % row and (offsets[-row:] % width == offsets[:row] % width).all():
        return False  # perhaps they form a regular hyperslab
    # Each pair of neighbours saves at most one box.
    boxes = count - int(np.count_nonzero(offsets[1:] - offsets[:-1] == 1))
    for step in strides(dims)[:-1]:
        both = np.concatenate((offsets, offsets + np.uint32(step)))
        both.sort(kind="stable")  # a stable sort merges the two sorted halves
        boxes -= int(np.count_nonzero(both[1:] == both[:-1]))
    highest = max(dims) - 1
    return blocks_size(max(1, boxes), len(dims), highest) >= points_size(count, len(dims), highest)


def lines_of(pointers: NDArray[np.int64], begin: int, end: int) -> tuple[int, NDArray[np.int64]]:
    """Return a pair for elements `begin:end`: their first line, and the number of them in each line from there on."""
    first = int(np.searchsorted(pointers, begin, "right")) - 1
    last = int(np.searchsorted(pointers, end, "left"))
    bounds = np.clip(pointers[first : last + 1], begin, end)
    return first, bounds[1:] - bounds[:-1]
