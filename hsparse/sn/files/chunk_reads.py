"""Reading the stored chunks of a planned file, a few at a time."""

from __future__ import annotations

from collections.abc import Iterator

from hsparse.errors import ErrorKind, HsparseError, Moved
from hsparse.format.buffer import byte_view
from hsparse.format.chunk_map import digests
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.hdf5.plan.planned_chunks import PlannedChunks, Uint64Column
from hsparse.model.ids import chunk_name
from hsparse.sn.data_nodes.owners import Owners
from hsparse.wire.chunk_info_message import DirectChunk, ReadDirect

CHANGED_KINDS = (ErrorKind.NOT_FOUND, ErrorKind.GONE, ErrorKind.MOVED)
CHUNKS_AT_ONCE = 16
"""The most chunks that are read at once."""


async def read_planned(owners: Owners, spec: ChunkSpec, chunks: PlannedChunks, row: int) -> memoryview:
    """Return the stored bytes of a chunk; `Moved` if it has changed since the plan."""
    return byte_view((await read_direct_chunk(owners, spec, chunks, row)).data)


async def read_direct_chunk(owners: Owners, spec: ChunkSpec, chunks: PlannedChunks, row: int) -> DirectChunk:
    """Return the stored bytes of a chunk and its row, with the stored sections; `Moved` as above."""
    scaled = tuple(chunks.scaled[row].tolist())
    try:
        found = await owners.ask_owner(spec.key(scaled), ReadDirect(spec, scaled))
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
    """Yield runs of `rows` of at most `page` bytes by `sizes: (len(rows),)`; a larger row is a run alone."""
    first = 0
    while first < len(rows):
        last = first + 1
        room = page - int(sizes[first])
        while last < min(len(rows), first + CHUNKS_AT_ONCE) and int(sizes[last]) <= room:
            room -= int(sizes[last])
            last += 1
        yield rows[first:last]
        first = last
