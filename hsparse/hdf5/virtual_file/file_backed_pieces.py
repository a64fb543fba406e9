"""Plan and read the data of file-backed datasets for a domain's file: chunks or contiguous bytes of backing files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Conflict, Corrupt, NotFound, Unsupported
from hsparse.format.buffer import byte_view
from hsparse.format.file_backed import mask_of, max_piece_size
from hsparse.format.filters.pipeline import undo_filters
from hsparse.format.piece_decoding import pipeline_of
from hsparse.hdf5.format.chunk_indexes.chunk_records import sort_rows
from hsparse.hdf5.format.plan.planned_chunks import FileBackedPlaces, PlannedChunks
from hsparse.hdf5.in_place.file_backed.elements import FileBackedElements, backing_file
from hsparse.hdf5.virtual_dataset.copied_chunks import AsksOwners
from hsparse.model.dataspace import max_dims_of
from hsparse.model.file_backed import CONTIGUOUS_REF, BackingFile, file_backed_layout
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.records.dataset import StoredDataset
from hsparse.sn.values.chunk_fanout import table_reader
from hsparse.wire.chunk_info_message import InspectFile, ReadPiece

RUN_BYTES = 4 * 1024 * 1024
"""The size in bytes of the parts in which contiguous data is read."""
OFFSET, SIZE, MASK = range(3)
Record = dict[str, Any]


async def file_backed_chunks(owners: Owners, record: Record, take: Callable[[int], None]) -> PlannedChunks:
    """Return the chunks of a file-backed dataset in its backing file; `take` gets their number, and may raise.

    Raises `Unsupported` if a planned file cannot have the data, `Conflict` if the backing file has changed.
    """
    layout, dataset = file_backed_layout(record) or {}, StoredDataset.of(record)
    if "file_uri" not in layout or backing_file(dataset).unseen:
        raise Unsupported(
            f"The data of {dataset.id} is in files that a chunk table names, or in a file that did not exist when the "
            "dataset was linked to it. Readers need rights to such files: copy the data, or read its values."
        )
    elements = FileBackedElements(owners, dataset, table_reader(owners))
    file = await _current(owners, dataset)
    coords = await elements.pieces()
    entries, _ = await elements.places(coords)
    there = entries[:, SIZE] > 0
    coords, entries = coords[there], entries[there]
    if layout["class"] == CONTIGUOUS_REF:
        return _run(dataset, file, entries, take)
    take(len(coords))
    order = sort_rows(coords.astype(np.uint64))
    coords, entries = coords[order], entries[order]
    spec = replace(dataset.spec, dims=elements.piece_dims)
    longest = max_piece_size(spec.dims, spec.dtype.itemsize, spec.filters[0])
    if len(entries) and int(entries[:, SIZE].max()) > longest:
        raise Conflict(
            f"A chunk of {dataset.id} has {int(entries[:, SIZE].max())} bytes in its file, but can have at most "
            f"{longest} with the dataset's dims and filters: correct the layout."
        )
    offset, mask = entries[:, OFFSET].astype(np.uint64), entries[:, MASK].astype(np.uint32)
    places = FileBackedPlaces(file, spec, offset, mask)
    return PlannedChunks.file_backed(places, coords.astype(np.uint64), entries[:, SIZE].astype(np.uint64))


async def _current(owners: Owners, dataset: StoredDataset) -> BackingFile:
    """Return the backing file with its current etag.

    Raises `Conflict` if the file is missing, or was changed after datasets were linked to it.
    """
    known = backing_file(dataset)
    try:
        found = await owners.ask_any(InspectFile(known.uri))
    except NotFound as error:
        raise Conflict(
            f"The data of {dataset.id} is in the file {known.uri!r}, which no longer exists."
        ) from error
    if known.etag not in ("", found.etag) and known.head != found.head:
        raise Conflict(
            f"The file {known.uri!r} was changed after datasets were linked to it; link to it again, or restore it."
        )
    return found


def _run(
    dataset: StoredDataset, file: BackingFile, entries: NDArray[np.int64], take: Callable[[int], None]
) -> PlannedChunks:
    """Divide contiguous data into parts of `RUN_BYTES` bytes; raises `Unsupported` if no file layout can have it."""
    extent, nbytes = dataset.extent, prod(dataset.extent) * dataset.dtype.itemsize
    size = int(entries[:, SIZE].sum())
    if size not in (0, nbytes) or max_dims_of(dataset.record["shape"]) != extent:
        raise Unsupported(
            f"{dataset.id} is linked to {size} contiguous bytes, but has {nbytes} bytes or may grow, for which no file "
            "layout exists: ask for its values."
        )
    take(-(-size // RUN_BYTES))
    starts = np.arange(0, size, RUN_BYTES, dtype=np.uint64)
    sizes = np.minimum(starts + np.uint64(RUN_BYTES), np.uint64(size)) - starts
    first = np.uint64(entries[0, OFFSET]) if len(entries) else np.uint64(0)
    spec = replace(dataset.spec, dims=extent)
    places = FileBackedPlaces(file, spec, starts + first, np.zeros(len(starts), np.uint32), contiguous=True)
    return PlannedChunks.file_backed(places, np.zeros((len(starts), len(extent)), np.uint64), sizes)


def detected_filters(chunks: PlannedChunks, data: memoryview) -> PlannedChunks:
    """Return `chunks` (at least one) with their actual filters, which may be more than the dataset declares.

    The filters are detected in `data`, the bytes of the first chunk, and skipped filters by the sizes of the chunks.
    Raises `Unsupported` if no filters fit.
    """
    places = chunks.backing
    assert places is not None
    spec = places.spec
    size = prod(spec.dims) * spec.dtype.itemsize
    declared = spec.filters[0]
    try:
        pipeline = pipeline_of(data, size, declared, int(places.mask[0]))
    except Corrupt as error:
        raise Unsupported(
            f"The data of {spec.dataset} in {places.file.uri!r} has other filters than it was linked with: "
            f"{error.message}"
        ) from error
    masks = [
        mask_of(pipeline, declared, mask, nbytes, size)
        for mask, nbytes in zip(places.mask.tolist(), chunks.size.tolist(), strict=True)
    ]
    judged = replace(places, spec=replace(spec, filters=(pipeline,)), mask=np.array(masks, np.uint32))
    return replace(chunks, backing=judged)


async def read_piece(owners: AsksOwners, chunks: PlannedChunks, row: int) -> memoryview:
    """Return the bytes of a chunk in the backing file; raises `Moved` if the file has changed since the plan."""
    places = chunks.backing
    assert places is not None
    message = ReadPiece(places.file, int(places.offset[row]), int(chunks.size[row]), exact=True)
    return byte_view(await owners.ask_owner(places.file.uri, message))


def check_piece(chunks: PlannedChunks, row: int, data: memoryview) -> None:
    """Raise `Conflict` if a chunk's bytes do not decode to its number of elements; contiguous data is not checked."""
    places = chunks.backing
    assert places is not None
    spec = places.spec
    if places.contiguous:
        return
    try:
        undo_filters(spec.filters[0], data, int(places.mask[row]), prod(spec.dims) * spec.dtype.itemsize)
    except Corrupt as error:
        raise Conflict(
            f"The {len(data)} bytes at {int(places.offset[row])} of the file {places.file.uri!r} are not a chunk of "
            f"{spec.dataset}: {error.message}"
        ) from error
