"""Chunks of served datasets, read from the HDF5 file on request.

A dense chunk is returned as stored if the file's dataset and its record (its metadata on the server) have the same
chunk dimensions and filters. Any other chunk is returned decoded, and is encoded only if a caller needs its bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import prod
from operator import mod, sub
from threading import Lock
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hsparse.bounded_cache import BoundedCache
from hsparse.errors import BadRequest, Corrupt
from hsparse.format.buffer import Buffer
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.filters.pipeline import decode_alike
from hsparse.format.kinds.chunk_kind import open_direct_chunk
from hsparse.format.kinds.registry import arrays_of, kind_of
from hsparse.format.kinds.sparse import SparseChunk
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.format.plan.grid import Grid
from hsparse.format.selections.orthogonal import Orthogonal, StridedSpan
from hsparse.format.selections.points import Points, Selection
from hsparse.hdf5.format.messages.layout_message import UNFILTERED_EDGES, ChunkedLayout
from hsparse.hdf5.importer.defined_upload import DefinedData
from hsparse.hdf5.importer.file_data import InputData
from hsparse.hdf5.importer.file_objects import FileObjects
from hsparse.hdf5.importer.hdf5_matrix import open_column, read_pointers
from hsparse.hdf5.importer.matrix_forms import MatrixForm
from hsparse.hdf5.importer.structured_upload import StructuredData
from hsparse.hdf5.importer.virtual_data import VirtualData
from hsparse.model.dataspace import lower_of
from hsparse.model.layout import chunk_dims
from hsparse.wire.message import Record

Scaled = tuple[int, ...]
IN_BAND = 32 * 1024
"""Average number of elements per chunk of a compressed matrix; small, so that reading a row reads few other rows."""
MOST_IN_CHUNK = 2**32 - 1
KEPT_BYTES = 8 * 1024 * 1024
"""Bytes of decoded blocks that are cached per column (at least two blocks), because adjacent chunks share a block."""


class FileChunks(Protocol):
    """The chunks of one dataset. All methods are thread-safe."""

    decoded: int
    """Bytes of the largest file chunk or block that must be decoded whole; 0 if only served chunks are decoded."""

    def sizes(self) -> dict[Scaled, int]:
        """Return a dict that maps the scaled coordinates of each stored chunk to its approximate size in bytes."""
        ...

    def chunk(self, scaled: Scaled) -> FileChunk | Buffer | None:
        """Return a chunk, decoded or as stored bytes, or None if it is not stored; raise `Corrupt` or `Unsupported`."""
        ...


class NoChunks:
    """The chunks of a virtual dataset: it stores none, because readers use the chunks of its source datasets."""

    decoded = 0

    def sizes(self) -> dict[Scaled, int]:
        return {}

    def chunk(self, scaled: Scaled) -> FileChunk | Buffer | None:
        return None


@dataclass(frozen=True, slots=True)
class ServedGrid:
    """The chunk grid of a record, laid over the elements of a file's dataset.

    `dims` is the extent of the dataset in the file and `chunk` the dimensions of a chunk. `first` is the position of
    the file's element 0 in chunk 0, which is not the origin if the dataset has a lower bound inside of a chunk.
    """

    dims: tuple[int, ...]
    chunk: tuple[int, ...]
    first: tuple[int, ...]

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of chunks in each dimension."""
        whole = zip(self.dims, self.first, self.chunk, strict=True)
        return tuple(-(-(length + before) // step) for length, before, step in whole)

    def bounds(self, scaled: Scaled) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Return a triple: start and stop of a chunk's box in the file, and the position of start in the chunk."""
        origin = [n * step - before for n, step, before in zip(scaled, self.chunk, self.first, strict=True)]
        start = tuple(max(0, at) for at in origin)
        stop = tuple(min(end, at + step) for end, at, step in zip(self.dims, origin, self.chunk, strict=True))
        return start, stop, tuple(map(sub, start, origin))


@dataclass(frozen=True, slots=True)
class FileChunk:
    """A decoded chunk, as its chunk kind represents it; `encode` returns the bytes of its chunk object."""

    chunk: Any
    encode: Callable[[], Buffer]


def _decoded(spec: ChunkSpec, chunk: Any) -> FileChunk:
    return FileChunk(chunk, lambda: kind_of(spec).encode(chunk))


def _written(spec: ChunkSpec, scaled: Scaled, selection: Selection, values: Any) -> FileChunk | None:
    """Return a chunk with `values` at a selection in the chunk's coordinates, or None if the chunk would be empty."""
    stored = arrays_of(spec).stored(values, selection.shape)
    chunk, _ = kind_of(spec).write(ChunkSelection(scaled, selection), stored, (), False)(None)
    return None if chunk is None else _decoded(spec, chunk)


def first_in_chunk(record: Record) -> tuple[int, ...]:
    """Return the position of a dataset's first element in its chunk: zeros unless the dataset has a lower bound."""
    dims = chunk_dims(record)
    return tuple(map(mod, lower_of(record["shape"]) or (0,) * len(dims), dims))


def is_kept(data: InputData | VirtualData, spec: ChunkSpec, first: tuple[int, ...]) -> bool:
    """Return whether every stored chunk of the file can be served unchanged; `first` is as in `ServedGrid`."""
    layout = data.dataset.layout
    if (
        any(first)
        or not isinstance(data, InputData)
        or not isinstance(layout, ChunkedLayout)
        or not data.is_raw
    ):
        return False
    assert data.records is not None
    pipeline = data.dataset.pipeline
    all_filtered = not (data.records.mask.any() or layout.flags & UNFILTERED_EDGES) or not pipeline
    return layout.dims == spec.dims and all_filtered and decode_alike(pipeline, spec.filters[0])


class DenseChunks:
    """The chunks of a dense dataset with any layout in the file: compact, contiguous, chunked, external or virtual."""

    def __init__(self, data: InputData | VirtualData, spec: ChunkSpec, first: tuple[int, ...]) -> None:
        self._data, self._spec = data, spec
        self._grid = ServedGrid(data.dims, spec.dims, first)
        self._alike = is_kept(data, spec, first)
        layout = data.dataset.layout
        is_whole = isinstance(layout, ChunkedLayout) and not self._alike
        self.decoded = prod(layout.dims) * data.size if is_whole and isinstance(layout, ChunkedLayout) else 0

    @cached_property
    def _rows(self) -> dict[Scaled, NDArray[np.intp]] | None:
        """Maps each served chunk to the rows of the file's chunk index that it needs; None without a chunk index."""
        if not isinstance(self._data, InputData) or self._data.records is None:
            return None
        return dict(self._data.chunks_by_grid(self._spec.dims, self._grid.first))

    def sizes(self) -> dict[Scaled, int]:
        size = self._spec.datatype.guessed_size * prod(self._spec.dims)
        if self._rows is not None:
            assert isinstance(self._data, InputData)
            sizes = self._data.stored_size if self._alike else lambda _: size
            return {one: sizes(rows) for one, rows in self._rows.items()}
        if not self._data.is_allocated:
            return {}
        return dict.fromkeys(np.ndindex(*self._grid.counts), size)

    def chunk(self, scaled: Scaled) -> FileChunk | Buffer | None:
        rows = None if self._rows is None else self._rows.get(scaled)
        if (self._rows is not None and rows is None) or not self._data.is_allocated:
            return None
        if self._alike and rows is not None:
            assert isinstance(self._data, InputData)
            return self._data.stored_chunk(int(rows[0]))[0]
        start, stop, inside = self._grid.bounds(scaled)
        spans = tuple(StridedSpan.range(at, at + b - a) for at, a, b in zip(inside, start, stop, strict=True))
        selection = Orthogonal(self._spec.dims, spans)
        return _written(self._spec, scaled, selection, self._data.read(start, stop))


class StructuredChunks:
    """The structured chunks of a file's dataset; a chunk object consists of the file's bytes and a footer."""

    decoded = 0

    def __init__(self, data: StructuredData, spec: ChunkSpec) -> None:
        self._data, self._spec = data, spec
        self._grid = Grid(data.dims, spec.dims)
        rows = map(tuple, data.records.scaled.tolist())
        self._rows: dict[Scaled, int] = {scaled: row for row, scaled in enumerate(rows)}

    def sizes(self) -> dict[Scaled, int]:
        return {one: int(self._data.records.size[row]) for one, row in self._rows.items()}

    def chunk(self, scaled: Scaled) -> FileChunk | Buffer | None:
        row = self._rows.get(scaled)
        if row is None:
            return None
        data, sections, pipelines = self._data.chunk(row)
        spec = self._spec if pipelines == self._data.pipelines else _unfiltered(self._spec)
        table = np.array([(one.size, one.unfiltered, one.mask) for one in sections], np.uint64)
        try:
            given = open_direct_chunk(kind_of(spec), bytes(data), table, scaled, self._grid.clipped(scaled))
        except BadRequest as error:
            raise Corrupt(error.message) from error
        if given.data is None or spec is not self._spec:
            return _decoded(self._spec, given.chunk)
        return FileChunk(given.chunk, partial(bytes, given.data))


def _unfiltered(spec: ChunkSpec) -> ChunkSpec:
    return replace(spec, filters=((),) * len(spec.filters))


class DefinedChunks:
    """The chunks of a sparse dataset that the file stores as two datasets: its values and its defined set."""

    decoded = 0

    def __init__(self, data: DefinedData, spec: ChunkSpec, first: tuple[int, ...]) -> None:
        self._data, self._spec = data, spec
        self._grid = ServedGrid(data.values.dims, spec.dims, first)
        self._sizes: Counter[Scaled] = Counter()
        for part in (data.values, data.defined):
            for scaled, rows in part.chunks_by_grid(spec.dims, first):
                self._sizes[scaled] += part.stored_size(rows)

    def sizes(self) -> dict[Scaled, int]:
        return self._sizes

    def chunk(self, scaled: Scaled) -> FileChunk | Buffer | None:
        if scaled not in self._sizes:
            return None
        start, stop, inside = self._grid.bounds(scaled)
        coords, values = self._data.read_box(start, stop)
        return _written(
            self._spec, scaled, Points(self._spec.dims, coords + np.array(inside, np.uint64)), values
        )


class IndexColumn:
    """A one-dimensional dataset of a matrix, read in blocks of `step` elements.

    Recently used blocks are cached; concurrent reads of a block share one load.
    """

    def __init__(self, data: InputData | VirtualData) -> None:
        self._data = data
        layout = data.dataset.layout
        records = data.records if isinstance(data, InputData) else None
        numbers = None if records is None else records.scaled[:, 0]
        self._in_order = numbers is not None and np.array_equal(numbers, np.arange(len(numbers)))
        """Whether row n of the file's chunk index is chunk n, without gaps: each block is then one whole chunk."""
        self.step = layout.dims[0] if isinstance(layout, ChunkedLayout) else IN_BAND
        most = max(2, KEPT_BYTES // max(1, self.step * data.size))
        self._blocks: BoundedCache[int, Future[NDArray[Any]]] = BoundedCache.of_entries(most)
        self._lock = Lock()

    def read(self, begin: int, end: int) -> NDArray[Any]:
        """Return the elements from `begin` up to, not including, `end`."""
        step, parts = self.step, []
        for number in range(begin // step, -(-end // step)):
            first = number * step
            parts.append(self._block(number)[max(begin - first, 0) : end - first])
        if not parts:
            return np.asarray(self._data.read((0,), (0,)))
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _block(self, number: int) -> NDArray[Any]:
        with self._lock:
            found = self._blocks.use(number)
            missing = found is None
            if found is None:
                found = Future()
                self._blocks.keep(number, found)
        if missing:
            try:
                found.set_result(self._decoded(number))
            except BaseException as error:  # noqa: BLE001 - result() raises it, also in threads that wait
                self._blocks.forget(number)
                found.set_exception(error)
        return found.result()

    def _decoded(self, number: int) -> NDArray[Any]:
        first = number * self.step
        last = min(first + self.step, self._data.dims[0])
        if self._in_order:
            assert isinstance(self._data, InputData)
            return self._data.whole_chunk(number)[: last - first]
        return np.asarray(self._data.read((first,), (last,)))


def band_of(form: MatrixForm, count: int) -> tuple[int, int]:
    """Return the chunk dimensions of a compressed matrix of `count` elements: a band of whole rows (csc: columns)."""
    axis = int(form.kind == "csc")
    lines, length = form.shape[axis], form.shape[1 - axis]
    band = max(1, lines * IN_BAND // max(1, count))
    band = min(lines, band, max(1, MOST_IN_CHUNK // max(1, length)))
    return (length, band) if axis else (band, length)


class MatrixChunks:
    """The chunks of a compressed sparse matrix: bands of whole rows (csr) or of whole columns (csc)."""

    def __init__(
        self, objects: FileObjects, form: MatrixForm, spec: ChunkSpec, first: tuple[int, ...]
    ) -> None:
        self._form, self._spec = form, spec
        self._axis = int(form.kind == "csc")
        self._before = first[self._axis]
        """Number of rows or columns of chunk 0 that precede row or column 0 of the file."""
        data, indices = (
            open_column(objects, form.values, "values"),
            open_column(objects, form.indices[-1], "indices"),
        )
        self._count = indices.dims[0]
        if form.pointers is not None:
            self._pointers = read_pointers(objects, form, self._count)
        self._itemsize = data.size + indices.size
        self._data, self._indices = IndexColumn(data), IndexColumn(indices)
        self.decoded = max(self._data.step * data.size, self._indices.step * indices.size)

    def sizes(self) -> dict[Scaled, int]:
        band, lines = self._spec.dims[self._axis], self._form.shape[self._axis]
        bounds = self._pointers[[0, *range(band - self._before, lines, band), lines]]
        found = {}
        for number, count in enumerate(np.diff(bounds).tolist()):
            if count:
                found[self._scaled(number)] = count * self._itemsize
        return found

    def chunk(self, scaled: Scaled) -> FileChunk | Buffer | None:
        band, number = self._spec.dims[self._axis], scaled[self._axis]
        if scaled != self._scaled(number):
            return None
        first = max(0, number * band - self._before)
        last = min((number + 1) * band - self._before, self._form.shape[self._axis])
        if first >= last:
            return None
        begin, end = self._bounds(first, last)
        if begin == end:
            return None
        return _decoded(self._spec, self._of_lines(first, last, begin, end))

    def _bounds(self, first: int, last: int) -> tuple[int, int]:
        """Return the range (begin, end) of the elements of the rows or columns `first:last`."""
        return int(self._pointers[first]), int(self._pointers[last])

    def _of_lines(self, first: int, last: int, begin: int, end: int) -> SparseChunk:
        """Return the chunk of rows or columns `first:last`, which consists of the elements `begin:end`."""
        values = self._data.read(0, 1) if self._form.iso else self._data.read(begin, end)
        if self._form.iso:
            values = np.repeat(values, end - begin)
        dims, dtype, offsets = self._spec.dims, self._spec.dtype, self._offsets(first, last, begin, end)
        if (offsets[1:] > offsets[:-1]).all():
            return SparseChunk(dims, offsets, values.astype(dtype, copy=not values.flags.owndata))
        chunk = SparseChunk.empty(dims, dtype).merge(offsets, values)
        if twice := len(offsets) - len(chunk.offsets):
            raise Corrupt(f"{twice} of {len(offsets)} elements have the coordinates of another element.")
        return chunk

    def _offsets(self, first: int, last: int, begin: int, end: int) -> NDArray[np.uint32]:
        """Return the row-major offsets, in the chunk that begins at line `first`, of the elements `begin:end`."""
        across = self._indices.read(begin, end)
        # As an unsigned number a negative index is large, so that one comparison finds both errors.
        across = across.view(across.dtype.str.replace("i", "u"))
        if int(across.max()) >= self._form.shape[1 - self._axis]:
            raise Corrupt("A row or column index of the matrix is outside of the matrix's shape.")
        width = self._spec.dims[1]
        within = self._within(first, last, begin, end) + np.uint32(0 if first else self._before)
        offsets = within * np.uint32(1 if self._axis else width)
        offsets += across.astype(np.uint32, copy=False) * np.uint32(width if self._axis else 1)
        return offsets

    def _within(self, first: int, last: int, begin: int, end: int) -> NDArray[np.uint32]:
        """Return the row or column, counted from `first`, of each of the elements `begin:end`."""
        bounds = np.clip(self._pointers[first : last + 1], begin, end)
        return np.repeat(np.arange(last - first, dtype=np.uint32), np.diff(bounds))

    def _scaled(self, number: int) -> Scaled:
        return (0, number) if self._axis else (number, 0)
