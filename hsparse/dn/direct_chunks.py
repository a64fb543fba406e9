"""Direct reads and writes of encoded chunks: H5Dread_chunk, H5Dwrite_chunk and their structured forms."""

from __future__ import annotations

import numpy as np

from hsparse.concurrency.memory_budget import MemoryBudget
from hsparse.concurrency.offload import OffloadPool
from hsparse.dn.chunk_bytes import check_sealed
from hsparse.dn.chunk_footers import footer_columns
from hsparse.dn.chunk_objects import ChunkObjects
from hsparse.dn.group_commit import Base, Encoded
from hsparse.errors import BadRequest, NotFound
from hsparse.format.chunk_rows import ChunkRows
from hsparse.format.kinds.direct_chunk import open_direct_chunk
from hsparse.format.kinds.registry import kind_of
from hsparse.format.plan.grid import Grid
from hsparse.storage.object_store import ObjectStore
from hsparse.wire.chunk_info_message import DirectChunk, ReadDirect, WriteDirect


class DirectChunks:
    """Reads and writes of encoded chunks, over the node's store and its cached objects."""

    def __init__(
        self, store: ObjectStore, objects: ChunkObjects, workers: OffloadPool, pending: MemoryBudget
    ) -> None:
        self._store = store
        self._objects = objects
        self._workers = workers
        self._pending = pending

    async def read(self, message: ReadDirect) -> DirectChunk | None:
        """Answer `ReadDirect`: one get. Of a structured chunk every byte is checked."""
        spec = message.spec
        self._objects.check(spec)
        key = spec.key(message.scaled)
        try:
            stored = await self._store.get(key)
        except NotFound:
            return None
        row = ChunkRows.of((message.scaled,), len(spec.dims), (stored.size,), (stored.etag,))
        if not spec.sparse:
            return DirectChunk(np.frombuffer(stored.data, np.uint8), row)
        content, footer = await check_sealed(self._workers, key, stored.data)
        row = row.described(*footer_columns([footer], spec))
        return DirectChunk(np.frombuffer(content, np.uint8), row)

    async def write(self, message: WriteDirect) -> None:
        """Answer `WriteDirect`: check the bytes, then put them as any write of a whole chunk."""
        kind, scaled = kind_of(message.spec), message.scaled
        grid = Grid(message.extent, kind.spec.dims)
        if not grid.holds(scaled):
            raise BadRequest(f"There is no chunk {list(scaled)}: the dataset has {list(grid.counts)} chunks.")
        await self._objects.begin(kind.spec)
        self._objects.check(kind.spec)
        nbytes = 2 * len(message.data) + kind.direct_bound(message.sections)
        self._objects.reservation(kind.spec, scaled).check(nbytes)
        async with self._pending.hold(nbytes):
            given = await self._workers.run(
                nbytes,
                open_direct_chunk,
                kind,
                message.data.tobytes(),
                message.sections,
                scaled,
                grid.clipped(scaled),
            )
            value = given.chunk if given.data is None else Encoded(given.chunk, given.data)
            await self._objects.apply(kind, scaled, lambda _: (value, None), nbytes, Base.IGNORED, nbytes)
