"""Copy the data of a dataset, dense or structured, to another file with other filters.

`FilterChoice` represents the filters of an export's flags, such as `--filter shuffle --filter gzip=4`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from hsparse.errors import BadRequest, Unsupported
from hsparse.format.buffer import Buffer
from hsparse.format.filters.definition import Filter
from hsparse.format.filters.filters_json import parse_filters, record_size
from hsparse.format.filters.pipeline import BY_NAME, apply_filters, undo_filters
from hsparse.format.plan.grid import Grid
from hsparse.format.structured.container import METADATA_FIXED, METADATA_VL, build, open_chunk
from hsparse.hdf5.exporter.relocation import DataArea, Relocation
from hsparse.hdf5.format.chunk_indexes.chunk_records import dense_records
from hsparse.hdf5.format.chunk_indexes.index_layout import IndexKind, IndexLayout
from hsparse.hdf5.format.chunk_indexes.index_registry import index_info, plan_chunk_index
from hsparse.hdf5.format.file_fields import Addressed, AddressOf, Key
from hsparse.hdf5.format.messages.file_type import has_addresses
from hsparse.hdf5.format.messages.filter_pipeline_message import MESSAGES, Pipelines, encode_section_pipelines
from hsparse.hdf5.format.messages.layout_message import BTREE_1, ChunkedLayout, ContiguousLayout, LayoutIndex
from hsparse.hdf5.format.messages.structured_layout import StructuredLayout, plan_structured_layout
from hsparse.hdf5.format.plan.file_plan import FilePiece
from hsparse.hdf5.format.plan.planned_chunks import Uint64Column
from hsparse.hdf5.format.plan.planned_object import plan_layout
from hsparse.hdf5.format.plan.planned_structures import PlannedMessage
from hsparse.hdf5.importer.file_data import InputData
from hsparse.hdf5.importer.structured_upload import StructuredData
from hsparse.model.dataspace import max_dims_of

NONE = "none"


@dataclass(frozen=True, slots=True)
class FilterChoice:
    """Filters in the order of their application, as in `creationProperties.filters`; `("none",)` means no filters."""

    items: tuple[Any, ...]

    @classmethod
    def parse(cls, flags: Sequence[str]) -> FilterChoice:
        """Parse flags, each `NAME` or `NAME=LEVEL`, or several joined by `+`; raises `BadRequest` for invalid flags."""
        names = [name for flag in flags for name in flag.split("+")]
        if NONE in names:
            if len(names) > 1:
                raise BadRequest("--filter none cannot be combined with other filters.")
            return cls((NONE,))
        choice = cls(tuple(map(_item, names)))
        choice.pipeline(8, 1 << 20)  # raises errors before data is fetched
        return choice

    @property
    def is_none(self) -> bool:
        return self.items == (NONE,)

    def pipeline(self, element_size: int, chunk_bytes: int) -> tuple[Filter, ...]:
        """Return the filters of dense chunks of `chunk_bytes` bytes, with elements of `element_size` bytes."""
        (found,) = parse_filters(self.items, element_size, sparse=False, chunk_bytes=chunk_bytes)
        return found

    def pipelines(self, dims: tuple[int, ...], element_size: int, sections: int) -> Pipelines:
        """Return the filters of each section of sparse chunks with dimensions `dims` and 2 or 3 `sections`."""
        return parse_filters(
            self.items,
            element_size,
            sparse=True,
            chunk_bytes=prod(dims) * element_size,
            record_size=record_size(dims),
            heap=sections == 3,
        )


def _item(flag: str) -> Any:
    name, equals, level = flag.partition("=")
    if name not in BY_NAME:
        raise BadRequest(
            f"The filter {name!r} is unknown; use names such as gzip=4, shuffle, lzf, fletcher32 or none."
        )
    if not equals:
        return name
    if not level.isdecimal():
        raise BadRequest(f"The level of --filter {flag} is not a number; write it like gzip=4.")
    return {"name": name, "level": int(level)}


MAX_READ_BYTES = 4 * 1024 * 1024
"""The maximum number of bytes of one read; a larger chunk is read whole."""
NEW_CHUNK = 1024 * 1024
"""The approximate size in bytes of new chunks."""
MAX_CONTIGUOUS_BYTES = 64 * 1024
"""Contiguous data of at most this many bytes stays contiguous; larger data is divided into chunks."""


class Task(NamedTuple):
    """A unit of work: `run` needs `memory` bytes of memory and copies `done` bytes of the source file."""

    memory: int
    done: int
    run: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Target:
    """The destination of copied data; `places` maps the key of written data to its address, and is filled by tasks."""

    area: DataArea
    relocation: Relocation
    address_of: AddressOf
    places: dict[Key, int]


class RefilteredDataset(ABC):
    """The copy of a dataset with other filters: header messages, chunk index (`pieces`), and tasks that copy data."""

    pipeline: tuple[Filter, ...] = ()
    messages: tuple[PlannedMessage, ...] = ()
    pieces: tuple[FilePiece, ...] = ()

    @property
    @abstractmethod
    def layout(self) -> Addressed:
        """The encoded layout message, whose size is the same before and after the data is written."""

    @abstractmethod
    def tasks(self, target: Target) -> Iterator[Task]:
        """Yield the tasks that copy all data, in the order of the source file."""


def refiltered(key: Key, data: InputData, choice: FilterChoice) -> RefilteredDataset:
    """Return the planned copy of a chunked or contiguous dataset, with the filters of `choice` for its chunks.

    Contiguous data of more than `MAX_CONTIGUOUS_BYTES` bytes becomes chunked if its type has no references or vlens.
    """
    dataset = data.dataset
    if isinstance(dataset.layout, ChunkedLayout):
        return RefilteredChunks(key, data, choice)
    if not isinstance(dataset.layout, ContiguousLayout):
        raise Unsupported(
            f"Data with a {type(dataset.layout).__name__} cannot be written with other filters: omit --filter."
        )
    large = prod(data.dims) * data.size > MAX_CONTIGUOUS_BYTES
    if not choice.is_none and large and data.is_allocated and not has_addresses(dataset.type):
        return ChunksOfContiguous(key, data, choice)
    return OnePiece(key, data)


class OnePiece(RefilteredDataset):
    """The copy of a contiguous dataset that stays contiguous, without filters."""

    def __init__(self, key: Key, data: InputData) -> None:
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
        for at in range(0, self._size, MAX_READ_BYTES):
            size = min(MAX_READ_BYTES, self._size - at)
            yield Task(size, size, partial(self._copy, target, layout.address + at, address + at, size))

    def _copy(self, target: Target, source: int, address: int, size: int) -> None:
        raw = self._data.objects.source.read(self._data.objects.file.base + source, size)
        stored, dims = self._data.dataset.type, self._data.dims
        target.area.write(
            address, target.relocation.written(stored, raw, dims, target.area, target.address_of)
        )


class _Chunks(RefilteredDataset):
    """Copied chunks with dimensions `dims` at `scaled: (n, rank)`, indexed by a version 1 B-tree."""

    def __init__(
        self, key: Key, data: InputData, dims: tuple[int, ...], scaled: Uint64Column, choice: FilterChoice
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
        """Filter the chunk at `row` of `scaled`, and append it to the file; `raw` has the source's elements."""
        stored = self.data.dataset.type
        elements = target.relocation.written(stored, raw, self.dims, target.area, target.address_of)
        filtered, self._mask[row] = apply_filters(self.pipeline, elements)
        self._address[row] = target.area.append(filtered)
        self._size[row] = len(filtered)

    def _make_index(self, address_of: AddressOf) -> bytes:
        records = dense_records(self._scaled, self._address, self._size, self._mask)
        return self._index.encode(address_of(self._place), records)


class RefilteredChunks(_Chunks):
    """The copy of a chunked dataset: the same chunks with other filters."""

    def __init__(self, key: Key, data: InputData, choice: FilterChoice) -> None:
        assert data.records is not None
        assert isinstance(data.dataset.layout, ChunkedLayout)
        super().__init__(key, data, data.dataset.layout.dims, data.records.scaled, choice)

    def tasks(self, target: Target) -> Iterator[Task]:
        assert self.data.records is not None
        starts = self.data.records.address.astype(np.int64)
        stops = starts + self.data.records.size.astype(np.int64)
        rows: list[int] = []
        for row in np.argsort(starts).tolist():
            if rows and int(stops[row]) - int(starts[rows[0]]) > MAX_READ_BYTES:
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
        span = memoryview(self.data.objects.source.read(self.data.objects.file.base + start, stop - start))
        for row in rows:
            begin = int(records.address[row]) - start
            stored = span[begin : begin + int(records.size[row])]
            self.put(target, row, undo_filters(pipeline, stored, int(records.mask[row]), self.nbytes))


class ChunksOfContiguous(_Chunks):
    """The chunked copy of a contiguous dataset; each chunk is one contiguous range of the source."""

    def __init__(self, key: Key, data: InputData, choice: FilterChoice) -> None:
        dims = default_chunk_dims(data.dims, data.size)
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
        raw = self.data.objects.source.read(self.data.objects.file.base + address, size)
        self.put(target, row, raw + bytes(self.nbytes - size))


def default_chunk_dims(dims: tuple[int, ...], size: int) -> tuple[int, ...]:
    """Return dimensions of chunks of at most about `NEW_CHUNK` bytes; each is one range of row-major data."""
    left, found = max(1, NEW_CHUNK // size), []
    for length in reversed(dims):
        found.append(min(length, left))
        left = left // length if found[-1] == length else 1
        left = max(1, left)
    return tuple(reversed(found))


class RefilteredSections(RefilteredDataset):
    """The copy of a structured dataset with other filters; in the content, only addresses change."""

    def __init__(self, key: Key, data: StructuredData, choice: FilterChoice) -> None:
        self._data = data
        index = data.layout.index
        self._pipelines = choice.pipelines(index.chunk, index.element_size, index.sections)
        self._metadata = METADATA_VL if index.sections == 3 else METADATA_FIXED
        # Records have the source file's addresses, sizes and masks until their chunk is written.
        self._records = data.records.take(np.arange(len(data.records)))
        self._layout = replace(index, filtered=any(self._pipelines), address=None, info=b"")
        self._plan = plan_chunk_index(self._layout, self._records.scaled)
        self._place: Key = (key, "index")
        if self._plan.size:
            self.pieces = (FilePiece(self._place, self._plan.size, self._make_index),)
        if any(self._pipelines):
            body = Addressed(encode_section_pipelines(self._pipelines, index.revision))
            self.messages = (PlannedMessage(MESSAGES[index.revision][0], body),)

    @property
    def layout(self) -> Addressed:
        place = self._place if self.pieces or self._is_single else None
        records = self._records if self._is_single else None
        layout = replace(self._layout, info=index_info(self._layout, records))
        return plan_structured_layout(StructuredLayout(layout), place)

    @property
    def _is_single(self) -> bool:
        return self._layout.kind is IndexKind.SINGLE and len(self._records) > 0

    def tasks(self, target: Target) -> Iterator[Task]:
        unfiltered = self._data.records.unfiltered.sum(1).tolist()
        for row, size in enumerate(self._data.records.size.tolist()):
            yield Task(size + 3 * unfiltered[row], size, partial(self._copy, target, row))

    def _copy(self, target: Target, row: int) -> None:
        data, sections, pipelines = self._data.chunk(row)
        contents: list[Buffer] = list(open_chunk(data, sections, self._metadata, pipelines))
        stored = self._data.dataset.type
        if self._layout.sections == 2:
            shape = (len(contents[1]) // stored.size,)
            contents[1] = target.relocation.written(
                stored, contents[1], shape, target.area, target.address_of
            )
        made = build(contents, self._metadata, self._pipelines)
        records = self._records
        records.address[row] = address = target.area.append(made.data)
        records.size[row] = len(made.data)
        records.offsets[row] = [section.offset for section in made.sections[1:]]
        records.unfiltered[row] = [section.unfiltered for section in made.sections]
        records.masks[row] = [section.mask for section in made.sections]
        if self._is_single:
            target.places[self._place] = address

    def _make_index(self, address_of: AddressOf) -> bytes:
        return self._plan.encode(address_of(self._place), self._records)
