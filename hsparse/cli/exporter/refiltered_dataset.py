"""The data of a dataset, on its way from one file to another in which it has other filters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import NamedTuple

import numpy as np

from hsparse.cli.exporter.filter_choice import FilterChoice
from hsparse.cli.exporter.relocation import DataArea, Relocation
from hsparse.cli.importer.file_data import FileData
from hsparse.errors import Unsupported
from hsparse.format.buffer import Buffer
from hsparse.format.filters.definition import Filter
from hsparse.format.filters.pipeline import apply_filters, undo_filters
from hsparse.format.hdf5.addressed import Addressed, AddressOf, Key
from hsparse.format.hdf5.chunk_indexes.chunk_records import dense_records
from hsparse.format.hdf5.chunk_indexes.index_layout import IndexKind, IndexLayout
from hsparse.format.hdf5.chunk_indexes.index_registry import plan_chunk_index
from hsparse.format.hdf5.messages.file_type import has_addresses
from hsparse.format.hdf5.messages.layout_message import BTREE_1, ChunkedLayout, ContiguousLayout, LayoutIndex
from hsparse.format.hdf5.plan.file_plan import FilePiece
from hsparse.format.hdf5.plan.planned_chunks import Uint64Column
from hsparse.format.hdf5.plan.planned_object import plan_layout
from hsparse.format.hdf5.plan.planned_structures import PlannedMessage
from hsparse.format.plan.grid import Grid
from hsparse.model.dataspace import max_dims_of

RUN = 4 * 1024 * 1024
"""Bytes that one request asks for, if a chunk has no more."""
NEW_CHUNK = 1024 * 1024
"""Bytes of a chunk where there were none."""
SMALL = 64 * 1024
"""Bytes up to which data that is in one piece stays so."""


class Task(NamedTuple):
    """Work that takes `memory` bytes and brings `done` bytes of the file that is read into the other one."""

    memory: int
    done: int
    run: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Target:
    """Where data is written to: `places` has addresses that come up meanwhile."""

    area: DataArea
    relocation: Relocation
    address_of: AddressOf
    places: dict[Key, int]


class RefilteredDataset(ABC):
    """What the header says of data (`layout`, `pipeline`, `messages`), the index that it needs, and its transport."""

    pipeline: tuple[Filter, ...] = ()
    messages: tuple[PlannedMessage, ...] = ()
    pieces: tuple[FilePiece, ...] = ()

    @property
    @abstractmethod
    def layout(self) -> Addressed:
        """The layout message: of the same length before the data is written and then."""

    @abstractmethod
    def tasks(self, target: Target) -> Iterator[Task]:
        """Yield all work, in the order of the file that is read."""


def refiltered(key: Key, data: FileData, choice: FilterChoice) -> RefilteredDataset:
    """Return how a dataset is written: its chunks with the filters of `choice`.

    Data in one piece becomes chunks where that is worth it: more than `SMALL` bytes, of elements without addresses.
    """
    dataset = data.dataset
    if isinstance(dataset.layout, ChunkedLayout):
        return StoredChunks(key, data, choice)
    if not isinstance(dataset.layout, ContiguousLayout):
        raise Unsupported(
            f"A layout of {type(dataset.layout).__name__} cannot be written with other filters."
        )
    large = prod(data.dims) * data.size > SMALL
    if not choice.is_none and large and data.is_allocated and not has_addresses(dataset.type):
        return NewChunks(key, data, choice)
    return OnePiece(key, data)


class OnePiece(RefilteredDataset):
    """Data in one piece, which has no filters."""

    def __init__(self, key: Key, data: FileData) -> None:
        self._data = data
        self._place: Key = (key, "data")
        self._size = prod(data.dims) * data.size

    @property
    def layout(self) -> Addressed:
        place = self._place if self._data.is_allocated and self._size else None
        return plan_layout(ContiguousLayout(None, self._size), place)

    def tasks(self, target: Target) -> Iterator[Task]:
        layout = self._data.dataset.layout
        assert isinstance(layout, ContiguousLayout)
        if not self._data.is_allocated or not self._size or layout.address is None:
            return
        target.places[self._place] = address = target.area.allocate(self._size)
        if has_addresses(self._data.dataset.type):
            yield Task(
                4 * self._size, self._size, partial(self._copy, target, layout.address, address, self._size)
            )
            return
        for at in range(0, self._size, RUN):
            size = min(RUN, self._size - at)
            yield Task(size, size, partial(self._copy, target, layout.address + at, address + at, size))

    def _copy(self, target: Target, source: int, address: int, size: int) -> None:
        raw = self._data.objects.source.read(source, size)
        stored, dims = self._data.dataset.type, self._data.dims
        target.area.write(
            address, target.relocation.written(stored, raw, dims, target.area, target.address_of)
        )


class _Chunks(RefilteredDataset):
    """Chunks of dimensions `dims` at `scaled: (n, rank)`, which get addresses, sizes and masks as they are written."""

    def __init__(
        self, key: Key, data: FileData, dims: tuple[int, ...], scaled: Uint64Column, choice: FilterChoice
    ) -> None:
        self.data = data
        self.dims = dims
        self.nbytes = prod(dims) * data.size
        self.pipeline = choice.pipeline(data.size, self.nbytes)
        self._scaled = scaled
        self._address, self._size = np.zeros((2, len(scaled)), np.uint64)
        self._mask = np.zeros(len(scaled), np.uint32)
        limits = max_dims_of(data.dataset.shape)
        layout = IndexLayout(
            IndexKind.BTREE_V1, dims, limits, data.size, bool(self.pipeline), message_version=3
        )
        self._index = plan_chunk_index(layout, scaled)
        self._place: Key = (key, "index")
        if self._index.size:
            self.pieces = (FilePiece(self._place, self._index.size, self._make_index),)

    @property
    def layout(self) -> Addressed:
        place = self._place if self.pieces else None
        return plan_layout(ChunkedLayout(self.dims, self.data.size, LayoutIndex(BTREE_1, None)), place)

    def put(self, target: Target, row: int, raw: Buffer) -> None:
        """Write the chunk at `row`, whose elements are `raw` in the file that is read."""
        stored = self.data.dataset.type
        elements = target.relocation.written(stored, raw, self.dims, target.area, target.address_of)
        filtered, self._mask[row] = apply_filters(self.pipeline, elements)
        self._address[row] = target.area.append(filtered)
        self._size[row] = len(filtered)

    def _make_index(self, address_of: AddressOf) -> bytes:
        records = dense_records(self._scaled, self._address, self._size, self._mask)
        return self._index.encode(address_of(self._place), records)


class StoredChunks(_Chunks):
    """The chunks of a dataset that has some."""

    def __init__(self, key: Key, data: FileData, choice: FilterChoice) -> None:
        assert data.records is not None
        assert isinstance(data.dataset.layout, ChunkedLayout)
        super().__init__(key, data, data.dataset.layout.dims, data.records.scaled, choice)

    def tasks(self, target: Target) -> Iterator[Task]:
        assert self.data.records is not None
        starts = self.data.records.address.astype(np.int64)
        stops = starts + self.data.records.size.astype(np.int64)
        rows: list[int] = []
        for row in np.argsort(starts).tolist():
            if rows and int(stops[row]) - int(starts[rows[0]]) > RUN:
                yield self._task(target, rows, int(stops[rows[-1]]))
                rows = []
            rows.append(row)
        if rows:
            yield self._task(target, rows, int(stops[rows[-1]]))

    def _task(self, target: Target, rows: list[int], stop: int) -> Task:
        assert self.data.records is not None
        start, done = int(self.data.records.address[rows[0]]), int(self.data.records.size[rows].sum())
        return Task(stop - start + 3 * self.nbytes, done, partial(self._copy, target, rows, start, stop))

    def _copy(self, target: Target, rows: list[int], start: int, stop: int) -> None:
        records, pipeline = self.data.records, self.data.dataset.pipeline
        assert records is not None
        span = memoryview(self.data.objects.source.read(start, stop - start))
        for row in rows:
            begin = int(records.address[row]) - start
            stored = span[begin : begin + int(records.size[row])]
            self.put(target, row, undo_filters(pipeline, stored, int(records.mask[row]), self.nbytes))


class NewChunks(_Chunks):
    """Chunks of data that is in one piece: each is one range of it."""

    def __init__(self, key: Key, data: FileData, choice: FilterChoice) -> None:
        dims = chunk_dims(data.dims, data.size)
        self._grid = Grid(data.dims, dims)
        places = np.unravel_index(np.arange(self._grid.size), self._grid.counts)
        super().__init__(key, data, dims, np.stack(places, 1).astype(np.uint64), choice)

    def tasks(self, target: Target) -> Iterator[Task]:
        layout = self.data.dataset.layout
        assert isinstance(layout, ContiguousLayout)
        assert layout.address is not None
        for row, scaled in enumerate(self._scaled.tolist()):
            start, stop = self._grid.bounds(scaled)
            first = int(np.ravel_multi_index(start, self.data.dims)) * self.data.size
            size = prod(b - a for a, b in zip(start, stop, strict=True)) * self.data.size
            yield Task(3 * self.nbytes, size, partial(self._copy, target, row, layout.address + first, size))

    def _copy(self, target: Target, row: int, address: int, size: int) -> None:
        raw = self.data.objects.source.read(address, size)
        self.put(target, row, raw + bytes(self.nbytes - size))


def chunk_dims(dims: tuple[int, ...], size: int) -> tuple[int, ...]:
    """Return dimensions of chunks of about `NEW_CHUNK` bytes, of elements of `size`: each is one run of elements."""
    left, found = max(1, NEW_CHUNK // size), []
    for length in reversed(dims):
        found.append(min(length, left))
        left = left // length if found[-1] == length else 1
        left = max(1, left)
    return tuple(reversed(found))
