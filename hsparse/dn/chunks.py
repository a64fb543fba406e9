"""Read, find, count and change elements of the chunks that a data node owns.

A chunk's kind (`hsparse.format.kinds`) reads and changes its elements. This module loads and commits chunks, and limits
their memory. `ChunkObjects` caches and changes chunk objects behind the fences of their datasets. `NewChunkStreaks`
guesses whether the next written chunk is new, so that the store need not be asked for it first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeVar

from hsparse.bounded_cache import BoundedCache
from hsparse.compute import compute
from hsparse.concurrency.gathering import gather_each
from hsparse.concurrency.memory_budget import MemoryBudget
from hsparse.dn.cache import Cache
from hsparse.dn.cached_object import Base, CachedObject
from hsparse.dn.fences import Fences
from hsparse.dn.membership.member_ownership import Accepted
from hsparse.dn.membership.ownership import SOLE, Ownership
from hsparse.dn.records import HsdsSummaries
from hsparse.dn.redo_log import RedoLog
from hsparse.dn.stored_form import SMALL_VALUE, ObjectMemory, Reservation, SingleObject
from hsparse.errors import BadRequest, Corrupt, HsparseError, StoreFailed, TooLarge, Unanswered
from hsparse.format.buffer import Buffer
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.fields import as_type, packed_type
from hsparse.format.kinds.chunk_kind import ChunkChange, ChunkKind, DefinedElements, FoundElements, Search
from hsparse.format.kinds.registry import kind_of
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.format.query import bind_query
from hsparse.format.reductions.partials import reduction_bytes
from hsparse.format.selections.orthogonal import Orthogonal
from hsparse.format.structured.container import MAX_FOOTER
from hsparse.model.ids import tree_prefix
from hsparse.model.json_values import Values
from hsparse.storage.object_store import ObjectStore
from hsparse.wire.chunk_message import (
    CountDefined,
    EraseChunks,
    FenceDeleted,
    FindElements,
    ReadChunks,
    ReadDefined,
    TrimChunks,
    UpdateElements,
    WriteChunks,
)

T = TypeVar("T")
Scaled = tuple[int, ...]

MIB = 1024 * 1024
WORK_AT_ONCE = 128 * MIB
"""Memory, in bytes, that all messages share for work on chunks: one value may fill many chunks."""
SMALL_WORK = MIB
"""Work on at most this many bytes is not counted in `WORK_AT_ONCE`, as a message works on few chunks at a time."""
MAX_WORK = 2048 * MIB
"""The most bytes that work on one chunk may take: one value may fill a sparse chunk of 2^32-1 elements."""
SMALL_WRITE = 64 * 1024
"""Values of at most this many bytes are not counted in the budget for writes, as few messages arrive at a time."""
FIRST_WAVE = 4
"""How many chunks a query with a limit reads first; each further wave has twice as many."""
LEAST_WRITTEN = 512
"""The memory, in bytes, of a change in the `RedoLog`, apart from the values that it writes."""


@dataclass(frozen=True, slots=True)
class ChunkCodec:
    """Encodes and decodes the chunk in the object `key`, by its kind."""

    key: str
    kind: ChunkKind[Any]
    reservation: Reservation
    speed: ClassVar[int] = 1

    def decode(self, data: bytes) -> Any:
        try:
            return self.kind.decode(data)
        except Corrupt as error:
            raise Corrupt(f"The chunk object {self.key} is corrupt: {error.message}") from error

    def encode(self, value: Any) -> Buffer:
        """Return the object's bytes; raise `TooLarge` for a chunk that this server could not load."""
        data = self.kind.encode(value)
        if not self.kind.spec.sparse or self.kind.nbytes(value) > SMALL_VALUE:
            self.reservation.check(self.decode_bound(data))
        return data

    def decode_bound(self, data: Buffer) -> int:
        try:
            return self.kind.decode_bound(data)
        except Corrupt as error:
            raise Corrupt(f"The chunk object {self.key} is corrupt: {error.message}") from error

    def nbytes(self, value: Any, data: Buffer) -> int:
        return self.kind.nbytes(value)


class ChunkObjects:
    """The cached objects of chunks, by dataset and scaled coordinates, over the node's cache and store."""

    def __init__(
        self,
        store: ObjectStore,
        cache: Cache,
        fences: Fences,
        summaries: HsdsSummaries,
        ownership: Ownership = SOLE,
        *,
        redo_log: RedoLog,
        memory: MemoryBudget,
    ) -> None:
        self._store = store
        self._memory = memory
        self._ownership = ownership
        self._cache = cache
        self.fences = fences
        self._summaries = summaries
        self._redo_log = redo_log

    async def begin(self, spec: ChunkSpec) -> None:
        """Prepare a change of chunks: delete HSDS's summary of the domain, and learn the dataset's generation."""
        await self._summaries.remove(spec.dataset)
        await self.fences.learn(spec.dataset)

    @contextmanager
    def use(self, kind: ChunkKind[Any], scaled: Scaled) -> Iterator[CachedObject[Any]]:
        """Yield a chunk's cached object, which stays in memory while in use."""
        key = kind.spec.key(scaled)
        with self._cache.use(key, lambda: self._make(key, kind, scaled)) as cached:
            cached.users += 1
            try:
                yield cached
            finally:
                cached.users -= 1
                cached.release()

    def reservation(self, spec: ChunkSpec, scaled: Scaled) -> Reservation:
        """Return a new reservation for the memory of a chunk; it holds no memory yet."""
        return Reservation(
            self._memory,
            f"The chunk {list(scaled)} of {spec.dataset}",
            "write fewer elements to it, make the dataset's chunks smaller, or start the server with a larger "
            "--chunk-memory",
        )

    def _make(self, key: str, kind: ChunkKind[Any], scaled: Scaled) -> CachedObject[Any]:
        tail = MAX_FOOTER if kind.spec.sparse else 0
        codec = ChunkCodec(key, kind, self.reservation(kind.spec, scaled))
        memory = ObjectMemory(codec.reservation, codec.decode_bound, kind.encode_bound)
        form = SingleObject(key, self._store, codec, tail, memory)
        return CachedObject(form, self._ownership, memory=memory)

    async def apply(
        self,
        kind: ChunkKind[Any],
        scaled: Scaled,
        change: ChunkChange[Any, T],
        weight: int,
        base: Base,
        accepted: Accepted | None,
        written: int = 0,
    ) -> T:
        """Change a chunk by `CachedObject.apply` if its fence allows; `written` is the size of the values in bytes."""
        self.fences.check(kind.spec)
        with self.use(kind, scaled) as cached:
            if accepted is None:
                return await cached.apply(change, weight=weight, base=base)
            logged = self._redo_log.logged(cached.key, change, written + LEAST_WRITTEN, accepted)
            try:
                return await cached.apply(logged, weight=weight, base=base, term=accepted.term)
            except (Unanswered, StoreFailed):  # the change may have been stored
                raise
            except HsparseError:
                self._redo_log.remove(logged)
                raise

    async def settle(self, id: str) -> None:
        """Wait until the accepted chunk changes of a dataset, or of all datasets of a root group, are durable."""
        prefix = tree_prefix(id)
        for cached in self._cache:
            if cached.key.startswith(prefix):
                await cached.settle()

    async def fence_deleted(self, id: str) -> None:
        """Refuse operations on the chunks of a dataset, or of all datasets of a root group, from now on.

        The cached chunks are dropped after their accepted changes are settled.
        """
        self.fences.refuse_deleted(id)
        await self.settle(id)
        self._cache.drop(tree_prefix(id))


NEW_CHUNKS_STREAK = 8
"""This many new chunks of a dataset in succession make it likely that the next chunk is new."""
MAX_DATASETS = 1024
KINDS_BYTES = 16 * MIB
"""The most bytes of memory of remembered `ChunkKind` objects."""


class NewChunkStreaks:
    """Counts, by dataset, how many chunks in succession were new; only the last written datasets are remembered.

    A dataset that is being filled has a long streak. A wrong guess costs a put that the store refuses, at most once in
    `NEW_CHUNKS_STREAK` chunks; a right guess saves a read.
    """

    def __init__(self) -> None:
        self._streaks: BoundedCache[str, int] = BoundedCache.of_entries(MAX_DATASETS)

    def expects(self, dataset: str) -> bool:
        """Return whether the next written chunk is probably new."""
        return self._streaks.get(dataset, 0) >= NEW_CHUNKS_STREAK

    def note(self, dataset: str, is_new: bool) -> None:
        """Record whether a written chunk was new."""
        self._streaks.keep(dataset, self._streaks.get(dataset, 0) + 1 if is_new else 0)


def _ask_missing(
    kind: ChunkKind[Any], at: ChunkSelection, ask: Callable[..., T], rest: tuple[Any, ...]
) -> T | None:
    """Return the answer of `ask` about a missing chunk, or None if the chunk has no computed values (`arange`)."""
    chunk = kind.missing(at.scaled)
    return None if chunk is None else ask(chunk, at.selection, *rest)


class Chunks:
    """Answers the messages of `hsparse.wire.chunk_message`."""

    def __init__(self, objects: ChunkObjects, pending: MemoryBudget) -> None:
        self._objects = objects
        self._pending = pending
        self._working = MemoryBudget(WORK_AT_ONCE)
        self._new = NewChunkStreaks()
        self._kinds: BoundedCache[str, ChunkKind[Any]] = BoundedCache(KINDS_BYTES)

    async def read(self, message: ReadChunks) -> tuple[Values | int | None, ...]:
        """Answer `ReadChunks`: return for each chunk selection its values, or their size if over the limit, or None."""
        kind, fields, left = self._kind(message.spec), message.fields, message.limit

        async def read(at: ChunkSelection) -> Values | int | None:
            nonlocal left
            if left < 0:
                return 0
            with self._objects.use(kind, at.scaled) as cached:
                async with self._work(kind.load_bound(at.selection)):
                    work = partial(kind.read_work, fields=fields)
                    found = await self._asked(kind, at, cached, work, kind.read, fields, left)
            nbytes = found if isinstance(found, int) else 0 if found is None else kind.answer_bytes(found)
            left -= nbytes
            return found if found is None or left >= 0 else nbytes

        return tuple(await gather_each(read, message.selections, kind.chunks_at_once))

    async def read_defined(self, message: ReadDefined) -> tuple[DefinedElements | int | None, ...]:
        """Answer `ReadDefined`: return for each chunk selection its defined elements, or their size, or None."""
        kind, left, alone = self._kind(message.spec), message.limit, len(message.selections) == 1

        async def read(at: ChunkSelection) -> DefinedElements | int | None:
            nonlocal left
            if left < 0:
                return 0
            with self._objects.use(kind, at.scaled) as cached:
                rest = message.places_only, left, alone
                found = await self._asked(kind, at, cached, kind.defined_work, kind.defined, *rest)
            if found is None or isinstance(found, int):
                left -= found or 0
                return found
            nbytes = found.offsets.nbytes + kind.answer_bytes(found.values)
            left -= nbytes
            return found if left >= 0 or alone else nbytes

        return tuple(await gather_each(read, message.selections, kind.chunks_at_once))

    async def count(self, message: CountDefined) -> tuple[int, ...]:
        """Answer `CountDefined`: return the number of defined elements in each chunk selection."""
        kind = self._kind(message.spec)

        async def count(at: ChunkSelection) -> int:
            with self._objects.use(kind, at.scaled) as cached:
                return (
                    await self._asked(kind, at, cached, lambda chunk, _: kind.nbytes(chunk), kind.count) or 0
                )

        return tuple(await gather_each(count, message.selections, kind.chunks_at_once))

    async def write(self, message: WriteChunks, accepted: Accepted | None = None) -> None:
        """Answer `WriteChunks`: write the values of each chunk selection, and return once they are durable."""
        kind, fields, drop_fill = self._kind(message.spec), message.fields, message.drop_fill
        if len(message.selections) != len(message.values):
            raise BadRequest(
                f"{len(message.selections)} chunk selections need as many arrays of values, not {len(message.values)}."
            )
        bounds = [kind.change_bound(at.selection) for at in message.selections]
        _check_work(bounds)

        async def write(item: tuple[ChunkSelection, Values, int]) -> None:
            at, values, bound = item
            change, is_new = kind.write(at, values, fields, drop_fill), False

            def note(chunk: Any) -> Any:
                nonlocal is_new
                is_new = chunk is None
                return change(chunk)

            replaces = at.full and not drop_fill and not fields and kind.replaces(at, values)
            base = Base.IGNORED if replaces else Base.NEEDED
            if not (replaces or drop_fill) and self._is_likely_new(message, at):
                base = Base.ABSENT
            async with self._work(bound):
                applied = change if replaces else note
                await self._objects.apply(kind, at.scaled, applied, bound, base, accepted, values.nbytes)
            if not replaces:
                self._new.note(kind.spec.dataset, is_new)

        await self._objects.begin(kind.spec)
        nbytes = sum([values.nbytes for values in message.values])
        async with nullcontext() if nbytes <= SMALL_WRITE else self._pending.hold(nbytes):
            items = zip(message.selections, message.values, bounds, strict=True)
            await gather_each(write, items, kind.chunks_at_once)

    def _is_likely_new(self, message: WriteChunks, at: ChunkSelection) -> bool:
        """Return whether a chunk is probably new: an append has added it to the extent, or the last chunks were new."""
        if message.grown_from and at.begins_outside(message.grown_from, message.spec.dims):
            return True
        return self._new.expects(message.spec.dataset)

    async def find(self, message: FindElements) -> tuple[FoundElements | None, ...]:
        """Answer `FindElements`; if the selections are in order, read them in waves until the limit is reached."""
        spec, selections, wanted = message.spec, message.selections, message.wanted
        kind, search, limit = self._kind(spec), wanted.bound(spec.dtype), wanted.limit
        takes_fill = search.query.takes(spec.fill_value)
        if takes_fill:
            _check_work(kind.change_bound(at.selection) for at in selections)

        async def find(at: ChunkSelection) -> FoundElements | None:
            bound = kind.change_bound if takes_fill else kind.load_bound
            work = at.selection.size * spec.dtype.itemsize
            async with self._work(bound(at.selection)):
                with self._objects.use(kind, at.scaled) as cached:
                    return await self._asked(kind, at, cached, lambda *_: work, kind.find, search)

        found: list[FoundElements | None] = []
        seen, wave = 0, FIRST_WAVE if wanted.in_order and limit else len(selections)
        while len(found) < len(selections) and not (wanted.in_order and limit and seen >= limit):
            some = selections[len(found) : len(found) + wave]
            answers = await gather_each(find, some, kind.chunks_at_once)
            for at, answer in zip(some, answers, strict=True):
                seen += len(answer.positions) if answer else takes_fill * at.selection.size
            found += answers
            wave = 2 * wave
        none = FoundElements.none(packed_type(spec.dtype, wanted.fields))
        return (*found, *(none for _ in selections[len(found) :]))

    async def update(
        self, message: UpdateElements, accepted: Accepted | None = None
    ) -> tuple[FoundElements, ...]:
        """Answer `UpdateElements`: set the elements that match the query, and return the elements set in each chunk."""
        spec = message.spec
        kind, search = self._kind(spec), Search(bind_query(message.query, spec.dtype), fields=message.fields)
        value = as_type(message.value, packed_type(spec.dtype, message.fields))
        takes_fill = search.query.takes(spec.fill_value)
        if takes_fill:
            _check_work(kind.change_bound(at.selection) for at in message.selections)

        async def update(at: ChunkSelection) -> FoundElements:
            change = kind.update(at, search, value)
            bound = kind.change_bound if takes_fill else kind.load_bound
            nbytes = bound(at.selection)
            async with self._work(nbytes):
                return await self._objects.apply(kind, at.scaled, change, nbytes, Base.NEEDED, accepted)

        await self._objects.begin(spec)
        return tuple(await gather_each(update, message.selections, kind.chunks_at_once))

    async def erase(self, message: EraseChunks, accepted: Accepted | None = None) -> None:
        """Answer `EraseChunks`: make the selected elements undefined, and return once this is durable."""
        kind = self._kind(message.spec)

        async def erase(at: ChunkSelection) -> None:
            change = kind.erase(at.selection)
            await self._objects.apply(kind, at.scaled, change, at.selection.size, Base.NEEDED, accepted)

        await self._objects.begin(message.spec)
        await gather_each(erase, message.selections, kind.chunks_at_once)

    async def trim(self, message: TrimChunks, accepted: Accepted | None = None) -> None:
        """Answer `TrimChunks`: erase the elements outside the extent, and refuse operations of older generations."""
        spec, kind = message.spec, self._kind(message.spec)
        await self._objects.begin(spec)
        self._objects.fences.check(spec)
        await self._objects.settle(spec.dataset)

        async def trim(scaled: tuple[int, ...]) -> None:
            pairs = zip(scaled, spec.dims, message.extent, strict=True)
            change: ChunkChange[Any, None]
            stop = tuple(max(0, extent - i * dim) for i, dim, extent in pairs)
            below = zip(scaled, spec.dims, message.first, strict=False)
            start = tuple(max(0, first - i * dim) for i, dim, first in below)
            if not all(stop) or any(map(int.__ge__, start, spec.dims)):
                change, base = _delete, Base.IGNORED
            else:
                change, base = kind.trim(scaled, stop, start), Base.NEEDED
            await self._objects.apply(kind, scaled, change, 0, base, accepted)

        await gather_each(trim, message.scaled, kind.chunks_at_once)

    async def fence_deleted(self, message: FenceDeleted) -> None:
        """Answer `FenceDeleted`: refuse all further operations on the chunks of deleted datasets."""
        await self._objects.fence_deleted(message.id)

    async def reduce(
        self, kind: ChunkKind[Any], at: ChunkSelection, budget: MemoryBudget, reduce: Callable[..., T]
    ) -> T | None:
        """Return `reduce(chunk, selection)`, or None if the chunk is missing; the call's memory is held in `budget`."""

        def reserved(chunk: Any) -> AbstractAsyncContextManager[None]:
            if chunk is None:  # a missing chunk's values may be computed
                nbytes = kind.load_bound(at.selection) + reduction_bytes(at.selection.size)
                return budget.hold(nbytes if kind.spec.arange else 0)
            assert isinstance(at.selection, Orthogonal)
            return budget.hold(kind.reduce_bound(chunk, at.selection))

        with self._objects.use(kind, at.scaled) as cached:
            return await self._asked(
                kind, at, cached, lambda chunk, _: kind.nbytes(chunk), reduce, reserved=reserved
            )

    async def _asked(
        self,
        kind: ChunkKind[Any],
        at: ChunkSelection,
        cached: CachedObject[Any],
        work: Callable[..., int],
        ask: Callable[..., T],
        *rest: Any,
        reserved: Callable[[Any], AbstractAsyncContextManager[None]] | None = None,
    ) -> T | None:
        """Return the answer of `ask` about a chunk, or None if it has no values; `work` returns the bytes of work."""
        chunk = await cached.read()
        answer: Callable[[], T | None] = partial(_ask_missing, kind, at, ask, rest)
        if chunk is not None:
            answer = partial(ask, chunk, at.selection, *rest)
        nbytes = kind.spec.computed_bytes if chunk is None else work(chunk, at.selection)
        async with nullcontext() if reserved is None else reserved(chunk):
            return await compute(nbytes, answer)

    def _kind(self, spec: ChunkSpec) -> ChunkKind[Any]:
        """Return the `ChunkKind` of a dataset's chunks; reuse it if the last message had the same `spec` object."""
        known = self._kinds.get(spec.dataset)
        if known is None or known.spec is not spec:
            known = kind_of(spec)
            self._kinds.keep(spec.dataset, known, spec.nbytes)
        return known

    def _work(self, nbytes: int) -> AbstractAsyncContextManager[None]:
        """Return a context that holds the memory for work on `nbytes` bytes."""
        return nullcontext() if nbytes <= SMALL_WORK else self._working.hold(nbytes)


def _delete(chunk: Any) -> tuple[None, None]:
    """Return the result of a change that deletes the chunk."""
    return None, None


def _check_work(bounds: Iterable[int]) -> None:
    """Raise `TooLarge` if the largest of `bounds`, the bytes of work on each chunk, exceeds `MAX_WORK`."""
    most = max(bounds, default=0)
    if most > MAX_WORK:
        raise TooLarge(f"Work on one chunk takes {most} bytes (limit: {MAX_WORK}); select fewer elements.")
