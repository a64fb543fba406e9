"""The chunks a data node owns: answers to the chunk messages."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hsparse.dn import dense_changes, sparse_changes, variable_changes
from hsparse.dn.cache import Cache
from hsparse.dn.chunk_codec import codec_for
from hsparse.dn.fences import Fences
from hsparse.dn.owned import Base, Owned
from hsparse.dn.workers import Workers
from hsparse.errors import BadRequest, TooLarge
from hsparse.format.sparse_chunk import SparseChunk
from hsparse.model.chunk_spec import ChunkSpec
from hsparse.model.datatype import Datatype
from hsparse.model.objid import chunk_key, chunk_prefix
from hsparse.model.variable_array import VariableArray
from hsparse.model.variable_fields import Fields
from hsparse.storage.object_store import ObjectStore
from hsparse.wire.budget import Budget
from hsparse.wire.gather import gather_each
from hsparse.wire.message import (
    CountDefined,
    EraseChunks,
    Part,
    ReadChunks,
    ReadSparse,
    ReadVariable,
    SparseValues,
    TrimChunks,
    WriteChunks,
)

T = TypeVar("T")

MIB = 1024 * 1024
CHUNKS_AT_ONCE = 32
"""How many chunks of one message are worked on at a time: bounds memory and open store requests."""
VARIABLE_AT_ONCE = 8
"""The same of chunks whose elements have no fixed size: how large they are is known when they are there."""
WORK_AT_ONCE = 128 * MIB
"""How many bytes of large chunks all messages together work on at a time: one value may fill many chunks."""
SMALL = MIB
"""Work on fewer bytes is not counted: a message's share of `CHUNKS_AT_ONCE` is little anyway."""

MOST_WORK = 2048 * MIB
"""How many bytes work on one chunk may take: one value may fill a sparse chunk of 2^32-1 elements."""

OFFSETS_BYTES = 12
"""What an element's offset takes while it is merged: 8 bytes as it is computed, 4 as it is kept."""


class Chunks:
    """Chunks by dataset and scaled coordinates, over the node's cache and store."""

    def __init__(
        self, store: ObjectStore, cache: Cache, workers: Workers, pending: Budget, fences: Fences
    ) -> None:
        self._store = store
        self._cache = cache
        self._workers = workers
        self._pending = pending
        self._working = Budget(WORK_AT_ONCE)
        self._fences = fences

    async def read(self, message: ReadChunks) -> tuple[NDArray[Any] | None, ...]:
        """Answer `ReadChunks`."""
        spec = message.spec
        datatype = spec.datatype
        fill = spec.fill_value

        async def read(part: Part) -> NDArray[Any] | None:
            async with self._work(0 if spec.sparse else _nbytes(spec, part, datatype)):
                value = await self._load(spec, part, datatype)
            if value is None:
                return None
            if not spec.sparse:
                return dense_changes.read(value, part.selection)
            return await self._workers.run(
                value.nbytes + part.selection.size, sparse_changes.read, value, part.selection, fill
            )

        return tuple(await self._each(read, message.parts))

    async def read_variable(self, message: ReadVariable) -> tuple[VariableArray | int | None, ...]:
        """Answer `ReadVariable`."""
        spec = message.spec
        datatype = spec.datatype
        room = message.limit

        async def read(part: Part) -> VariableArray | int | None:
            nonlocal room
            if room < 0:
                return 0
            async with self._work(_nbytes(spec, part, datatype)):
                value = await self._load(spec, part, datatype)
            if value is None:
                return None
            nbytes = await self._workers.run(value.nbytes, variable_changes.nbytes_of, value, part.selection)
            room -= nbytes
            if room < 0:
                return nbytes
            return await self._workers.run(value.nbytes, variable_changes.read, value, part.selection)

        return tuple(await self._each(read, message.parts, VARIABLE_AT_ONCE))

    async def read_sparse(self, message: ReadSparse) -> tuple[SparseValues | None, ...]:
        """Answer `ReadSparse`."""

        async def read(part: Part) -> SparseValues | None:
            value = await self._load_sparse(message.spec, part)
            if value is None:
                return None
            return await self._workers.run(
                value.nbytes, sparse_changes.defined, value, part.selection, message.places_only
            )

        return tuple(await self._each(read, message.parts))

    async def count(self, message: CountDefined) -> tuple[int, ...]:
        """Answer `CountDefined`."""

        async def count(part: Part) -> int:
            value = await self._load_sparse(message.spec, part)
            if value is None:
                return 0
            return await self._workers.run(value.nbytes, sparse_changes.count, value, part.selection)

        return tuple(await self._each(count, message.parts))

    async def write(self, message: WriteChunks) -> None:
        """Answer `WriteChunks`."""
        spec = message.spec
        datatype = spec.datatype
        fill: Any = spec.variable_fill if datatype.is_variable else spec.fill_value
        fields = Fields.named(datatype.element, message.fields) if message.fields else None
        if len(message.parts) != len(message.values):
            raise BadRequest(f"{len(message.parts)} parts came with {len(message.values)} arrays of values.")
        most = max((_nbytes(spec, part, datatype) for part in message.parts), default=0)
        if most > MOST_WORK:
            raise TooLarge(
                f"Writing so much of one chunk takes {most} bytes of memory; write less at a time."
            )

        async def write(item: tuple[Part, Any]) -> None:
            part, values = item
            change: Any
            if datatype.is_variable:
                change = variable_changes.write(spec, part, values, fill, fields)
            elif spec.sparse:
                typed = _typed(values, datatype.stored)
                change = sparse_changes.write(spec, part.selection, typed, fill, message.drop_fill)
            else:
                start = spec.fill_of(part.scaled) if spec.arange else fill
                change = dense_changes.write(spec, part, _typed(values, datatype.stored), start)
            blind = part.full and not message.drop_fill and not message.fields
            base = Base.IGNORED if blind else Base.NEEDED
            nbytes = _nbytes(spec, part, datatype)
            async with self._work(nbytes):
                await self._apply(spec, part.scaled, datatype, change, nbytes, base)

        await self._fences.learn(spec.dataset)
        async with self._pending.hold(sum(values.nbytes for values in message.values)):
            pairs = list(zip(message.parts, message.values, strict=True))
            await self._each(write, pairs, VARIABLE_AT_ONCE if datatype.is_variable else CHUNKS_AT_ONCE)

    async def erase(self, message: EraseChunks) -> None:
        """Answer `EraseChunks`."""
        spec = message.spec
        datatype = spec.datatype

        async def erase(part: Part) -> None:
            change = sparse_changes.erase(part.selection)
            await self._apply(spec, part.scaled, datatype, change, part.selection.size, Base.NEEDED)

        await self._fences.learn(spec.dataset)
        await self._each(erase, message.parts)

    async def trim(self, message: TrimChunks) -> None:
        """Answer `TrimChunks`."""
        spec = message.spec
        datatype = spec.datatype
        fill: Any = spec.variable_fill if datatype.is_variable else spec.fill_value
        await self._fences.learn(spec.dataset)
        self._fences.check(spec)
        await self._settle(spec.dataset)

        def change(scaled: tuple[int, ...], stop: list[int]) -> Callable[[Any], tuple[Any, None]]:
            if datatype.is_variable:
                return variable_changes.trim(stop, fill)
            if spec.sparse:
                return sparse_changes.trim(spec, stop)
            return dense_changes.trim(stop, spec.fill_of(scaled) if spec.arange else fill)

        async def trim(scaled: tuple[int, ...]) -> None:
            stop = [max(0, e - s * d) for s, d, e in zip(scaled, spec.dims, message.extent, strict=True)]
            if not all(stop):
                await self._apply(spec, scaled, datatype, lambda value: (None, None), 0, Base.IGNORED)
            else:
                await self._apply(spec, scaled, datatype, change(scaled, stop), 0, Base.NEEDED)

        await self._each(trim, message.scaled, VARIABLE_AT_ONCE if datatype.is_variable else CHUNKS_AT_ONCE)

    async def bury(self, dataset: str) -> None:
        """Answer `Bury`."""
        self._fences.bury(dataset)
        await self._settle(dataset)
        self._cache.drop(chunk_prefix(dataset))

    async def _settle(self, dataset: str) -> None:
        """Wait until what was accepted for a dataset's chunks by now is durable."""
        prefix = chunk_prefix(dataset)
        for owned in self._cache:
            if owned.key.startswith(prefix):
                await owned.settle()

    async def _load(self, spec: ChunkSpec, part: Part, datatype: Datatype) -> Any:
        with self._use(spec, part.scaled, datatype) as owned:
            value = await owned.read()
        return spec.fill_of(part.scaled) if value is None and spec.arange else value

    async def _load_sparse(self, spec: ChunkSpec, part: Part) -> SparseChunk | None:
        value: SparseChunk | None = await self._load(spec, part, spec.datatype)
        return value

    async def _apply(
        self,
        spec: ChunkSpec,
        scaled: tuple[int, ...],
        datatype: Datatype,
        change: Callable[[Any], tuple[Any, None]],
        weight: int,
        base: Base,
    ) -> None:
        with self._use(spec, scaled, datatype) as owned:
            await owned.apply(change, weight=weight, base=base)

    @contextmanager
    def _use(self, spec: ChunkSpec, scaled: tuple[int, ...], datatype: Datatype) -> Iterator[Owned[Any]]:
        self._fences.check(spec)
        key = chunk_key(spec.dataset, scaled)
        codec: Any = codec_for(key, spec, datatype)
        with self._cache.use(key, lambda: Owned(key, self._store, codec, self._workers)) as owned:
            yield owned

    def _work(self, nbytes: int) -> AbstractAsyncContextManager[None]:
        """Wait for room for work on `nbytes`."""
        return nullcontext() if nbytes <= SMALL else self._working.hold(nbytes)

    async def _each(
        self, function: Callable[[Any], Awaitable[T]], items: Any, most: int = CHUNKS_AT_ONCE
    ) -> list[T]:
        if len(items) == 1:
            return [await function(items[0])]
        return await gather_each(function, items, most)


def _nbytes(spec: ChunkSpec, part: Part, datatype: Datatype) -> int:
    """Return about how many bytes work on a part takes: of a sparse chunk, offsets and values of the part."""
    if spec.sparse:
        return part.selection.size * (datatype.stored.itemsize + OFFSETS_BYTES)
    return math.prod(spec.dims) * datatype.guessed_size


def _typed(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    return values if values.dtype == dtype else values.view(dtype)
