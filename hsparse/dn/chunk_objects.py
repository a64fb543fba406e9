"""The chunk objects that a data node owns, cached and changed behind the fences of their datasets.

A guess whether the next chunk that is written is new: so the store need not be asked for it first.

A listing of which the next page is asked for while one is worked on.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from hsparse.concurrency.memory_budget import MemoryBudget, Reservation
from hsparse.concurrency.offload import OffloadPool
from hsparse.dn.cache import Base, Cache
from hsparse.dn.cached_object import CachedObject
from hsparse.dn.fences import Fences, LaterChanges
from hsparse.dn.hsds_summaries import HsdsSummaries
from hsparse.dn.membership.ownership import SOLE, Ownership
from hsparse.dn.stored_form import ObjectMemory, SingleObject
from hsparse.errors import Corrupt, HsparseError, StoreFailed, Unanswered
from hsparse.format.buffer import Buffer
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.kinds.chunk_kind import ChunkChange, ChunkKind
from hsparse.format.structured.container import MAX_FOOTER
from hsparse.model.ids import chunk_prefix
from hsparse.storage.object_store import ObjectStore

T = TypeVar("T")
Scaled = tuple[int, ...]
LEAST_WRITTEN = 512
"""Bytes that a change takes itself, besides those that it writes."""


@dataclass(frozen=True, slots=True)
class ChunkCodec:
    """Bytes <-> chunk for the object of `key`, by its kind."""

    key: str
    kind: ChunkKind[Any]
    reservation: Reservation

    def decode(self, data: bytes) -> Any:
        try:
            return self.kind.decode(data)
        except Corrupt as error:
            raise Corrupt(f"The chunk object {self.key} is corrupt: {error.message}") from error

    def encode(self, value: Any) -> Buffer:
        """Return the object's bytes; `TooLarge` for a chunk that this server could never load."""
        data = self.kind.encode(value)
        self.reservation.check(self.decode_bound(data))
        return data

    def decode_bound(self, data: Buffer) -> int:
        try:
            return self.kind.decode_bound(data)
        except Corrupt as error:
            raise Corrupt(f"The chunk object {self.key} is corrupt: {error.message}") from error

    def nbytes(self, value: Any, data: Buffer) -> int:
        return self.kind.nbytes(value)

    def work(self, nbytes: int) -> int:
        return nbytes


class ChunkObjects:
    """Chunks by dataset and scaled coordinates, over the node's cache and store."""

    def __init__(
        self,
        store: ObjectStore,
        cache: Cache,
        workers: OffloadPool,
        fences: Fences,
        summaries: HsdsSummaries,
        ownership: Ownership = SOLE,
        later: LaterChanges | None = None,
        *,
        memory: MemoryBudget,
    ) -> None:
        self._store = store
        self._memory = memory
        self._ownership = ownership
        self._cache = cache
        self._workers = workers
        self._fences = fences
        self._summaries = summaries
        self._later = later

    async def begin(self, spec: ChunkSpec) -> None:
        """Prepare a change of a dataset's chunks: HSDS's summary is removed, and the dataset's fence is known.

        Most often both are done already.
        """
        await self._summaries.remove(spec.dataset)
        await self._fences.learn(spec.dataset)

    def check(self, spec: ChunkSpec) -> None:
        """Raise `Moved` when the extent was shrunk since `spec` was read, `Gone` for a deleted dataset."""
        self._fences.check(spec)

    @contextmanager
    def use(self, kind: ChunkKind[Any], scaled: Scaled) -> Iterator[CachedObject[Any]]:
        """Yield a chunk's cached object, which stays in memory while it is used; raises as `check` does."""
        self._fences.check(kind.spec)
        key = kind.spec.key(scaled)
        with self._cache.use(key, lambda: self._make(key, kind, scaled)) as cached, cached.in_use:
            yield cached

    def reservation(self, spec: ChunkSpec, scaled: Scaled) -> Reservation:
        """Return a reservation of nothing yet, for a chunk."""
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
        form = SingleObject(key, self._store, codec, self._workers, tail, memory)
        return CachedObject(form, self._workers, self._ownership, memory=memory)

    async def apply(
        self,
        kind: ChunkKind[Any],
        scaled: Scaled,
        change: ChunkChange[Any, T],
        weight: int,
        base: Base,
        written: int = 0,
    ) -> T:
        """Change a chunk, see `CachedObject.apply`; `written` is the bytes that the change has of its own."""
        with self.use(kind, scaled) as cached:
            if self._later is None:
                return await cached.apply(change, weight=weight, base=base)
            ordered = self._later.ordered(cached.key, change, written + LEAST_WRITTEN)
            try:
                return await cached.apply(ordered, weight=weight, base=base)
            except (Unanswered, StoreFailed):  # it may have been stored
                raise
            except HsparseError:
                self._later.failed(ordered)
                raise

    async def settle(self, dataset: str) -> None:
        """Wait until the accepted changes of a dataset's chunks are durable."""
        prefix = chunk_prefix(dataset)
        for cached in self._cache:
            if cached.key.startswith(prefix):
                await cached.settle()

    async def fence_deleted(self, dataset: str) -> None:
        """Refuse operations on a dataset's chunks from now on, and drop them from the cache once they are settled."""
        self._fences.refuse_deleted(dataset)
        await self.settle(dataset)
        self._cache.drop(chunk_prefix(dataset))


STREAK = 8
"""So many new chunks of a dataset one after the other are a sign of more."""
MAX_DATASETS = 1024


class NewChunks:
    """How many chunks were new, one after the other, by dataset; those written to last are remembered.

    A dataset that is being filled has a streak of them. A wrong guess costs a put that the store refuses, once in
    `STREAK` chunks at most; a right one spares a read.
    """

    def __init__(self) -> None:
        self._streaks: OrderedDict[str, int] = OrderedDict()

    def expects(self, dataset: str) -> bool:
        """Say whether the next chunk is guessed to be new."""
        return self._streaks.get(dataset, 0) >= STREAK

    def note(self, dataset: str, is_new: bool) -> None:
        """Take note of a chunk that was written to: whether it was not there before."""
        self._streaks[dataset] = self._streaks.pop(dataset, 0) + 1 if is_new else 0
        if len(self._streaks) > MAX_DATASETS:
            self._streaks.popitem(last=False)


async def read_ahead(items: AsyncIterator[T]) -> AsyncGenerator[T, None]:
    """Yield the items; the next one is being read meanwhile. Close it (`contextlib.aclosing`) to leave it early."""
    following = _next(items)
    try:
        while (item := await following) is not None:
            following = _next(items)
            yield item
    finally:
        following.cancel()  # and not awaited: nothing can be, when a task is dropped
        del following  # an error has this frame, and would have itself


def _next(items: AsyncIterator[T]) -> asyncio.Task[T | None]:
    async def read() -> T | None:
        return await anext(items, None)

    reading = asyncio.create_task(read())
    # Who leaves early does not ask how it went.
    reading.add_done_callback(lambda task: task.cancelled() or task.exception())
    return reading
