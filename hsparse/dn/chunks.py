"""The chunks a data node owns: answers to the chunk messages."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, TypeVar

from numpy.typing import NDArray

from hsparse.concurrency.gather import gather_each
from hsparse.concurrency.memory_budget import MemoryBudget
from hsparse.concurrency.offload import OffloadPool
from hsparse.dn import dense_changes, element_queries, sparse_changes, variable_changes
from hsparse.dn.cached_object import Base
from hsparse.dn.chunk_objects import ChunkObjects
from hsparse.errors import BadRequest, TooLarge
from hsparse.format.fields import as_type, packed_type, pick_fields
from hsparse.format.kinds.sparse_chunk import SparseChunk
from hsparse.format.kinds.vlen_chunk import SparseVlenChunk
from hsparse.format.query import bind_query
from hsparse.model.chunk_spec import ChunkSpec
from hsparse.model.datatype import Datatype
from hsparse.model.variable_array import VariableArray
from hsparse.model.variable_fields import Fields
from hsparse.wire.chunk_message import (
    CountDefined,
    EraseChunks,
    FindElements,
    Found,
    Part,
    ReadChunks,
    ReadSparse,
    ReadSparseVariable,
    ReadVariable,
    SparseValues,
    SparseVariableValues,
    TrimChunks,
    UpdateElements,
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

FIRST_WAVE = 4
"""How many chunks a query with a limit looks at first; then twice as many, and so on."""

OFFSETS_BYTES = 12
"""What an element's offset takes while it is merged: 8 bytes as it is computed, 4 as it is kept."""


class Chunks:
    """Elements of chunks: read, found, counted and changed."""

    def __init__(self, owned: ChunkObjects, workers: OffloadPool, pending: MemoryBudget) -> None:
        self._owned = owned
        self._workers = workers
        self._pending = pending
        self._working = MemoryBudget(WORK_AT_ONCE)

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
            nbytes = part.selection.size * datatype.stored.itemsize
            if spec.sparse:
                weight = value.nbytes + part.selection.size
                values = await self._workers.run(weight, sparse_changes.read, value, part.selection, fill)
            else:
                values = dense_changes.read(value, part.selection)
            if values is None or not message.fields:
                return values
            return await self._workers.run(nbytes, pick_fields, values, message.fields)

        return tuple(await self._each(read, message.parts))

    async def read_variable(self, message: ReadVariable) -> tuple[VariableArray | int | None, ...]:
        """Answer `ReadVariable`."""
        spec = message.spec
        datatype = spec.datatype
        fill = spec.variable_fill
        room = message.limit

        async def read(part: Part) -> VariableArray | int | None:
            nonlocal room
            if room < 0:
                return 0
            async with self._work(_nbytes(spec, part, datatype)):
                value = await self._load(spec, part, datatype)
            if value is None:
                return None
            weight = value.nbytes + part.selection.size
            nbytes = await self._workers.run(weight, variable_changes.nbytes_of, value, part.selection, fill)
            room -= nbytes
            if room < 0:
                return nbytes
            return await self._workers.run(weight, variable_changes.read, value, part.selection, fill)

        return tuple(await self._each(read, message.parts, VARIABLE_AT_ONCE))

    async def read_sparse(self, message: ReadSparse) -> tuple[SparseValues | None, ...]:
        """Answer `ReadSparse`."""
        if message.spec.datatype.is_variable and not message.places_only:
            raise BadRequest("Elements of variable length are read by ReadSparseVariable.")

        async def read(part: Part) -> SparseValues | None:
            value = await self._load_sparse(message.spec, part)
            if value is None:
                return None
            return await self._workers.run(
                value.nbytes, sparse_changes.defined, value, part.selection, message.places_only
            )

        return tuple(await self._each(read, message.parts))

    async def read_sparse_variable(
        self, message: ReadSparseVariable
    ) -> tuple[SparseVariableValues | int | None, ...]:
        """Answer `ReadSparseVariable`."""
        room, alone = message.limit, len(message.parts) == 1

        async def read(part: Part) -> SparseVariableValues | int | None:
            nonlocal room
            if room < 0:
                return 0
            value: SparseVlenChunk | None = await self._load(message.spec, part, message.spec.datatype)
            if value is None:
                return None
            found = await self._workers.run(
                value.nbytes, variable_changes.defined, value, part.selection, room, alone
            )
            if found is None or isinstance(found, int):
                room -= found or 0
                return found
            room -= found.nbytes  # others may have taken of it meanwhile
            return found if room >= 0 or alone else found.nbytes

        return tuple(await self._each(read, message.parts, VARIABLE_AT_ONCE))

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
        sent = packed_type(datatype.stored, message.fields)
        fields = (
            Fields.named(datatype.element, message.fields)
            if message.fields and datatype.is_variable
            else None
        )
        if len(message.parts) != len(message.values):
            raise BadRequest(f"{len(message.parts)} parts came with {len(message.values)} arrays of values.")
        _check_work(spec, message.parts)

        async def write(item: tuple[Part, Any]) -> None:
            part, values = item
            change: Any
            if datatype.is_variable and spec.sparse:
                change = variable_changes.define(
                    spec, part.selection, values, fill, message.drop_fill, fields
                )
            elif datatype.is_variable:
                change = variable_changes.write(spec, part, values, fill, fields)
            elif spec.sparse:
                typed = as_type(values, sent)
                change = sparse_changes.write(
                    spec, part.selection, typed, fill, message.drop_fill, message.fields
                )
            else:
                start = spec.fill_of(part.scaled) if spec.arange else fill
                change = dense_changes.write(spec, part, as_type(values, sent), start, message.fields)
            blind = part.full and not message.drop_fill and not message.fields
            if datatype.is_variable:  # a change that may be refused needs to know what stays then
                blind = blind and variable_changes.surely_fits(spec, part.selection, values)
            base = Base.IGNORED if blind else Base.NEEDED
            nbytes = _nbytes(spec, part, datatype)
            async with self._work(nbytes):
                await self._owned.apply(spec, part.scaled, datatype, change, nbytes, base)

        await self._owned.begin(spec)
        async with self._pending.hold(sum(values.nbytes for values in message.values)):
            pairs = list(zip(message.parts, message.values, strict=True))
            await self._each(write, pairs, VARIABLE_AT_ONCE if datatype.is_variable else CHUNKS_AT_ONCE)

    async def find(self, message: FindElements) -> tuple[Found | None, ...]:
        """Answer `FindElements`: a few parts at a time, and no more when the limit is reached in order."""
        spec, parts, limit = message.spec, message.parts, message.limit
        query, fill = bind_query(message.query, spec.dtype), spec.fill_value
        takes_fill = query.takes(fill)
        _check_work(spec, parts if takes_fill else ())

        async def find(part: Part) -> Found | None:
            async with self._work(0 if spec.sparse else _nbytes(spec, part, spec.datatype)):
                value = await self._load(spec, part, spec.datatype)
                if value is None:
                    return None
                weight = part.selection.size * spec.dtype.itemsize
                return await self._workers.run(
                    weight, element_queries.find, value, part.selection, query, fill, message
                )

        found: list[Found | None] = []
        seen, wave = 0, FIRST_WAVE if message.in_order and limit else len(parts)
        while len(found) < len(parts) and not (message.in_order and limit and seen >= limit):
            some = parts[len(found) : len(found) + wave]
            answers = await self._each(find, some)
            for part, answer in zip(some, answers, strict=True):
                seen += len(answer.positions) if answer else takes_fill * part.selection.size
            found += answers
            wave = 2 * wave
        none = element_queries.nothing(packed_type(spec.dtype, message.fields))
        return (*found, *(none for _ in parts[len(found) :]))

    async def update(self, message: UpdateElements) -> tuple[Found, ...]:
        """Answer `UpdateElements`."""
        spec, datatype = message.spec, message.spec.datatype
        query, fill = bind_query(message.query, spec.dtype), spec.fill_value
        value = as_type(message.value, packed_type(spec.dtype, message.fields))
        takes_fill = query.takes(fill)
        _check_work(spec, message.parts if takes_fill else ())

        async def update(part: Part) -> Found:
            start = spec.fill_of(part.scaled)
            change = element_queries.update(message, part.selection, query, start, value)
            nbytes = 0 if spec.sparse and not takes_fill else _nbytes(spec, part, datatype)
            async with self._work(nbytes):
                return await self._owned.apply(spec, part.scaled, datatype, change, nbytes, Base.NEEDED)

        await self._owned.begin(spec)
        return tuple(await self._each(update, message.parts))

    async def erase(self, message: EraseChunks) -> None:
        """Answer `EraseChunks`."""
        spec = message.spec
        datatype = spec.datatype

        async def erase(part: Part) -> None:
            change = sparse_changes.erase(part.selection)
            await self._owned.apply(spec, part.scaled, datatype, change, part.selection.size, Base.NEEDED)

        await self._owned.begin(spec)
        await self._each(erase, message.parts)

    async def trim(self, message: TrimChunks) -> None:
        """Answer `TrimChunks`."""
        spec = message.spec
        datatype = spec.datatype
        fill: Any = spec.variable_fill if datatype.is_variable else spec.fill_value
        await self._owned.begin(spec)
        self._owned.check(spec)
        await self._owned.settle(spec.dataset)

        def change(scaled: tuple[int, ...], stop: list[int]) -> Callable[[Any], tuple[Any, None]]:
            if spec.sparse:
                return sparse_changes.trim(spec, stop)
            if datatype.is_variable:
                return variable_changes.trim(stop, fill)
            return dense_changes.trim(stop, spec.fill_of(scaled) if spec.arange else fill)

        async def trim(scaled: tuple[int, ...]) -> None:
            stop = [max(0, e - s * d) for s, d, e in zip(scaled, spec.dims, message.extent, strict=True)]
            if not all(stop):
                await self._owned.apply(spec, scaled, datatype, lambda value: (None, None), 0, Base.IGNORED)
            else:
                await self._owned.apply(spec, scaled, datatype, change(scaled, stop), 0, Base.NEEDED)

        await self._each(trim, message.scaled, VARIABLE_AT_ONCE if datatype.is_variable else CHUNKS_AT_ONCE)

    async def bury(self, dataset: str) -> None:
        """Answer `Bury`."""
        await self._owned.bury(dataset)

    async def _load(self, spec: ChunkSpec, part: Part, datatype: Datatype) -> Any:
        with self._owned.use(spec, part.scaled, datatype) as owned:
            value = await owned.read()
        return spec.fill_of(part.scaled) if value is None and spec.arange else value

    async def _load_sparse(self, spec: ChunkSpec, part: Part) -> SparseChunk | SparseVlenChunk | None:
        value: SparseChunk | SparseVlenChunk | None = await self._load(spec, part, spec.datatype)
        return value

    def _work(self, nbytes: int) -> AbstractAsyncContextManager[None]:
        """Wait for room for work on `nbytes`."""
        return nullcontext() if nbytes <= SMALL else self._working.hold(nbytes)

    async def _each(
        self, function: Callable[[Any], Awaitable[T]], items: Any, most: int = CHUNKS_AT_ONCE
    ) -> list[T]:
        if len(items) == 1:
            return [await function(items[0])]
        return await gather_each(function, items, most)


def _check_work(spec: ChunkSpec, parts: Iterable[Part]) -> None:
    """Raise `TooLarge` when work on one of the parts takes more than `MOST_WORK`."""
    most = max((_nbytes(spec, part, spec.datatype) for part in parts), default=0)
    if most > MOST_WORK:
        raise TooLarge(f"Work on so much of one chunk takes {most} bytes of memory; name less at a time.")


def _nbytes(spec: ChunkSpec, part: Part, datatype: Datatype) -> int:
    """Return about how many bytes work on a part takes: of a sparse chunk, offsets and values of the part."""
    if spec.sparse:
        return part.selection.size * (datatype.stored.itemsize + OFFSETS_BYTES)
    return math.prod(spec.dims) * datatype.guessed_size
