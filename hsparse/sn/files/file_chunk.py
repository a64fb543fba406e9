"""A stored chunk as a file was planned with it, or not at all."""

from __future__ import annotations

from hsparse.errors import ErrorKind, HsparseError, Moved
from hsparse.format.buffer import byte_view
from hsparse.format.chunk_map import digests
from hsparse.format.hdf5.planned_chunks import PlannedChunks
from hsparse.model.chunk_spec import ChunkSpec
from hsparse.model.objid import chunk_key, chunk_name
from hsparse.sn.owners import Owners
from hsparse.wire.chunk_info_message import DirectChunk, ReadDirect

GONE = (ErrorKind.NOT_FOUND, ErrorKind.GONE, ErrorKind.MOVED)


async def read_planned(owners: Owners, spec: ChunkSpec, chunks: PlannedChunks, row: int) -> memoryview:
    """Return a chunk's stored bytes; `Moved` when it is not in the planned state any more."""
    return byte_view((await read_described(owners, spec, chunks, row)).data)


async def read_described(owners: Owners, spec: ChunkSpec, chunks: PlannedChunks, row: int) -> DirectChunk:
    """Return a chunk's stored bytes and its row, whose sections are those stored; `Moved` as above."""
    scaled = tuple(chunks.scaled[row].tolist())
    try:
        found = await owners.ask_owner(chunk_key(spec.dataset, scaled), ReadDirect(spec, scaled))
    except HsparseError as error:
        if error.kind not in GONE:
            raise
        raise _changed(spec, scaled) from error
    if found is None or digests(found.row.etags)[0] != chunks.digest[row]:
        raise _changed(spec, scaled)
    return found


def _changed(spec: ChunkSpec, scaled: tuple[int, ...]) -> Moved:
    return Moved(f"The chunk {chunk_name(scaled)} of {spec.dataset} was changed since the file was planned.")
