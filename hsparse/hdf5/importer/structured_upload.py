"""Upload structured chunks of a file: as stored, or by value if the server encodes their elements differently."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property, partial
from typing import Any

import numpy as np

from hsparse.errors import Unsupported
from hsparse.format.buffer import byte_view
from hsparse.format.chunk_spec import chunk_spec
from hsparse.format.filters.filters_json import creation_property
from hsparse.format.filters.pipeline import decode_alike
from hsparse.format.kinds.sparse import open_sparse
from hsparse.format.kinds.vlen_chunk import NAMES
from hsparse.format.plan.grid import Grid
from hsparse.format.selections.encoded_selection import decode_offsets
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
from hsparse.hdf5.format.messages.filter_pipeline_message import (
    Pipelines,
    decode_section_pipelines,
    is_section_pipelines,
)
from hsparse.hdf5.format.messages.layout_message import RawStructuredLayout
from hsparse.hdf5.format.messages.structured_layout import StructuredLayout, decode_structured_layout
from hsparse.hdf5.format.parse.parsed_elements import parse_elements
from hsparse.hdf5.format.parse.parsed_object import ParsedObject
from hsparse.hdf5.importer.dense_upload import ValueUpload, points_in_chunk
from hsparse.hdf5.importer.file_data import Dims, is_raw
from hsparse.hdf5.importer.file_objects import FileObjects
from hsparse.hdf5.importer.object_body import common_body, fill_body, type_body
from hsparse.hdf5.importer.source import path_in_errors
from hsparse.model.dataspace import dims_of, max_dims_of
from hsparse.model.element import Fixed, element_of
from hsparse.model.vlen_array import VlenArray

Json = dict[str, Any]
FLAGS = {2: ["H5D_SPARSE_DATA"], 3: ["H5D_SPARSE_DATA", "H5D_VL_DATA"]}
"""Maps the number of sections of structured chunks to the layout flags of the dataset."""


class StructuredData:
    """A dataset of structured chunks in a file, with its layout, filter pipelines and chunk index."""

    def __init__(self, objects: FileObjects, stored: ParsedObject) -> None:
        """Read the layout, filters and chunk index; raises `Corrupt` and `Unsupported`."""
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
        """Return the request body that creates the dataset."""
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
        """Return a triple for the chunk at `row` of `records`: its bytes, its sections, and the sections' pipelines."""
        address, size = int(self.records.address[row]), int(self.records.size[row])
        data = self.objects.source.read(*self.objects.file.check(address, size, "chunk"))
        grid = Grid(self.dims, self.layout.index.chunk)
        plain = not self.layout.filtered_edges and grid.is_edge(self.records.scaled[row].tolist())
        return data, self.records.sections(row), ((),) * len(self.pipelines) if plain else self.pipelines


class StructuredUpload(ValueUpload[StructuredData]):
    """Uploads the structured chunks of one dataset."""

    @property
    def _grid(self) -> Grid:
        return Grid(self._data.dims, self._data.layout.index.chunk)

    @cached_property
    def _pipelines(self) -> Pipelines:
        return chunk_spec(self._record).filters

    def submit(self, stored: Collection[Dims]) -> None:
        """Submit all chunks, except chunks in `stored`, which the server has already."""
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
        """Send elements by value, because gaps or references make their bytes in the file and in hsparse differ."""
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
        """Send vlen elements by value; in the chunk, the elements are references to the chunk's heap section."""
        stored = self._data.dataset.type
        element = element_of(stored.item)
        if element.file_size != stored.size or not is_packed(stored) or has_references(stored):
            raise Unsupported(
                "Sparse elements of variable length with gaps or references cannot be imported: use a packed type."
            )
        selection, fixed, heap = open_chunk(data, sections, METADATA_VL, pipelines)
        revision = revision_of_heap(heap, self._data.layout.index.revision)
        values = decode_elements(fixed, heap, element, NAMES, revision)
        offsets, order = decode_offsets(selection, self._data.layout.index.chunk, values.size)
        values = values if order is None else values[order]
        self._put_elements(points_in_chunk(self._grid, scaled, offsets), values)
