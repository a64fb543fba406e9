"""The chunks of a file's datasets: what is read of a chunk is read of the file.

A dense chunk that the file stores by the same filters is answered as it is; others are decoded. Such a chunk is encoded
only for those who ask for the bytes of its object.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import prod
from threading import Lock
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Corrupt
from hsparse.format.buffer import Buffer
from hsparse.format.chunk_spec import ChunkSpec, chunk_name
from hsparse.format.filters.pipeline import decode_alike
from hsparse.format.kinds.chunk_kind import open_direct_chunk
from hsparse.format.kinds.registry import arrays_of, kind_of
from hsparse.format.kinds.sparse import SparseChunk
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.format.plan.grid import Grid
from hsparse.format.selections.orthogonal import Orthogonal, Span
from hsparse.format.selections.points import Points, Selection
from hsparse.hdf5.format.messages.layout_message import UNFILTERED_EDGES, ChunkedLayout
from hsparse.hdf5.importer.file_data import FileData
from hsparse.hdf5.importer.file_objects import FileObjects
from hsparse.hdf5.importer.hdf5_matrix import open_column, read_pointers
from hsparse.hdf5.importer.matrix_forms import MatrixForm
from hsparse.hdf5.importer.structured_upload import DefinedData, StructuredData
from hsparse.hdf5.importer.virtual_data import VirtualData

Scaled = tuple[int, ...]
IN_BAND = 32 * 1024
"""Elements of a chunk of a compressed matrix, on average: so few that a read of some rows reads few others."""
MOST_IN_CHUNK = 2**32 - 1
KEPT_BYTES = 8 * 1024 * 1024
"""Bytes of the decoded blocks of a column that are kept, two at least: the bands that a request reads share them."""


class FileChunks(Protocol):
    """The chunks of one dataset; every method may be called by any number of threads."""

    def names(self) -> dict[str, int]:
        """Return the names of the chunks that are stored, and about how many bytes each has."""
        ...

    def chunk(self, scaled: Scaled) -> FileChunk | Buffer | None:
        """Return a chunk, None where nothing is stored; `Corrupt` and `Unsupported` say what is wrong."""
        ...


@dataclass(frozen=True, slots=True)
class FileChunk:
    """A chunk as its kind has it; `encode` makes its object."""

    chunk: Any
    encode: Callable[[], Buffer]


def _decoded(spec: ChunkSpec, chunk: Any) -> FileChunk:
    return FileChunk(chunk, lambda: kind_of(spec).encode(chunk))


def _written(spec: ChunkSpec, scaled: Scaled, selection: Selection, values: Any) -> FileChunk | None:
    """Return a chunk that has these values at a selection, in its own coordinates."""
    stored = arrays_of(spec).stored(values, selection.shape)
    chunk, _ = kind_of(spec).write(ChunkSelection(scaled, selection), stored, (), False)(None)
    return None if chunk is None else _decoded(spec, chunk)


def is_kept(data: FileData | VirtualData, spec: ChunkSpec) -> bool:
    """Say whether the bytes of all chunks are in the file as a store would keep them."""
    layout = data.dataset.layout
    if not isinstance(data, FileData) or not isinstance(layout, ChunkedLayout) or not data.is_raw:
        return False
    assert data.records is not None
    pipeline = data.dataset.pipeline
    all_filtered = not (data.records.mask.any() or layout.flags & UNFILTERED_EDGES) or not pipeline
    return layout.dims == spec.dims and all_filtered and decode_alike(pipeline, spec.filters[0])


class DenseChunks:
    """The chunks of a dense dataset, of any layout in the file."""

    def __init__(self, data: FileData | VirtualData, spec: ChunkSpec) -> None:
        self._data, self._spec = data, spec
        self._grid = Grid(data.dims, spec.dims)
        self._alike = is_kept(data, spec)

    @cached_property
    def _rows(self) -> dict[Scaled, NDArray[np.intp]] | None:
        """The rows of the file's chunk index that each chunk needs; None where all is stored."""
        if not isinstance(self._data, FileData) or self._data.records is None:
            return None
        return dict(self._data.chunks_by_grid(self._spec.dims))

    def names(self) -> dict[str, int]:
        size = self._spec.datatype.guessed_size * prod(self._spec.dims)
        if self._rows is not None:
            assert isinstance(self._data, FileData)
            sizes = self._data.stored_size if self._alike else lambda _: size
            return {chunk_name(one): sizes(rows) for one, rows in self._rows.items()}
        if not self._data.is_allocated:
            return {}
        return {chunk_name(one): size for one in np.ndindex(*self._grid.counts)}

    def chunk(self, scaled: Scaled) -> FileChunk | Buffer | None:
        rows = None if self._rows is None else self._rows.get(scaled)
        if (self._rows is not None and rows is None) or not self._data.is_allocated:
            return None
        if self._alike and rows is not None:
            assert isinstance(self._data, FileData)
            return self._data.stored_chunk(int(rows[0]))[0]
        start, stop = self._grid.bounds(scaled)
        inside = tuple(Span.range(0, length) for length in self._grid.clipped(scaled))
        selection = Orthogonal(self._spec.dims, inside)
        return _written(self._spec, scaled, selection, self._data.read(start, stop))


class StructuredChunks:
    """The structured chunks of a file, which a store keeps with a footer."""

    def __init__(self, data: StructuredData, spec: ChunkSpec) -> None:
        self._data, self._spec = data, spec
        self._grid = Grid(data.dims, spec.dims)
        rows = map(tuple, data.records.scaled.tolist())
        self._rows: dict[Scaled, int] = {scaled: row for row, scaled in enumerate(rows)}

    def names(self) -> dict[str, int]:
        return {chunk_name(one): int(self._data.records.size[row]) for one, row in self._rows.items()}

    def chunk(self, scaled: Scaled) -> FileChunk | Buffer | None:
        row = self._rows.get(scaled)
        if row is None:
            return None
        data, sections, pipelines = self._data.chunk(row)
        spec = self._spec if pipelines == self._data.pipelines else _unfiltered(self._spec)
        table = np.array(sections, np.uint64)
        given = open_direct_chunk(kind_of(spec), bytes(data), table, scaled, self._grid.clipped(scaled))
        if given.data is None or spec is not self._spec:
            return _decoded(self._spec, given.chunk)
        return FileChunk(given.chunk, partial(bytes, given.data))


def _unfiltered(spec: ChunkSpec) -> ChunkSpec:
    return replace(spec, filters=((),) * len(spec.filters))


class DefinedChunks:
    """The chunks of a dataset that has a dataset beside it with what is defined."""

    def __init__(self, data: DefinedData, spec: ChunkSpec) -> None:
        self._data, self._spec = data, spec
        self._sizes = dict(data.chunks())

    def names(self) -> dict[str, int]:
        return {chunk_name(one): size for one, size in self._sizes.items()}

    def chunk(self, scaled: Scaled) -> FileChunk | Buffer | None:
        if scaled not in self._sizes:
            return None
        coords, values = self._data.read(scaled)
        origin = np.array(self._data.grid.origin(scaled), np.uint64)
        return _written(self._spec, scaled, Points(self._spec.dims, coords - origin), values)


class IndexColumn:
    """A column of a matrix, read in blocks of which the last are kept; threads that need the same one wait for it."""

    def __init__(self, data: FileData | VirtualData) -> None:
        self._data = data
        layout = data.dataset.layout
        records = data.records if isinstance(data, FileData) else None
        numbers = None if records is None else records.scaled[:, 0]
        self._in_order = numbers is not None and np.array_equal(numbers, np.arange(len(numbers)))
        """Whether the chunks of the file are in the order of the elements, as in all but damaged files."""
        self.step = layout.dims[0] if isinstance(layout, ChunkedLayout) else IN_BAND
        self._most = max(2, KEPT_BYTES // max(1, self.step * data.size))
        self._blocks: OrderedDict[int, Future[NDArray[Any]]] = OrderedDict()
        self._lock = Lock()

    def read(self, begin: int, end: int) -> NDArray[Any]:
        """Return the elements from `begin` to `end`."""
        step, parts = self.step, []
        for number in range(begin // step, -(-end // step)):
            first = number * step
            parts.append(self._block(number)[max(begin - first, 0) : end - first])
        if not parts:
            return np.asarray(self._data.read((0,), (0,)))
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _block(self, number: int) -> NDArray[Any]:
        with self._lock:
            found = self._blocks.get(number)
            missing = found is None
            if found is None:
                found = self._blocks[number] = Future()
                if len(self._blocks) > self._most:
                    self._blocks.popitem(last=False)
            self._blocks.move_to_end(number)
        if missing:
            try:
                found.set_result(self._decoded(number))
            except BaseException as error:  # noqa: BLE001 - raised below, and in others that wait
                with self._lock:
                    self._blocks.pop(number, None)
                found.set_exception(error)
        return found.result()

    def _decoded(self, number: int) -> NDArray[Any]:
        first = number * self.step
        last = min(first + self.step, self._data.dims[0])
        if self._in_order:
            assert isinstance(self._data, FileData)
            return self._data.whole_chunk(number)[: last - first]
        return np.asarray(self._data.read((first,), (last,)))


def band_of(form: MatrixForm, count: int) -> tuple[int, int]:
    """Return the dimensions of the chunks of a compressed matrix of `count` elements: whole rows or columns."""
    axis = int(form.kind == "csc")
    lines, length = form.shape[axis], form.shape[1 - axis]
    band = max(1, lines * IN_BAND // max(1, count))
    band = min(lines, band, max(1, MOST_IN_CHUNK // max(1, length)))
    return (length, band) if axis else (band, length)


class MatrixChunks:
    """The chunks of a compressed sparse matrix (csr or csc): bands of whole rows or columns."""

    def __init__(self, objects: FileObjects, form: MatrixForm, spec: ChunkSpec) -> None:
        self._form, self._spec = form, spec
        self._axis = int(form.kind == "csc")
        data, indices = (
            open_column(objects, form.values, "values"),
            open_column(objects, form.indices[-1], "indices"),
        )
        self._count = indices.dims[0]
        if form.pointers is not None:
            self._pointers = read_pointers(objects, form, self._count)
        self._itemsize = data.size + indices.size
        self._data, self._indices = IndexColumn(data), IndexColumn(indices)

    def names(self) -> dict[str, int]:
        band, lines = self._spec.dims[self._axis], self._form.shape[self._axis]
        bounds = self._pointers[[*range(0, lines, band), lines]]
        found = {}
        for number, count in enumerate(np.diff(bounds).tolist()):
            if count:
                found[chunk_name(self._scaled(number))] = count * self._itemsize
        return found

    def chunk(self, scaled: Scaled) -> FileChunk | Buffer | None:
        band, number = self._spec.dims[self._axis], scaled[self._axis]
        if scaled != self._scaled(number):
            return None
        first = number * band
        last = min(first + band, self._form.shape[self._axis])
        if first >= last:
            return None
        begin, end = self._bounds(first, last)
        if begin == end:
            return None
        return _decoded(self._spec, self._of_lines(first, last, begin, end))

    def _bounds(self, first: int, last: int) -> tuple[int, int]:
        """Return where the elements of the rows or columns from `first` to `last` begin and end."""
        return int(self._pointers[first]), int(self._pointers[last])

    def _of_lines(self, first: int, last: int, begin: int, end: int) -> SparseChunk:
        """Return the chunk of the rows or columns from `first` to `last`, whose elements are from `begin` to `end`."""
        values = self._data.read(0, 1) if self._form.iso else self._data.read(begin, end)
        if self._form.iso:
            values = np.repeat(values, end - begin)
        dims, dtype, offsets = self._spec.dims, self._spec.dtype, self._offsets(first, last, begin, end)
        if (offsets[1:] > offsets[:-1]).all():
            return SparseChunk(dims, offsets, values.astype(dtype, copy=not values.flags.owndata))
        chunk = SparseChunk.empty(dims, dtype).merge(offsets, values)
        if twice := len(offsets) - len(chunk.offsets):
            raise Corrupt(f"{twice} of {len(offsets)} elements are at places that others have too.")
        return chunk

    def _offsets(self, first: int, last: int, begin: int, end: int) -> NDArray[np.uint32]:
        """Return the places in a chunk of the elements from `begin` to `end`."""
        across = self._indices.read(begin, end)
        # Unsigned, a negative index is as large as one beyond the extent.
        across = across.view(across.dtype.str.replace("i", "u"))
        if int(across.max()) >= self._form.shape[1 - self._axis]:
            raise Corrupt("An index of the matrix is outside of it.")
        width = self._spec.dims[1]
        offsets = self._within(first, last, begin, end) * np.uint32(1 if self._axis else width)
        offsets += across.astype(np.uint32, copy=False) * np.uint32(width if self._axis else 1)
        return offsets

    def _within(self, first: int, last: int, begin: int, end: int) -> NDArray[np.uint32]:
        """Return the rows or columns, counted from `first`, of the elements from `begin` to `end`."""
        bounds = np.clip(self._pointers[first : last + 1], begin, end)
        return np.repeat(np.arange(last - first, dtype=np.uint32), np.diff(bounds))

    def _scaled(self, number: int) -> Scaled:
        return (0, number) if self._axis else (number, 0)
