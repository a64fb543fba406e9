"""Read boxes of elements from compact, contiguous, external or chunked datasets of HDF5 files."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, product
from math import prod
from threading import RLock
from typing import Any, Protocol
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Corrupt
from hsparse.format.buffer import Buffer
from hsparse.format.filters.pipeline import undo_filters
from hsparse.format.plan.grid import Grid
from hsparse.hdf5.format.chunk_indexes.chunk_records import ChunkRecords
from hsparse.hdf5.format.file_fields import ByteRange
from hsparse.hdf5.format.hdf5_file import Hdf5File
from hsparse.hdf5.format.messages.file_type import FileType, is_byte_identical
from hsparse.hdf5.format.messages.layout_message import (
    UNFILTERED_EDGES,
    ChunkedLayout,
    CompactLayout,
    ContiguousLayout,
)
from hsparse.hdf5.format.parse.dataset_chunks import read_dataset_chunks
from hsparse.hdf5.format.parse.parsed_elements import ReferenceTarget, parse_elements
from hsparse.hdf5.format.parse.parsed_object import ParsedDataset
from hsparse.hdf5.importer.source import InputFile
from hsparse.hdf5.importer.source_files import ExternalData, SourceFiles
from hsparse.model.dataspace import dims_of
from hsparse.model.element import Fixed, element_of
from hsparse.model.json_values import Values

Dims = tuple[int, ...]
LARGE_CHUNK = 64 * 1024 * 1024
"""Chunks of at least this many bytes are decoded one at a time, and the last decoded chunk is cached."""
LONG_RUN = 4 * 1024
"""A contiguous run of at least this many bytes is read by a read of its own."""
SPARSE_SPAN = 4
"""Short runs are combined in one read that reads at most this many times the bytes of the runs."""


class DataFile(Protocol):
    """An open HDF5 file: its bytes, its superblock (`file`), and the files it names. `find` resolves references."""

    @property
    def source(self) -> InputFile: ...

    @property
    def file(self) -> Hdf5File: ...

    @property
    def files(self) -> SourceFiles: ...

    def find(self, address: int) -> ReferenceTarget | None: ...


def is_raw(stored: FileType) -> bool:
    """Return whether elements of a type have the same bytes in the file and in hsparse."""
    element = element_of(stored.item)
    return isinstance(element, Fixed) and is_byte_identical(stored)


class _LargeChunk:
    """The cache of the last decoded large chunk; a process has one cache for all files."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.of: ref[InputData] | None = None
        self.row = -1
        self.content: Buffer | None = None

    def forget(self, gone: ref[InputData] | None = None) -> None:
        """Free the cached chunk; if `gone` is given, only free a chunk of the data that `gone` refers to."""
        if gone is None or gone is self.of:
            self.of = self.content = None


_LARGE = _LargeChunk()


class InputData:
    """The elements of a dataset. `records` is the chunk index, or None for layouts without chunks.

    Raises `Corrupt` if contiguous data exceeds the file or compact data has a wrong size, and errors of `ExternalData`.
    """

    def __init__(self, objects: DataFile, dataset: ParsedDataset) -> None:
        self.objects = objects
        self.dataset = dataset
        self.dims: Dims = dims_of(dataset.shape) or ()
        self.size = dataset.type.size
        self.is_raw = is_raw(dataset.type)
        self.records: ChunkRecords | None = None
        self._external: ExternalData | None = None
        if dataset.external:
            self._external = ExternalData(objects.files, objects.source.name, dataset)
        size = prod(self.dims) * self.size
        match dataset.layout:
            case ChunkedLayout():
                reads = read_dataset_chunks(objects.file, dataset, dataset.layout)
                self.records = objects.source.run(reads)
            case ContiguousLayout(address=int(address)):
                objects.file.check(address, size, "contiguous data")
            case CompactLayout(data) if dims_of(dataset.shape) is not None and len(data) != size:
                raise Corrupt(f"The compact data has {len(data)} bytes for {list(self.dims)} elements.")

    @property
    def is_allocated(self) -> bool:
        """Whether the dataset has elements and storage for them; without storage, all elements have the fill value."""
        if dims_of(self.dataset.shape) is None or 0 in self.dims:
            return False
        layout = self.dataset.layout
        is_missing = isinstance(layout, ContiguousLayout) and layout.address is None
        return not is_missing or self._external is not None

    @property
    def is_whole(self) -> bool:
        """Whether all elements are stored: storage is allocated, and no chunk is missing."""
        layout = self.dataset.layout
        if isinstance(layout, ChunkedLayout):
            return self.records is not None and len(self.records) == Grid(self.dims, layout.dims).size
        return self.is_allocated

    def read(self, start: Dims, stop: Dims) -> Values:
        """Return the elements of the box `start:stop` in hsparse's encoding; raises `Corrupt` or `Unsupported`."""
        raw = self._read_raw(start, stop)
        data = np.ascontiguousarray(raw).reshape(-1).view(np.uint8).data
        shape = tuple(b - a for a, b in zip(start, stop, strict=True))
        stored = self.dataset.type
        if self.is_raw:
            element = element_of(stored.item)
            assert isinstance(element, Fixed)
            return np.ndarray(shape, element.dtype, data)
        return self.objects.source.run(
            parse_elements(self.objects.file, stored, data, shape, self.objects.find)
        )

    def has_data(self, start: Dims, stop: Dims) -> bool:
        """Return True: elements of a box may differ from the fill value. (`VirtualData` can return False.)"""
        return True

    def stored_chunk(self, row: int) -> tuple[bytes, int, bool]:
        """Return a triple for a chunk: its stored bytes, its filter mask, and whether filters apply to it.

        `row` is the row of the chunk in `records`. Chunks at an edge may be unfiltered.
        """
        assert self.records is not None
        file = self.objects.file
        address, size = int(self.records.address[row]), int(self.records.size[row])
        where = file.check(address, size, "chunk")
        return self.objects.source.read(*where), int(self.records.mask[row]), self._is_filtered(row)

    def whole_chunk(self, row: int) -> NDArray[Any]:
        """Return all elements of the chunk at `row` of `records`, even those beyond the extent. Requires `is_raw`."""
        layout, element = self.dataset.layout, element_of(self.dataset.type.item)
        assert isinstance(layout, ChunkedLayout)
        assert isinstance(element, Fixed)
        return np.ndarray(layout.dims, element.dtype, self._decoded(row, prod(layout.dims) * self.size))

    def chunks_by_grid(self, grid: Dims, first: Dims = ()) -> Iterator[tuple[Dims, NDArray[np.intp]]]:
        """Yield each chunk of another grid, with chunk dimensions `grid`, that overlaps stored chunks.

        Yields a pair: the chunk's scaled coordinates, and the rows in `records` of these stored chunks. `first` is
        the position of the dataset's element 0 in chunk 0 of the other grid (default: the origin).
        """
        assert self.records is not None
        assert isinstance(self.dataset.layout, ChunkedLayout)
        chunk = np.array(self.dataset.layout.dims, np.int64)
        begin = self.records.scaled.astype(np.int64) * chunk
        last = np.minimum(begin + chunk, np.array(self.dims, np.int64)) - 1
        before = np.array(first or (0,) * len(grid), np.int64)
        low, high = (begin + before) // np.array(grid), (last + before) // np.array(grid)
        keys, rows = [low], [np.arange(len(low))]
        for row in np.flatnonzero((low != high).any(1)).tolist():
            counts = high[row] - low[row] + 1
            others = np.indices(counts.tolist()).reshape(len(counts), -1).T[1:] + low[row]
            keys.append(others)
            rows.append(np.full(len(others), row))
        places, owners = np.concatenate(keys), np.concatenate(rows)
        order = np.lexsort(places.T[::-1])
        places, owners = places[order], owners[order]
        new = np.flatnonzero((places[1:] != places[:-1]).any(1)) + 1
        bounds = [0, *new.tolist(), len(places)] if len(places) else []
        for one, end in pairwise(bounds):
            yield tuple(places[one].tolist()), owners[one:end]

    def stored_size(self, rows: NDArray[np.intp]) -> int:
        """Return the number of bytes that the chunks at `rows` take in the file."""
        assert self.records is not None
        return int(self.records.size[rows].sum())

    def _read_raw(self, start: Dims, stop: Dims) -> NDArray[Any]:
        layout = self.dataset.layout
        raw = np.dtype(f"V{self.size}")
        if isinstance(layout, CompactLayout):
            return np.ndarray(self.dims, raw, layout.data)[_slices(start, stop)]
        if isinstance(layout, ContiguousLayout) and self.is_allocated:
            return self._read_contiguous(layout, start, stop)
        shape = tuple(b - a for a, b in zip(start, stop, strict=True))
        result = np.zeros(shape, raw)
        if fill := self.dataset.fill.value:
            if len(fill) != self.size:
                raise Corrupt(f"The fill value has {len(fill)} bytes; an element has {self.size}.")
            result[...] = np.frombuffer(fill, raw)[0]
        if not self.is_allocated:
            return result
        assert isinstance(layout, ChunkedLayout)
        for row in self._rows_in(layout.dims, start, stop).tolist():
            self._copy_chunk(layout.dims, row, start, stop, result)
        return result

    def _rows_in(self, chunk: Dims, start: Dims, stop: Dims) -> NDArray[np.intp]:
        assert self.records is not None
        scaled = self.records.scaled
        low = np.array([a // step for a, step in zip(start, chunk, strict=True)], np.uint64)
        high = np.array([(b - 1) // step for b, step in zip(stop, chunk, strict=True)], np.uint64)
        # rows are sorted by the first coordinate
        begin, end = np.searchsorted(scaled[:, 0], low[0]), np.searchsorted(scaled[:, 0], high[0], "right")
        part = scaled[begin:end]
        rows: NDArray[np.intp] = np.flatnonzero(((part >= low) & (part <= high)).all(1)) + begin
        return rows

    def _copy_chunk(self, dims: Dims, row: int, start: Dims, stop: Dims, result: NDArray[Any]) -> None:
        assert self.records is not None
        size = prod(dims) * self.size
        content = self._decoded(row, size) if size < LARGE_CHUNK else self._kept(row, size)
        inside, outside = [], []
        for a, b, step, at in zip(start, stop, dims, self.records.scaled[row].tolist(), strict=True):
            origin = at * step
            low, high = max(a, origin), min(b, origin + step)
            inside.append(slice(low - origin, high - origin))
            outside.append(slice(low - a, high - a))
        result[tuple(outside)] = np.ndarray(dims, result.dtype, content)[tuple(inside)]

    def _decoded(self, row: int, size: int) -> Buffer:
        data, mask, filtered = self.stored_chunk(row)
        return undo_filters(self.dataset.pipeline if filtered else (), data, mask if filtered else 0, size)

    def _kept(self, row: int, size: int) -> Buffer:
        """Return a decoded large chunk from the cache, so that consecutive reads decode the chunk only once."""
        with _LARGE.lock:
            if _LARGE.of is None or _LARGE.of() is not self or _LARGE.row != row:
                _LARGE.forget()  # free it before the next one is decoded
                _LARGE.content = self._decoded(row, size)
                _LARGE.row, _LARGE.of = row, ref(self, _LARGE.forget)
            assert _LARGE.content is not None
            return _LARGE.content

    def _read_contiguous(self, layout: ContiguousLayout, start: Dims, stop: Dims) -> NDArray[Any]:
        """Read a box of contiguous data: in one read from the first byte to the last, or by one read for each run."""
        raw, source, file = np.dtype(f"V{self.size}"), self.objects.source, self.objects.file
        shape = tuple(b - a for a, b in zip(start, stop, strict=True))
        if self._external is not None:
            source, whole = self._external, ByteRange(0, self._external.size)
        else:
            assert layout.address is not None
            whole = file.check(layout.address, prod(self.dims) * self.size, "contiguous data")
        strides = [prod(self.dims[dim + 1 :]) for dim in range(len(self.dims))]

        def place(corner: Dims) -> int:
            return whole.address + self.size * sum(map(int.__mul__, corner, strides))

        # The dimensions after `dim` are whole, so a run covers part of `dim`.
        wanted_whole = [(a, b) == (0, length) for a, b, length in zip(start, stop, self.dims, strict=True)]
        dim = max((dim for dim, is_whole in enumerate(wanted_whole) if not is_whole), default=0)
        run = self.size * prod(shape[dim:])
        if run >= LONG_RUN or dim == 0:
            corners = product(*map(range, start[:dim], stop[:dim]))
            runs = tuple(ByteRange(place((*corner, *start[dim:])), run) for corner in corners)
            parts = source.fetch(runs)
            return np.ndarray(shape, raw, parts[0] if len(parts) == 1 else b"".join(parts))
        span = place(tuple(b - 1 for b in stop)) + self.size - place(start)
        if span <= SPARSE_SPAN * self.size * prod(shape):
            data = source.read(place(start), span)
            return np.ndarray(shape, raw, data, strides=tuple(stride * self.size for stride in strides))
        dim = next(dim for dim, length in enumerate(shape) if length > 1)
        pieces = [
            self._read_contiguous(layout, _with(start, dim, at), _with(stop, dim, at + 1))
            for at in range(start[dim], stop[dim])
        ]
        return np.concatenate(pieces, dim)

    def _is_filtered(self, row: int) -> bool:
        layout = self.dataset.layout
        assert isinstance(layout, ChunkedLayout)
        assert self.records is not None
        if not layout.flags & UNFILTERED_EDGES:
            return True
        return not Grid(self.dims, layout.dims).is_edge(self.records.scaled[row].tolist())


def _with(place: Dims, dim: int, at: int) -> Dims:
    return (*place[:dim], at, *place[dim + 1 :])


def _slices(start: Dims, stop: Dims) -> tuple[slice, ...]:
    return tuple(map(slice, start, stop))
