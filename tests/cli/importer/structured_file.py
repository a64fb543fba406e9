"""Files of structured chunks in any revision of the format, written from the parts that this package has."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hsparse.format.dataspace_message import FormatRevision
from hsparse.format.filters.definition import Filter
from hsparse.format.plan.grid import Grid
from hsparse.format.selections.selection_encoding import encode_offsets
from hsparse.format.structured.container import METADATA_FIXED, StoredChunk, build
from hsparse.hdf5.format.chunk_indexes.index_layout import IndexKind, IndexLayout
from hsparse.hdf5.format.chunk_indexes.index_registry import index_info, plan_chunk_index
from hsparse.hdf5.format.file_fields import Addressed
from hsparse.hdf5.format.messages.file_type import FileType
from hsparse.hdf5.format.messages.filter_pipeline_message import MESSAGES, encode_section_pipelines
from hsparse.hdf5.format.messages.structured_layout import StructuredLayout, encode_structured_layout
from hsparse.hdf5.format.plan.planned_object import (
    PlannedDataset,
    PlannedGroup,
    PlannedLink,
    PlannedTarget,
    plan_file,
)
from hsparse.hdf5.format.plan.planned_structures import PlannedMessage
from tests.format.hdf5.index_files import structured_records

INDEX = 4096
"""Where the index begins, behind everything else."""


def structured_file(
    elements: dict[tuple[int, ...], bytes],
    extent: tuple[int, ...],
    chunk: tuple[int, ...],
    stored: FileType,
    revision: FormatRevision,
    kind: IndexKind,
    pipelines: tuple[tuple[Filter, ...], ...] = ((), ()),
) -> bytes:
    """Return a file with the sparse dataset `x`, of elements by their coordinates."""
    limits = {IndexKind.EXTENSIBLE_ARRAY: (None, *extent[1:]), IndexKind.BTREE_V2: (None,) * len(extent)}
    max_dims: tuple[int | None, ...] = limits.get(kind, extent)
    layout = IndexLayout(
        kind, chunk, max_dims, stored.size, any(pipelines), 2, revision, message_version=5, address=INDEX
    )
    scaled, chunks = _chunks(elements, Grid(extent, chunk), pipelines)
    plan = plan_chunk_index(layout, scaled)
    starts = np.cumsum([INDEX + plan.size, *(len(one.data) for one in chunks)])[:-1]
    records = structured_records(scaled, starts.astype(np.uint64), [one.sections for one in chunks])
    layout = replace(layout, info=index_info(layout, records))
    message = Addressed(encode_structured_layout(StructuredLayout(layout)))
    filters: list[PlannedMessage] = []
    if any(pipelines):
        filters = [
            PlannedMessage(MESSAGES[revision][0], Addressed(encode_section_pipelines(pipelines, revision)))
        ]
    shape = {"class": "H5S_SIMPLE", "dims": list(extent)}
    if max_dims != extent:
        shape["maxdims"] = ["H5S_UNLIMITED" if limit is None else limit for limit in max_dims]
    dataset = PlannedDataset("x", stored, shape, message, messages=filters)
    file = plan_file([PlannedGroup("root", [PlannedLink("x", PlannedTarget("x"))]), dataset], "root")
    assert file.size <= INDEX
    index = plan.encode(INDEX, records)
    return b"".join((file.read(0, file.size).ljust(INDEX, b"\0"), index, *(one.data for one in chunks)))


def _chunks(
    elements: dict[tuple[int, ...], bytes], grid: Grid, pipelines: tuple[tuple[Filter, ...], ...]
) -> tuple[np.ndarray, list[StoredChunk]]:
    by_chunk: dict[tuple[int, ...], dict[int, bytes]] = {}
    for place, value in elements.items():
        scaled = tuple(at // step for at, step in zip(place, grid.chunk, strict=True))
        inside = [at % step for at, step in zip(place, grid.chunk, strict=True)]
        by_chunk.setdefault(scaled, {})[int(np.ravel_multi_index(inside, grid.chunk))] = value
    chunks = []
    for scaled in sorted(by_chunk):
        offsets = sorted(by_chunk[scaled])
        values = b"".join(by_chunk[scaled][offset] for offset in offsets)
        selection = encode_offsets(np.array(offsets, np.uint32), grid.chunk)
        chunks.append(build((selection, values), METADATA_FIXED, pipelines))
    return np.array(sorted(by_chunk), np.uint64), chunks
