"""Chunk indexes of all kinds: read or plan a dataset's index, and encode its information for the layout message.

H5.format.html, VII "Chunk Indexing".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest, Corrupt
from hsparse.hdf5.format.chunk_indexes.chunk_btree_v1 import plan_chunk_btree_v1, read_chunk_btree_v1
from hsparse.hdf5.format.chunk_indexes.chunk_btree_v2 import INFO as BTREE2_INFO
from hsparse.hdf5.format.chunk_indexes.chunk_btree_v2 import plan_chunk_btree_v2, read_chunk_btree_v2
from hsparse.hdf5.format.chunk_indexes.chunk_records import ChunkRecords, is_ascending, no_records, sort_rows
from hsparse.hdf5.format.chunk_indexes.extensible_array import DEFAULT_SHAPE, read_extensible_array
from hsparse.hdf5.format.chunk_indexes.extensible_array_plan import plan_extensible_array
from hsparse.hdf5.format.chunk_indexes.fixed_array import INFO as FIXED_INFO
from hsparse.hdf5.format.chunk_indexes.fixed_array import (
    SingleChunkPlan,
    encode_single,
    implicit_records,
    plan_fixed_array,
    read_fixed_array,
    single_info_size,
    single_records,
)
from hsparse.hdf5.format.chunk_indexes.index_layout import IndexKind, IndexLayout
from hsparse.hdf5.format.chunk_indexes.index_plan import IndexPlan
from hsparse.hdf5.format.file_fields import Reads
from hsparse.hdf5.format.hdf5_file import FileBounds

IndexReader = Callable[[IndexLayout, int, FileBounds], Reads[ChunkRecords]]
IndexPlanner = Callable[[IndexLayout, NDArray[np.uint64]], IndexPlan]
READERS: dict[IndexKind, IndexReader] = {
    IndexKind.BTREE_V1: read_chunk_btree_v1,
    IndexKind.FIXED_ARRAY: read_fixed_array,
    IndexKind.EXTENSIBLE_ARRAY: read_extensible_array,
    IndexKind.BTREE_V2: read_chunk_btree_v2,
}
PLANNERS: dict[IndexKind, IndexPlanner] = {
    IndexKind.BTREE_V1: plan_chunk_btree_v1,
    IndexKind.FIXED_ARRAY: plan_fixed_array,
    IndexKind.EXTENSIBLE_ARRAY: plan_extensible_array,
    IndexKind.BTREE_V2: plan_chunk_btree_v2,
}
UNLIMITED = {IndexKind.IMPLICIT: 0, IndexKind.FIXED_ARRAY: 0, IndexKind.EXTENSIBLE_ARRAY: 1}
"""Maps each index kind that numbers chunks to the number of unlimited dimensions that it requires."""
INFO = {
    IndexKind.FIXED_ARRAY: FIXED_INFO,
    IndexKind.EXTENSIBLE_ARRAY: DEFAULT_SHAPE.info,
    IndexKind.BTREE_V2: BTREE2_INFO,
}


def read_chunk_index(
    layout: IndexLayout, extent: Sequence[int], end: int, base: int = 0
) -> Reads[ChunkRecords]:
    """Read the chunk records of a dataset with dimensions `extent`, sorted by scaled coordinates in row-major order.

    `end` is the number of bytes from the file's `base` address to its end. Addresses are relative to `base`; the
    ranges that the reader yields count from byte 0. Chunks outside of `extent` are omitted: they may exist while
    a writer resizes the dataset. Raises `Corrupt`, naming the block, if a block is damaged or outside of the file.
    """
    fault = _fault(layout)
    if fault or len(extent) != layout.rank:
        raise Corrupt(fault or f"A dataset of {len(extent)} dimensions has chunks of rank {layout.rank}.")
    if (address := layout.address) is None:
        return no_records(layout)
    counts = [-(-length // step) for length, step in zip(extent, layout.chunk, strict=True)]
    bounds = FileBounds(end, base)
    if layout.kind is IndexKind.IMPLICIT:
        return implicit_records(layout, counts, address, bounds)
    if layout.kind is IndexKind.SINGLE:
        records = single_records(layout, address)
    else:
        records = yield from READERS[layout.kind](layout, address, bounds)
    inside = np.all(records.scaled < np.array(counts, np.uint64), axis=1)
    if not inside.all():
        records = records.take(inside)
    return records if is_ascending(records.scaled) else records.take(sort_rows(records.scaled))


def plan_chunk_index(layout: IndexLayout, scaled: NDArray[np.uint64]) -> IndexPlan:
    """Plan the index of chunks at `scaled: (n, rank) uint64` coordinates, unique and in any order.

    The plan has size 0 if there are no chunks. It also has size 0 for the single chunk index, because the layout
    message itself has the chunk's address and, as index information, the rest of its record. Raises `BadRequest` if a
    chunk occurs twice or is beyond the maximum dimensions, or if the index kind is implicit or does not fit the maximum
    dimensions.
    """
    if fault := _fault(layout):
        raise BadRequest(fault)
    order = sort_rows(scaled)
    if not is_ascending(scaled[order]):
        raise BadRequest("Two chunks have the same coordinates: give each chunk once.")
    for dim, count in enumerate(layout.counts):
        if len(scaled) and count is not None and int(scaled[:, dim].max()) >= count:
            raise BadRequest(f"A chunk is beyond the maximum of {count} chunks in dimension {dim}.")
    if not len(scaled) or layout.kind is IndexKind.SINGLE:
        return SingleChunkPlan(layout, order, 0)
    if layout.kind is IndexKind.IMPLICIT:
        raise BadRequest("An implicit chunk index cannot be written: use a fixed array.")
    return PLANNERS[layout.kind](layout, scaled)


def _fault(layout: IndexLayout) -> str | None:
    """Return an error message if the layout contradicts itself, or None if the layout is consistent."""
    if not len(layout.max_dims) == layout.rank > 0 or not all(layout.chunk) or not layout.element_size:
        return f"Chunks of {layout.chunk} elements of {layout.element_size} bytes do not fit limits {layout.max_dims}."
    unlimited = layout.max_dims.count(None)
    if unlimited != UNLIMITED.get(layout.kind, unlimited):
        return f"A dataset with limits {layout.max_dims} cannot have chunk index type {int(layout.kind)}."
    return None


def index_info(layout: IndexLayout, records: ChunkRecords | None = None) -> bytes:
    """Return the index information for the layout message. A single chunk index has its whole record there."""
    if layout.kind is IndexKind.SINGLE:
        return encode_single(layout, no_records(layout) if records is None else records)
    return INFO.get(layout.kind, b"")


def index_info_size(layout: IndexLayout) -> int:
    """Return the size in bytes of the index information in the layout message."""
    if layout.kind is IndexKind.SINGLE:
        return single_info_size(layout)
    return len(INFO.get(layout.kind, b""))
