"""Sparse datasets of a file: structured chunks are sent as stored, or by value if the server's form differs.

Sparse datasets of a file of the layout stock: ordinary chunks, and beside them which elements are defined.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property, partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Corrupt, Unsupported
from hsparse.format.buffer import byte_view
from hsparse.format.chunk_spec import chunk_spec
from hsparse.format.filters.filters_json import creation_property
from hsparse.format.filters.pipeline import decode_alike
from hsparse.format.kinds.sparse import open_sparse
from hsparse.format.kinds.vlen_chunk import NAMES
from hsparse.format.plan.grid import Grid
from hsparse.format.selections.encoded_selection import decode_offsets
from hsparse.format.selections.points import Points
from hsparse.format.structured.container import (
    METADATA_FIXED,
    METADATA_VL,
    Section,
    StoredChunk,
    build,
    open_chunk,
)
from hsparse.format.structured.vlen_sections import decode_elements, revision_of_heap
from hsparse.hdf5.format.chunk_indexes.index_registry import read_chunk_index
from hsparse.hdf5.format.messages.file_type import has_references, is_packed
from hsparse.hdf5.format.messages.layout_message import (
    ChunkedLayout,
    RawStructuredLayout,
    StructuredLayout,
    decode_structured_layout,
)
from hsparse.hdf5.format.messages.object_messages import (
    Pipelines,
    decode_section_pipelines,
    is_section_pipelines,
)
from hsparse.hdf5.format.parse.parsed_elements import parse_elements
from hsparse.hdf5.format.parse.parsed_object import ParsedObject, parse_object
from hsparse.hdf5.importer.dense_upload import ValueUpload, points_in_chunk
from hsparse.hdf5.importer.file_data import Dims, FileData, is_raw
from hsparse.hdf5.importer.file_objects import FileObjects
from hsparse.hdf5.importer.object_body import common_body, dataset_body, fill_body, type_body
from hsparse.hdf5.importer.source import path_in_errors
from hsparse.model.dataspace import dims_of, max_dims_of
from hsparse.model.element import Fixed, element_of
from hsparse.model.json_values import Values
from hsparse.model.vlen_array import VlenArray

Json = dict[str, Any]
FLAGS = {2: ["H5D_SPARSE_DATA"], 3: ["H5D_SPARSE_DATA", "H5D_VL_DATA"]}
"""The names of sections, by their number."""


class StructuredData:
    """A dataset of structured chunks in a file: layout, filters and chunk index."""

    def __init__(self, objects: FileObjects, stored: ParsedObject) -> None:
        """Read layout, filters and index; raise `Corrupt` and `Unsupported`."""
        assert stored.dataset is not None
        assert isinstance(stored.dataset.layout, RawStructuredLayout)
        self.objects = objects
        self.stored = stored
        self.dataset = stored.dataset
        self.dims: Dims = dims_of(stored.dataset.shape) or ()
        filters = [
            message.data
            for message in stored.header.messages
            if is_section_pipelines(message.kind, message.data)
        ]
        self.layout: StructuredLayout = decode_structured_layout(
            stored.dataset.layout.message, max_dims_of(stored.dataset.shape), filtered=bool(filters)
        )
        index = self.layout.index
        self.pipelines: Pipelines = ((),) * index.sections
        if filters:
            self.pipelines = decode_section_pipelines(filters[0], index.sections)
        file = objects.file
        self.records = objects.source.run(
            read_chunk_index(index, self.dims, file.size - file.base, file.base)
        )

    def body(self, path: str) -> Json:
        """Return the body that creates the dataset."""
        index = self.layout.index
        body = common_body(self.objects, self.stored, path)
        body |= {
            "type": type_body(self.objects, self.dataset.type, self.dataset.committed),
            "shape": self.dataset.shape,
        }
        filters: list[Any] = [
            creation_property(one, number)
            for number, pipeline in enumerate(self.pipelines)
            for one in pipeline
        ]
        layout = {"class": "H5D_STRUCT_CHUNK", "dims": list(index.chunk), "flags": FLAGS[index.sections]}
        body["creationProperties"] |= {"layout": layout, "filters": filters or ["none"]}
        body["creationProperties"] |= fill_body(self.objects, self.dataset)
        return body

    def chunk(self, row: int) -> tuple[bytes, tuple[Section, ...], Pipelines]:
        """Return a chunk's bytes, its sections and their pipelines."""
        address, size = int(self.records.address[row]), int(self.records.size[row])
        data = self.objects.source.read(*self.objects.file.check(address, size, "chunk"))
        grid = Grid(self.dims, self.layout.index.chunk)
        plain = not self.layout.filtered_edges and grid.is_edge(self.records.scaled[row].tolist())
        return data, self.records.sections(row), ((),) * len(self.pipelines) if plain else self.pipelines


class StructuredUpload(ValueUpload[StructuredData]):
    """The chunks of one dataset."""

    @property
    def _grid(self) -> Grid:
        return Grid(self._data.dims, self._data.layout.index.chunk)

    @cached_property
    def _pipelines(self) -> Pipelines:
        return chunk_spec(self._record).filters

    def submit(self, stored: Collection[Dims]) -> None:
        """Submit all chunks except those that are `stored`."""
        records = self._data.records
        unfiltered = records.unfiltered.sum(1).tolist()
        for row, scaled in enumerate(map(tuple, records.scaled.tolist())):
            if scaled in stored:
                self._advance(int(records.size[row]), before=True)
            else:
                self._uploads.submit(3 * unfiltered[row], partial(self._send, row, scaled))

    def _send(self, row: int, scaled: Dims) -> None:
        with path_in_errors(self._path):
            data, sections, pipelines = self._data.chunk(row)
            if is_raw(self._data.dataset.type) and self._takes_chunks:
                self._send_sections(scaled, data, sections, pipelines)
            elif isinstance(element_of(self._data.dataset.type.item), Fixed):
                self._send_values(scaled, data, sections, pipelines)
            else:
                self._send_vlen(scaled, data, sections, pipelines)
        self._advance(len(data))

    def _send_sections(
        self, scaled: Dims, data: bytes, sections: tuple[Section, ...], pipelines: Pipelines
    ) -> None:
        if not all(map(decode_alike, pipelines, self._pipelines)):
            contents = open_chunk(data, sections, METADATA_FIXED, pipelines)
            rebuilt: StoredChunk = build(contents, METADATA_FIXED, self._pipelines)
            data, sections = rebuilt.data, rebuilt.sections
        self._put_chunk(scaled, data, sections)

    def _send_values(
        self, scaled: Dims, data: bytes, sections: tuple[Section, ...], pipelines: Pipelines
    ) -> None:
        """Send elements whose bytes differ between hsparse and the file: types with gaps or references."""
        objects, stored, index = self._data.objects, self._data.dataset.type, self._data.layout.index
        chunk = open_sparse(data, sections, index.chunk, np.dtype(f"V{stored.size}"), pipelines)
        raw = byte_view(np.ascontiguousarray(chunk.values))
        values = objects.source.run(
            parse_elements(objects.file, stored, bytes(raw), (len(chunk.offsets),), objects.find)
        )
        assert not isinstance(values, VlenArray)
        self._put_elements(points_in_chunk(self._grid, scaled, chunk.offsets), values)

    def _send_vlen(
        self, scaled: Dims, data: bytes, sections: tuple[Section, ...], pipelines: Pipelines
    ) -> None:
        """Send variable-length elements, which are references to a heap in the chunk."""
        stored = self._data.dataset.type
        element = element_of(stored.item)
        if element.file_size != stored.size or not is_packed(stored) or has_references(stored):
            raise Unsupported(
                "Sparse elements of variable length with gaps or references cannot be imported: write them without."
            )
        selection, fixed, heap = open_chunk(data, sections, METADATA_VL, pipelines)
        revision = revision_of_heap(heap, self._data.layout.index.revision)
        values = decode_elements(fixed, heap, element, NAMES, revision)
        offsets, order = decode_offsets(selection, self._data.layout.index.chunk, values.size)
        values = values if order is None else values[order]
        self._put_elements(points_in_chunk(self._grid, scaled, offsets), values)


class DefinedData:
    """A dataset of a file, and its defined set, whose header is at the address `beside`."""

    def __init__(self, objects: FileObjects, stored: ParsedObject, beside: int) -> None:
        assert stored.dataset is not None
        other = objects.source.run(parse_object(objects.file, beside)).dataset
        if other is None:
            raise Corrupt("The defined set is no dataset.")
        self._objects = objects
        self._stored = stored
        self.values = FileData(objects, stored.dataset)
        self.defined = FileData(objects, other)
        self.records = self.values.records
        assert isinstance(stored.dataset.layout, ChunkedLayout)
        self.grid = Grid(self.values.dims, stored.dataset.layout.dims)
        self.element = element_of(stored.dataset.type.item)
        self._fill = self._fill_bytes()

    def body(self, path: str) -> Json:
        """Return the body that creates the sparse dataset; its filters are those that the server chooses."""
        body = dataset_body(self._objects, self._stored, path)
        properties = body["creationProperties"]
        properties.pop("filters", None)
        flags = FLAGS[2 if isinstance(self.element, Fixed) else 3]
        properties["layout"] = {
            "class": "H5D_STRUCT_CHUNK",
            "dims": list(self.grid.chunk),
            "flags": flags,
        }
        return body

    def chunks(self) -> list[tuple[Dims, int]]:
        """Return the scaled coordinates of chunks in which elements may be defined, and their bytes in the file."""
        found: dict[Dims, int] = {}
        for data in (self.values, self.defined):
            assert data.records is not None
            for scaled, size in zip(data.records.scaled.tolist(), data.records.size.tolist(), strict=True):
                found[tuple(scaled)] = found.get(tuple(scaled), 0) + size
        return sorted(found.items())

    def read(self, scaled: Dims) -> tuple[NDArray[np.uint64], Values]:
        """Return the coordinates, (n, rank), and values, (n,), of a chunk's defined elements.

        What has another value than the fill value is defined too: a program that knows no defined sets wrote it.
        """
        start, stop = self.grid.bounds(scaled)
        count = prod(map(int.__sub__, stop, start))
        mask = np.asarray(self.defined.read(start, stop)).reshape(count) != 0
        values = _in_row(self.values.read(start, stop), count)
        places = np.flatnonzero(mask | ~_is_fill(values, self._fill))
        inside = np.unravel_index(places, tuple(map(int.__sub__, stop, start)))
        coords = np.stack(inside, axis=1).astype(np.uint64) + np.array(start, np.uint64)
        return coords, values[places]

    def _fill_bytes(self) -> bytes:
        dataset = self.values.dataset
        data = dataset.fill.value or bytes(dataset.type.size)
        found = self._objects.source.run(
            parse_elements(self._objects.file, dataset.type, data, (), self._objects.find)
        )
        return found.heap.tobytes() if isinstance(found, VlenArray) else found.tobytes()


class DefinedUpload(ValueUpload[DefinedData]):
    """The defined elements of one dataset, chunk by chunk."""

    def submit(self, stored: Collection[Dims]) -> None:
        """Submit all chunks, those that are `stored` too: a request may have written a part."""
        nbytes = self._data.values.size * prod(self._data.grid.chunk)
        for scaled, size in self._data.chunks():
            self._uploads.submit(4 * nbytes, partial(self._send_chunk, scaled, size))

    def _send_chunk(self, scaled: Dims, size: int) -> None:
        with path_in_errors(self._path):
            coords, values = self._data.read(scaled)
            self._put_elements(Points(self._data.values.dims, coords), values)
        self._advance(size, len(coords))


def _in_row(values: Values, count: int) -> Values:
    """Return elements in one dimension, those of a fixed size as opaque ones: numpy makes dimensions of arrays."""
    if isinstance(values, VlenArray):
        return values.reshape((count,))
    raw = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    return raw.view(f"V{max(1, len(raw) // max(1, count))}")


def _is_fill(values: Values, fill: bytes) -> NDArray[np.bool_]:
    """Return which elements, (n,), have the bytes of the fill value."""
    wanted = np.frombuffer(fill, np.uint8)
    if not isinstance(values, VlenArray):
        raw = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1)
        return np.asarray((raw == wanted).all(1))
    same = values.sizes == len(fill)
    begins = values.offsets[:-1][same].astype(np.int64)
    same[same] = (values.heap[begins[:, None] + np.arange(len(fill))] == wanted).all(1)
    return np.asarray(same)
