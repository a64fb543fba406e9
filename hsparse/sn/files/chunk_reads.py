"""Reading the stored chunks that a file was planned with, some at a time."""

from __future__ import annotations

from collections.abc import Iterator

from hsparse.errors import ErrorKind, HsparseError, Moved
from hsparse.format.buffer import byte_view
from hsparse.format.chunk_map import digests
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.hdf5.plan.planned_chunks import PlannedChunks, Uint64Column
from hsparse.model.ids import chunk_key, chunk_name
from hsparse.sn.data_nodes import Owners
from hsparse.wire.chunk_info_message import DirectChunk, ReadDirect

CHANGED_KINDS = (ErrorKind.NOT_FOUND, ErrorKind.GONE, ErrorKind.MOVED)
CHUNKS_AT_ONCE = 16
"""The most that is read at once."""


async def read_planned(owners: Owners, spec: ChunkSpec, chunks: PlannedChunks, row: int) -> memoryview:
    """Return a chunk's stored bytes; `Moved` when it is not in the planned state any more."""
    return byte_view((await read_direct_chunk(owners, spec, chunks, row)).data)


async def read_direct_chunk(owners: Owners, spec: ChunkSpec, chunks: PlannedChunks, row: int) -> DirectChunk:
    """Return a chunk's stored bytes and its row, whose sections are those stored; `Moved` as above."""
    scaled = tuple(chunks.scaled[row].tolist())
    try:
        found = await owners.ask_owner(chunk_key(spec.dataset, scaled), ReadDirect(spec, scaled))
    except HsparseError as error:
        if error.kind not in CHANGED_KINDS:
            raise
        raise _changed(spec, scaled) from error
    if found is None or digests(found.row.etags)[0] != chunks.digest[row]:
        raise _changed(spec, scaled)
    return found


def _changed(spec: ChunkSpec, scaled: tuple[int, ...]) -> Moved:
    return Moved(f"The chunk {chunk_name(scaled)} of {spec.dataset} was changed since the file was planned.")


def row_batches(sizes: Uint64Column, rows: range, page: int) -> Iterator[range]:
    """Yield runs of `rows` that have up to `page` bytes by `sizes: (len(rows),)`, or are one alone."""
    first = 0
    while first < len(rows):
        last = first + 1
        room = page - int(sizes[first])
        while last < min(len(rows), first + CHUNKS_AT_ONCE) and int(sizes[last]) <= room:
            room -= int(sizes[last])
            last += 1
        yield rows[first:last]
        first = last
