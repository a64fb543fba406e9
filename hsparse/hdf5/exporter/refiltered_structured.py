"""The structured chunks of a dataset, copied to another file with other filters of their sections."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from hsparse.format.buffer import Buffer
from hsparse.format.structured.container import METADATA_FIXED, METADATA_VL, build, open_chunk
from hsparse.hdf5.exporter.refiltered_dataset import FilterChoice, RefilteredDataset, Target, Task
from hsparse.hdf5.format.chunk_indexes.index_layout import IndexKind
from hsparse.hdf5.format.chunk_indexes.index_registry import index_info, plan_chunk_index
from hsparse.hdf5.format.file_fields import Addressed, AddressOf, Key
from hsparse.hdf5.format.messages.layout_message import StructuredLayout, plan_structured_layout
from hsparse.hdf5.format.messages.object_messages import MESSAGES, encode_section_pipelines
from hsparse.hdf5.format.plan.file_plan import FilePiece
from hsparse.hdf5.format.plan.planned_structures import PlannedMessage
from hsparse.hdf5.importer.structured_upload import StructuredData


class StructuredChunks(RefilteredDataset):
    """Sparse chunks; their sections keep their content, except addresses."""

    def __init__(self, key: Key, data: StructuredData, choice: FilterChoice) -> None:
        self._data = data
        index = data.layout.index
        self._pipelines = choice.pipelines(index.chunk, index.element_size, index.sections)
        self._metadata = METADATA_VL if index.sections == 3 else METADATA_FIXED
        # Addresses, sizes and masks are those of the source file until a chunk is written.
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
