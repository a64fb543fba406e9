"""Plan a dataset of a file: its object header, its chunk index, and the region of the file that has its chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

import numpy as np

from hsparse.errors import Corrupt, TooLarge
from hsparse.format.chunk_spec import ChunkSpec, chunk_name, chunk_spec
from hsparse.format.plan.grid import Grid
from hsparse.hdf5.format.chunk_indexes.chunk_records import ChunkRecords, dense_records
from hsparse.hdf5.format.chunk_indexes.index_layout import IndexKind, IndexLayout, choose_index_kind
from hsparse.hdf5.format.chunk_indexes.index_plan import IndexPlan
from hsparse.hdf5.format.chunk_indexes.index_registry import index_info, plan_chunk_index
from hsparse.hdf5.format.file_fields import Addressed, AddressOf, Key
from hsparse.hdf5.format.messages.file_type import FileType, file_type, is_written_as_stored, without_gaps
from hsparse.hdf5.format.messages.filter_pipeline_message import MESSAGES, encode_section_pipelines
from hsparse.hdf5.format.messages.layout_message import BTREE_1, ChunkedLayout, ContiguousLayout, LayoutIndex
from hsparse.hdf5.format.messages.object_messages import (
    IF_SET,
    INCREMENTAL,
    NEVER,
    ON_ALLOCATION,
    ZERO_FILL,
    FillValue,
)
from hsparse.hdf5.format.messages.structured_layout import StructuredLayout, plan_structured_layout
from hsparse.hdf5.format.parse.mapping_json import mapping_of
from hsparse.hdf5.format.plan.file_form import FileForm
from hsparse.hdf5.format.plan.file_plan import FilePiece
from hsparse.hdf5.format.plan.plan_elements import plan_elements
from hsparse.hdf5.format.plan.planned_chunks import ChunkForm, ChunkRegion, KeyOf, PlannedChunks
from hsparse.hdf5.format.plan.planned_mapping import plan_mapping
from hsparse.hdf5.format.plan.planned_object import PlannedAttribute, PlannedDataset, plan_layout
from hsparse.hdf5.format.plan.planned_structures import GlobalHeapPlan, PlannedMessage
from hsparse.hdf5.format.plan.transcoded_chunk import (
    PACKING,
    check_sections,
    file_filters,
    needs_transcoding,
    unwritten_size,
)
from hsparse.model.dataspace import dims_of, is_extensible, max_dims_of, shape_json
from hsparse.model.layout import CHUNKED, VIRTUAL, class_elsewhere, layout_json
from hsparse.model.vlen_array import VlenArray

MAX_INDEX = 64 * 1024 * 1024
"""The maximum size in bytes of a chunk index; it bounds memory, because an index is encoded in one piece."""
MAX_UNWRITTEN, MAX_UNWRITTEN_BYTES = 65_536, 2**30
"""The maximum number of unwritten chunks of a dataset in a file, and the maximum of their total size in bytes."""
BOOLEAN = {
    "class": "H5T_ENUM",
    "base": {"class": "H5T_INTEGER", "base": "H5T_STD_I8LE"},
    "members": [{"name": "FALSE", "value": 0}, {"name": "TRUE", "value": 1}],
}
"""The type that h5py uses for booleans."""
FILL_TIMES = {"H5D_FILL_TIME_ALLOC": ON_ALLOCATION, "H5D_FILL_TIME_NEVER": NEVER}
"""Maps values of the creation property `fillTime` to the fill time in a file; all other values mean `IF_SET`."""
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class DatasetPlan:
    """The object header, pieces and chunks of one dataset in a file.

    `planned` is the object header. `pieces` follow the headers of all objects. `region` is the layout of the chunks, in
    the last of the pieces; `region` is None if the dataset is virtual.
    """

    planned: PlannedDataset
    pieces: tuple[FilePiece, ...] = ()
    region: ChunkRegion | None = None


def chunk_form(spec: ChunkSpec, file: FileForm, *, foreign: bool = False) -> ChunkForm:
    """Return the form that a dataset's chunks have in a file; `foreign` is as in `PlannedChunks`."""
    if spec.sparse:
        if not file.is_structured:
            return ChunkForm.TRANSCODED
        return ChunkForm.TRANSCODED_SECTIONS if needs_transcoding(spec, file.revision) else ChunkForm.STORED
    transcoded = foreign or spec.structured or not is_written_as_stored(file_type(spec.datatype.item))
    transcoded = transcoded or (not spec.dims and bool(spec.filters[0]))
    return ChunkForm.TRANSCODED if transcoded else ChunkForm.STORED


def plan_dataset(
    record: Json,
    chunks: PlannedChunks,
    file: FileForm,
    attributes: Sequence[PlannedAttribute],
    heap: GlobalHeapPlan,
    key_of: KeyOf,
    committed: Key | None = None,
    *,
    ordered: bool = False,
) -> DatasetPlan:
    """Plan a dataset; the sizes in `chunks`, and the sections of structured chunks, must be as in the file.

    Raises `Unsupported` or `TooLarge` if a file cannot have a property of the dataset; the message names a remedy.
    """
    spec = chunk_spec(record) if chunks.backing is None else chunks.backing.spec
    item = spec.datatype.item
    if spec.sparse and file.is_structured:  # elements have no gaps in sections
        item, committed = without_gaps(item), committed if without_gaps(item) == item else None
    datatype = file_type(item)
    form = chunk_form(spec, file, foreign=chunks.foreign)
    form = form if chunks.backing is None else ChunkForm.FILE_BACKED
    form = form if chunks.packed is None else ChunkForm.PACKED
    if spec.sparse:
        chunks = chunks.take(chunks.defined > 0)
    fill, places = _fill(spec, datatype, heap, key_of)
    asked = (record.get("creationProperties") or {}).get("fillTime")
    fill = replace(fill, writing=FILL_TIMES.get(asked, IF_SET) if isinstance(asked, str) else IF_SET)
    key: Key = record["id"]
    planned = PlannedDataset(
        key,
        datatype,
        shape_json(record["shape"]),
        Addressed(b""),
        fill,
        attributes=attributes,
        committed=committed,
        ordered=ordered,
        fill_places=places,
    )
    if class_elsewhere(record) == VIRTUAL:
        mappings = [mapping_of(one) for one in record["creationProperties"]["layout"]["mappings"]]
        return DatasetPlan(replace(planned, layout=plan_mapping(mappings, heap)))
    region = ChunkRegion.of((key, "chunks"), spec, form, chunks, file.revision)
    if spec.sparse and file.is_structured:
        return _structured(planned, record, region)
    if form is ChunkForm.STORED and not spec.filters[0]:
        _check_sizes(spec, chunks, datatype)
    region = ChunkRegion.of(region.key, spec, form, _completed(record, spec, chunks, key_of))
    if _is_contiguous(record, spec, form) if chunks.backing is None else chunks.backing.contiguous:
        return _contiguous(planned, record, region)
    return plan_chunked(planned, region)


def _contiguous(planned: PlannedDataset, record: Json, region: ChunkRegion) -> DatasetPlan:
    size = prod(dims_of(record["shape"]) or ()) * planned.type.size
    message = plan_layout(ContiguousLayout(None, size), region.key if region.size else None)
    return DatasetPlan(replace(planned, layout=message), _data(region), region)


def plan_defined_set(values: PlannedDataset, record: Json, chunks: PlannedChunks) -> DatasetPlan:
    """Plan the boolean dataset that marks the defined elements of a sparse dataset."""
    spec = chunk_spec(record)
    key = (values.key, "defined")
    chunks = chunks.take(chunks.defined > 0)
    form, size = (
        (ChunkForm.DEFINED, prod(spec.dims))
        if chunks.packed is None
        else (ChunkForm.PACKED_DEFINED, chunks.packed[:, 1])
    )
    planned = PlannedDataset(key, file_type(BOOLEAN), values.shape, Addressed(b""))
    return plan_chunked(planned, ChunkRegion.of((key, "chunks"), spec, form, chunks.sized(size)))


def check_transcoded(spec: ChunkSpec, file: FileForm, most: int) -> None:
    """Raise `TooLarge` if the file would have transcoded chunks with more than `most` bytes of unfiltered elements."""
    nbytes = prod(spec.dims) * file_type(spec.datatype.item).size
    if chunk_form(spec, file) is ChunkForm.TRANSCODED and nbytes > most:
        raise TooLarge(
            f"A chunk of {spec.dataset} has {nbytes} bytes with all its elements; the limit is {most} "
            "(max_request_size): ask for layout=structured, or make chunks smaller."
        )


def _completed(record: Json, spec: ChunkSpec, chunks: PlannedChunks, key_of: KeyOf) -> PlannedChunks:
    """Add the unwritten chunks of a dataset if readers of the file cannot generate these chunks from the fill value.

    A dataset with an initializer has other values in each chunk. For vlen fill values, libhdf5 adds objects to a heap
    of the file, which is not possible if the file is open read-only. Raises `TooLarge` if a dataset with an initializer
    has too many unwritten chunks.
    """
    if not (spec.arange or (spec.datatype.is_vlen and spec.fill)):
        return chunks
    counts = Grid(dims_of(record["shape"]) or (), spec.dims).counts
    missing = prod(counts) - len(chunks)
    if not missing:
        return chunks
    size = unwritten_size(spec, key_of)
    if missing <= MAX_UNWRITTEN and missing * size <= MAX_UNWRITTEN_BYTES:
        return chunks.completed(counts, size)
    if spec.arange:
        raise TooLarge(
            f"{spec.dataset} has an initializer, and {missing} chunks of {size} bytes that were never written; "
            f"the limit for a file is {MAX_UNWRITTEN} such chunks and {MAX_UNWRITTEN_BYTES} bytes of them."
        )
    return chunks


def _check_sizes(spec: ChunkSpec, chunks: PlannedChunks, datatype: FileType) -> None:
    """Raise `Corrupt` if the size of a chunk without filters does not match its elements."""
    wrong = np.flatnonzero(chunks.size != prod(spec.dims) * datatype.size)
    if len(wrong):
        raise Corrupt(
            f"The chunk {chunk_name(chunks.scaled[wrong[0]].tolist())} of {spec.dataset} has {chunks.size[wrong[0]]} "
            f"bytes, not {prod(spec.dims) * datatype.size}."
        )


def _fill(
    spec: ChunkSpec, datatype: FileType, heap: GlobalHeapPlan, key_of: KeyOf
) -> tuple[FillValue, tuple[tuple[int, Key], ...]]:
    """Return a pair: the encoded fill value, and the (offset, key) of each address in it."""
    if not spec.fill:
        return ZERO_FILL, ()
    if spec.datatype.is_vlen:
        found = plan_elements(datatype, VlenArray.of([spec.fill]), heap, key_of)
    else:
        found = plan_elements(datatype, np.frombuffer(spec.fill, np.uint8), heap, key_of)
    return FillValue(found.data), found.places


def _is_contiguous(record: Json, spec: ChunkSpec, form: ChunkForm) -> bool:
    """Return whether a dataset is contiguous in the file: fixed in size, one unfiltered chunk, not created chunked."""
    dims = dims_of(record["shape"]) or ()
    if not dims:
        return True
    if spec.sparse or is_extensible(record["shape"]) or (spec.filters[0] and form is ChunkForm.STORED):
        return False
    return not prod(dims) or (spec.dims == dims and layout_json(record).get("class") != CHUNKED)


def plan_chunked(planned: PlannedDataset, region: ChunkRegion) -> DatasetPlan:
    """Plan a chunked dataset with a version 1 B-tree, which HDF5 1.8 reads.

    Raises `TooLarge` for chunks of 4 GiB or more.
    """
    spec, chunks = region.spec, region.chunks
    filtered = (ChunkForm.STORED, ChunkForm.FILE_BACKED, ChunkForm.COMPRESSED)
    pipeline = spec.filters[0] if region.form in filtered else ()
    if region.form in (ChunkForm.PACKED, ChunkForm.PACKED_DEFINED):
        pipeline = PACKING
    base = IndexLayout(
        IndexKind.BTREE_V1,
        spec.dims,
        max_dims_of(planned.shape),
        planned.type.size,
        bool(pipeline),
        message_version=3,
    )
    if max(base.chunk_bytes, int(chunks.size.max(initial=0)) if pipeline else 0) >= 2**32:
        raise TooLarge(f"A chunk of {spec.dataset} has more than 4 GiB, which no file can have.")
    size = chunks.size if pipeline else np.full(len(chunks), base.chunk_bytes, np.uint64)
    index = _planned_index(base, region)
    pieces = _data(region)
    key = None
    if index.size:
        key = (planned.key, "index")
        make = partial(_make_index, index, region, size, key)
        pieces = (FilePiece(key, index.size, make), *pieces)
    message = plan_layout(ChunkedLayout(spec.dims, planned.type.size, LayoutIndex(BTREE_1, None)), key)
    fill = replace(planned.fill, allocation=INCREMENTAL)
    return DatasetPlan(replace(planned, layout=message, pipeline=pipeline, fill=fill), pieces, region)


def _structured(planned: PlannedDataset, record: Json, region: ChunkRegion) -> DatasetPlan:
    """Plan a sparse dataset that has structured chunks in the file."""
    spec = region.spec
    check_sections(spec)
    pipelines = file_filters(spec)
    limits = max_dims_of(record["shape"])
    base = IndexLayout(
        choose_index_kind(dims_of(record["shape"]) or (), limits, spec.dims, message_version=5),
        spec.dims,
        limits,
        planned.type.size,
        any(pipelines),
        len(pipelines),
        region.revision,
        message_version=5,
    )
    index = _planned_index(base, region)
    pieces = _data(region)
    key: Key | None = None
    if base.kind is IndexKind.SINGLE:
        key = region.key if len(region.chunks) else None
        base = replace(
            base, info=index_info(base, _sections(region, np.zeros(len(region.chunks), np.uint64)))
        )
    else:
        base = replace(base, info=index_info(base))
        if index.size:
            key = (planned.key, "index")
            pieces = (FilePiece(key, index.size, partial(_make_structured, index, region, key)), *pieces)
    message = plan_structured_layout(StructuredLayout(base), key)
    filters: tuple[PlannedMessage, ...] = ()
    if any(pipelines):
        body = Addressed(encode_section_pipelines(pipelines, base.revision))
        filters = (PlannedMessage(MESSAGES[base.revision][0], body),)
    fill = replace(planned.fill, allocation=INCREMENTAL)
    return DatasetPlan(replace(planned, layout=message, messages=filters, fill=fill), pieces, region)


def _planned_index(layout: IndexLayout, region: ChunkRegion) -> IndexPlan:
    index = plan_chunk_index(layout, region.chunks.scaled)
    if index.size > MAX_INDEX:
        raise TooLarge(
            f"The chunk index of {region.spec.dataset} would have {index.size} bytes; the limit is {MAX_INDEX}: make "
            "chunks larger, or ask for layout=stock, whose index has only existing chunks."
        )
    return index


def _make_index(index: IndexPlan, region: ChunkRegion, size: Any, key: Key, address_of: AddressOf) -> bytes:
    addresses = region.starts[:-1] + np.uint64(address_of(region.key))
    # Unwritten chunks skip all filters.
    skipped = (1 << len(region.spec.filters[0])) - 1 if index.layout.filtered else 0
    backing = region.chunks.backing
    mask = np.where(region.chunks.stored, 0 if backing is None else backing.mask, skipped).astype(np.uint32)
    return index.encode(address_of(key), dense_records(region.chunks.scaled, addresses, size, mask))


def _make_structured(index: IndexPlan, region: ChunkRegion, key: Key, address_of: AddressOf) -> bytes:
    addresses = region.starts[:-1] + np.uint64(address_of(region.key))
    return index.encode(address_of(key), _sections(region, addresses))


def _sections(region: ChunkRegion, addresses: Any) -> ChunkRecords:
    """Return the chunk records of structured chunks at `addresses: (n,) uint64`."""
    chunks = region.chunks
    sizes, unfiltered, masks = (chunks.sections[:, :, column] for column in range(3))
    offsets = np.cumsum(sizes, axis=1, dtype=np.uint64)[:, :-1]
    none = np.zeros(len(chunks), np.uint32)
    return ChunkRecords(
        chunks.scaled, addresses, chunks.size, none, offsets, unfiltered, masks.astype(np.uint32)
    )


def _data(region: ChunkRegion) -> tuple[FilePiece, ...]:
    return (FilePiece(region.key, region.size),) if region.size else ()
