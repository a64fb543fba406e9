"""Chunks read and written as they are stored: H5Dread_chunk, H5Dwrite_chunk and their structured forms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hsparse.concurrency.memory_budget import MemoryBudget
from hsparse.concurrency.offload import OffloadPool
from hsparse.dn import dense_changes, variable_changes
from hsparse.dn.cached_object import Base, Encoded
from hsparse.dn.chunk_index import footer_columns
from hsparse.dn.chunk_objects import ChunkObjects
from hsparse.errors import BadRequest, Corrupt, NotFound
from hsparse.format.chunk_rows import UNFILTERED, ChunkRows
from hsparse.format.direct_chunk import GivenChunk, check_direct
from hsparse.format.plan.grid import Grid
from hsparse.format.structured.footer import unseal
from hsparse.model.chunk_spec import ChunkSpec
from hsparse.model.objid import chunk_key
from hsparse.model.variable_array import VariableArray
from hsparse.storage.object_store import ObjectStore
from hsparse.wire.chunk_info_message import DirectChunk, ReadDirect, WriteDirect


class DirectChunks:
    """Chunks as they are stored, over the node's store and what it owns."""

    def __init__(
        self, store: ObjectStore, owned: ChunkObjects, workers: OffloadPool, pending: MemoryBudget
    ) -> None:
        self._store = store
        self._owned = owned
        self._workers = workers
        self._pending = pending

    async def read(self, message: ReadDirect) -> DirectChunk | None:
        """Answer `ReadDirect`: one get. Of a structured chunk every byte is checked."""
        spec = message.spec
        self._owned.check(spec)
        key = chunk_key(spec.dataset, message.scaled)
        try:
            stored = await self._store.get(key)
        except NotFound:
            return None
        row = ChunkRows.of((message.scaled,), len(spec.dims), (stored.size,), (stored.etag,))
        if not spec.sparse:
            return DirectChunk(np.frombuffer(stored.data, np.uint8), row)
        try:
            content, footer = await self._workers.run(len(stored.data), unseal, stored.data)
        except Corrupt as error:
            raise Corrupt(f"The chunk object {key} is corrupt: {error.message}") from error
        row = row.described(*footer_columns([footer], len(footer.sections)))
        return DirectChunk(np.frombuffer(content, np.uint8), row)

    async def write(self, message: WriteDirect) -> None:
        """Answer `WriteDirect`: checked, then put as any write of a whole chunk is."""
        spec, scaled = message.spec, message.scaled
        grid = Grid(message.extent, spec.dims)
        if not grid.holds(scaled):
            raise BadRequest(f"There is no chunk {list(scaled)}: the dataset has {list(grid.counts)} chunks.")
        await self._owned.begin(spec)
        self._owned.check(spec)
        if spec.sparse:
            unfiltered = sum(message.sections[:, UNFILTERED].tolist())
        else:
            unfiltered = math.prod(spec.dims) * spec.datatype.guessed_size
        nbytes = 2 * len(message.data) + unfiltered
        async with self._pending.hold(nbytes):
            given = await self._workers.run(nbytes, _checked, message, grid.clipped(scaled))
            value: Any = given.value if given.data is None else Encoded(given.value, given.data)
            await self._owned.apply(
                spec, scaled, spec.datatype, lambda _: (value, None), nbytes, Base.IGNORED
            )


def _checked(message: WriteDirect, stop: tuple[int, ...]) -> GivenChunk:
    spec = message.spec
    given = check_direct(spec, message.data.tobytes(), message.sections, stop)
    if not spec.sparse and stop != spec.dims and not _is_filled(spec, message.scaled, given.value, stop):
        raise BadRequest(
            f"Elements beyond the extent, which has {list(stop)} of the chunk, must be the fill value: they would "
            "be there when the dataset grows."
        )
    return given


def _is_filled(spec: ChunkSpec, scaled: tuple[int, ...], value: Any, stop: tuple[int, ...]) -> bool:
    """Say whether a dense chunk is as a shrink to `stop` would leave it: nothing but fill values beyond."""
    if isinstance(value, VariableArray):
        trimmed = variable_changes.trim(list(stop), spec.variable_fill)(value)[0]
        assert trimmed is not None
        return np.array_equal(trimmed.offsets, value.offsets) and np.array_equal(trimmed.heap, value.heap)
    array, _ = dense_changes.trim(list(stop), spec.fill_of(scaled))(value)
    return array is not None and array.tobytes() == value.tobytes()
