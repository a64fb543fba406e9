"""The elements of the chunks that a data node owns: read, found, counted and changed.

A chunk's kind (`hsparse.format.kinds`) reads and changes it. This module loads and commits chunks, and limits the
memory that they take.

Reductions of the chunks that a data node owns: each chunk is reduced by its kind, in a thread, and merged in order.

The order of chunks is that of the message, so that the same request has the same sums of floats, to the last bit.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from math import prod
from typing import Any, TypeVar

from hsparse.concurrency.gather import gather_each
from hsparse.concurrency.memory_budget import MemoryBudget
from hsparse.concurrency.offload import OffloadPool
from hsparse.dn.cache import Base
from hsparse.dn.cached_object import CachedObject
from hsparse.dn.chunk_objects import ChunkObjects, NewChunks
from hsparse.errors import BadRequest, TooLarge
from hsparse.format.fields import as_type, packed_type
from hsparse.format.kinds.chunk_kind import ChunkChange, ChunkKind, DefinedElements, FoundElements, Search
from hsparse.format.kinds.registry import kind_of
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.format.query import Ordering, bind_query
from hsparse.format.reductions.partials import Partials
from hsparse.format.selections.orthogonal import Orthogonal
from hsparse.model.json_values import Values
from hsparse.wire.chunk_message import (
    CountDefined,
    EraseChunks,
    FenceDeleted,
    FindElements,
    ReadChunks,
    ReadDefined,
    ReduceChunks,
    TrimChunks,
    UpdateElements,
    WriteChunks,
)

T = TypeVar("T")

MIB = 1024 * 1024
WORK_AT_ONCE = 128 * MIB
"""The work on large chunks of all messages together, in bytes: one value may fill many chunks."""
SMALL_WORK = MIB
"""Less work does not take from that budget: few chunks of a message are worked on at a time anyway."""
MAX_WORK = 2048 * MIB
"""The most bytes that work on one chunk may take: one value may fill a sparse chunk of 2^32-1 elements."""
FIRST_WAVE = 4
"""How many chunks a query with a limit reads first; then twice as many, and so on."""


class Chunks:
    """Answers the messages of `hsparse.wire.chunk_message`."""

    def __init__(self, objects: ChunkObjects, workers: OffloadPool, pending: MemoryBudget) -> None:
        self._objects = objects
        self._workers = workers
        self._pending = pending
        self._working = MemoryBudget(WORK_AT_ONCE)
        self._new = NewChunks()

    async def read(self, message: ReadChunks) -> tuple[Values | int | None, ...]:
        """Answer `ReadChunks`."""
        kind, fields, room = kind_of(message.spec), message.fields, _Room(message.limit)

        async def read(at: ChunkSelection) -> Values | int | None:
            if room.spent:
                return 0
            with self._objects.use(kind, at.scaled) as cached:
                async with self._work(kind.load_bound(at.selection)):
                    chunk = await self._chunk(kind, at, cached)
                if chunk is None:
                    return None
                work = kind.read_work(chunk, at.selection, fields)
                found = await self._workers.run(work, kind.read, chunk, at.selection, fields, room.left)
            if found is None or isinstance(found, int):
                room.take(found or 0)
                return found
            nbytes = kind.answer_bytes(found)
            return found if room.take(nbytes) else nbytes

        return tuple(await self._each(read, message.selections, kind.chunks_at_once))

    async def read_defined(self, message: ReadDefined) -> tuple[DefinedElements | int | None, ...]:
        """Answer `ReadDefined`."""
        kind, room, alone = kind_of(message.spec), _Room(message.limit), len(message.selections) == 1

        async def read(at: ChunkSelection) -> DefinedElements | int | None:
            if room.spent:
                return 0
            with self._objects.use(kind, at.scaled) as cached:
                chunk = await self._chunk(kind, at, cached)
                if chunk is None:
                    return None
                found = await self._workers.run(
                    kind.defined_work(chunk, at.selection),
                    kind.defined,
                    chunk,
                    at.selection,
                    message.places_only,
                    room.left,
                    alone,
                )
            if found is None or isinstance(found, int):
                room.take(found or 0)
                return found
            nbytes = found.offsets.nbytes + kind.answer_bytes(found.values)
            return found if room.take(nbytes) or alone else nbytes

        return tuple(await self._each(read, message.selections, kind.chunks_at_once))

    async def count(self, message: CountDefined) -> tuple[int, ...]:
        """Answer `CountDefined`."""
        kind = kind_of(message.spec)

        async def count(at: ChunkSelection) -> int:
            with self._objects.use(kind, at.scaled) as cached:
                chunk = await self._chunk(kind, at, cached)
                if chunk is None:
                    return 0
                return await self._workers.run(kind.nbytes(chunk), kind.count, chunk, at.selection)

        return tuple(await self._each(count, message.selections, kind.chunks_at_once))

    async def write(self, message: WriteChunks) -> None:
        """Answer `WriteChunks`."""
        kind, fields, drop_fill = kind_of(message.spec), message.fields, message.drop_fill
        if len(message.selections) != len(message.values):
            raise BadRequest(
                f"{len(message.selections)} chunk selections came with {len(message.values)} arrays of values."
            )
        _check_work(kind, message.selections)

        async def write(item: tuple[ChunkSelection, Values]) -> None:
            at, values = item
            change = kind.write(at, values, fields, drop_fill)
            if at.full and not drop_fill and not fields and kind.replaces(at, values):
                await self._change(kind, at, change, Base.IGNORED, values.nbytes)
                return
            grown = at.begins_outside(message.grown_from, kind.spec.dims)
            is_guess = not drop_fill and (grown or self._new.expects(kind.spec.dataset))
            is_new = False

            def note(chunk: Any) -> Any:
                nonlocal is_new
                is_new = chunk is None
                return change(chunk)

            await self._change(kind, at, note, Base.ABSENT if is_guess else Base.NEEDED, values.nbytes)
            self._new.note(kind.spec.dataset, is_new)

        await self._objects.begin(kind.spec)
        async with self._pending.hold(sum(values.nbytes for values in message.values)):
            pairs = list(zip(message.selections, message.values, strict=True))
            await self._each(write, pairs, kind.chunks_at_once)

    async def _change(
        self, kind: ChunkKind[Any], at: ChunkSelection, change: ChunkChange[Any, T], base: Base, written: int
    ) -> T:
        """Change a chunk within the budget of work, see `ChunkObjects.apply`."""
        nbytes = kind.change_bound(at.selection)
        async with self._work(nbytes):
            return await self._objects.apply(kind, at.scaled, change, nbytes, base, written)

    async def find(self, message: FindElements) -> tuple[FoundElements | None, ...]:
        """Answer `FindElements`: in waves, where the selections are in order, until the limit is reached."""
        spec, selections, limit = message.spec, message.selections, message.limit
        kind, query = kind_of(spec), bind_query(message.query, spec.dtype)
        ordering = Ordering.parse(message.order_by, spec.dtype) if message.order_by else None
        search = Search(query, limit, message.fields, message.places_only, ordering)
        takes_fill = query.takes(spec.fill_value)
        _check_work(kind, selections if takes_fill else ())

        async def find(at: ChunkSelection) -> FoundElements | None:
            bound = kind.change_bound if takes_fill else kind.load_bound
            work = at.selection.size * spec.dtype.itemsize
            async with self._work(bound(at.selection)):
                with self._objects.use(kind, at.scaled) as cached:
                    chunk = await self._chunk(kind, at, cached)
                    if chunk is None:
                        return None
                    return await self._workers.run(work, kind.find, chunk, at.selection, search)

        found: list[FoundElements | None] = []
        seen, wave = 0, FIRST_WAVE if message.in_order and limit else len(selections)
        while len(found) < len(selections) and not (message.in_order and limit and seen >= limit):
            some = selections[len(found) : len(found) + wave]
            answers = await self._each(find, some, kind.chunks_at_once)
            for at, answer in zip(some, answers, strict=True):
                seen += len(answer.positions) if answer else takes_fill * at.selection.size
            found += answers
            wave = 2 * wave
        none = FoundElements.none(packed_type(spec.dtype, message.fields))
        return (*found, *(none for _ in selections[len(found) :]))

    async def update(self, message: UpdateElements) -> tuple[FoundElements, ...]:
        """Answer `UpdateElements`."""
        spec = message.spec
        kind, search = kind_of(spec), Search(bind_query(message.query, spec.dtype), fields=message.fields)
        value = as_type(message.value, packed_type(spec.dtype, message.fields))
        takes_fill = search.query.takes(spec.fill_value)
        _check_work(kind, message.selections if takes_fill else ())

        async def update(at: ChunkSelection) -> FoundElements:
            change = kind.update(at, search, value)
            bound = kind.change_bound if takes_fill else kind.load_bound
            nbytes = bound(at.selection)
            async with self._work(nbytes):
                return await self._objects.apply(kind, at.scaled, change, nbytes, Base.NEEDED)

        await self._objects.begin(spec)
        return tuple(await self._each(update, message.selections, kind.chunks_at_once))

    async def erase(self, message: EraseChunks) -> None:
        """Answer `EraseChunks`."""
        kind = kind_of(message.spec)

        async def erase(at: ChunkSelection) -> None:
            change = kind.erase(at.selection)
            await self._objects.apply(kind, at.scaled, change, at.selection.size, Base.NEEDED)

        await self._objects.begin(message.spec)
        await self._each(erase, message.selections, kind.chunks_at_once)

    async def trim(self, message: TrimChunks) -> None:
        """Answer `TrimChunks`."""
        spec, kind = message.spec, kind_of(message.spec)
        await self._objects.begin(spec)
        self._objects.check(spec)
        await self._objects.settle(spec.dataset)

        async def trim(scaled: tuple[int, ...]) -> None:
            pairs = zip(scaled, spec.dims, message.extent, strict=True)
            stop = tuple(max(0, extent - i * dim) for i, dim, extent in pairs)
            if not all(stop):
                await self._objects.apply(kind, scaled, lambda chunk: (None, None), 0, Base.IGNORED)
            else:
                await self._objects.apply(kind, scaled, kind.trim(scaled, stop), 0, Base.NEEDED)

        await self._each(trim, message.scaled, kind.chunks_at_once)

    async def fence_deleted(self, message: FenceDeleted) -> None:
        """Answer `FenceDeleted`."""
        await self._objects.fence_deleted(message.dataset)

    @asynccontextmanager
    async def loaded(self, kind: ChunkKind[Any], at: ChunkSelection) -> AsyncIterator[Any]:
        """Yield a chunk to read a selection of it, None where there is none; its memory is reserved in the context."""
        with self._objects.use(kind, at.scaled) as cached:
            async with self._work(kind.load_bound(at.selection)):
                chunk = await self._chunk(kind, at, cached)
            yield chunk

    async def _chunk(self, kind: ChunkKind[Any], at: ChunkSelection, cached: CachedObject[Any]) -> Any:
        chunk = await cached.read()
        if chunk is not None:
            return chunk
        return await self._workers.run(kind.spec.computed_bytes, kind.missing, at.scaled)

    def _work(self, nbytes: int) -> AbstractAsyncContextManager[None]:
        """Return the budget for work on `nbytes`, to be held while it lasts."""
        return nullcontext() if nbytes <= SMALL_WORK else self._working.hold(nbytes)

    async def _each(self, function: Callable[[Any], Awaitable[T]], items: Any, most: int) -> list[T]:
        if len(items) == 1:
            return [await function(items[0])]
        return await gather_each(function, items, most)


class _Room:
    """The bytes that the answer to one message may still have; concurrent reads share them."""

    def __init__(self, limit: int) -> None:
        self.left = limit

    @property
    def spent(self) -> bool:
        """Whether an answer had more bytes than were left: the chunks after it are not read any more."""
        return self.left < 0

    def take(self, nbytes: int) -> bool:
        """Take `nbytes` from it; return False when there are not as many left."""
        self.left -= nbytes
        return not self.spent


def _check_work(kind: ChunkKind[Any], selections: Iterable[ChunkSelection]) -> None:
    """Raise `TooLarge` when work on one of the chunks takes more than `MAX_WORK`."""
    most = max((kind.change_bound(at.selection) for at in selections), default=0)
    if most > MAX_WORK:
        raise TooLarge(f"Work on so much of one chunk takes {most} bytes of memory; name less at a time.")


REDUCTIONS_AT_ONCE = 128 * 1024 * 1024
"""What reducing chunks takes at a time, besides the chunks and the results, in bytes."""
WAVE_BYTES = 64 * 1024 * 1024
"""Partial results of chunks that wait to be merged."""
PLACE_BYTES = 64
"""The most bytes of one place in partial results, and of its index."""


class ChunkReductions:
    """Answers `ReduceChunks`."""

    def __init__(self, chunks: Chunks, workers: OffloadPool, pending: MemoryBudget) -> None:
        self._chunks = chunks
        self._workers = workers
        self._pending = pending
        self._working = MemoryBudget(REDUCTIONS_AT_ONCE)

    async def reduce(self, message: ReduceChunks) -> Partials:
        """Answer the message."""
        reduction, kind = message.reduction, kind_of(message.spec)
        dtype = message.spec.dtype
        dtype = dtype[reduction.field] if reduction.field else dtype
        async with self._pending.hold(reduction.places * PLACE_BYTES):
            result = Partials.empty(reduction.places, dtype, reduction.columns)
            count, wave = len(message.selections), _wave(message, kind)
            for first in range(0, count, wave):
                numbers = range(first, min(first + wave, count))
                parts = await gather_each(lambda number: self._reduce(message, kind, number), numbers, wave)
                there = [part for part in parts if part is not None]
                del parts
                await self._workers.run(sum(part.nbytes for part in there), _merge, result, there)
            return result.compact()

    async def _reduce(self, message: ReduceChunks, kind: ChunkKind[Any], number: int) -> Partials | None:
        """Return the partial results of one chunk, at places of the whole result; None where there is no chunk."""
        at = message.selections[number]
        async with self._chunks.loaded(kind, at) as chunk:
            if chunk is None:
                return None
            assert isinstance(at.selection, Orthogonal)
            async with self._working.hold(kind.reduce_bound(chunk, at.selection)):
                return await self._workers.run(
                    kind.nbytes(chunk), _reduce_chunk, message, kind, chunk, number
                )


def _wave(message: ReduceChunks, kind: ChunkKind[Any]) -> int:
    """Return how many chunks to reduce before they are merged."""
    reduction = message.reduction
    nbytes = 16 + 8 * len(reduction.columns) + (8 if "total" in reduction.columns else 0)
    places = prod(reduction.box_shape(tuple(message.spec.dims)))
    return max(1, min(kind.chunks_at_once, WAVE_BYTES // (places * nbytes or 1)))


def _reduce_chunk(message: ReduceChunks, kind: ChunkKind[Any], chunk: Any, number: int) -> Partials:
    reduction, at = message.reduction, message.selections[number]
    selection, origin = at.selection, message.origins[number].tolist()
    assert isinstance(selection, Orthogonal)
    codes = None
    if message.codes is not None:
        first = origin[reduction.grouped] - message.first_code
        codes = message.codes[first : first + selection.shape[reduction.grouped]]
    found = kind.reduce(chunk, selection, reduction, codes)
    return found.placed(reduction, selection.shape, origin)


def _merge(result: Partials, parts: list[Partials]) -> None:
    for part in parts:
        result.merge(part)
