"""A store that counts requests: for the request that they are sent for, and for the node by their results.

It is not piled up on when it is slow: so many requests are under way at a time, and users have turns.

The versions of datasets' chunks: a client that has the map of an unchanged dataset need not be sent it again.
"""

from __future__ import annotations

import asyncio
from asyncio import CancelledError
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from typing import TypeAlias, TypeVar, TypeVarTuple, Unpack

from hsparse.clock import Clock
from hsparse.concurrency.admission import Admission
from hsparse.concurrency.request_trace import Work, current_trace, in_span, queue_user
from hsparse.errors import NotFound, PreconditionFailed
from hsparse.model.ids import chunk_prefix
from hsparse.storage.object_store import Buffer, Entry, ObjectStore, Page, Stored

R = TypeVar("R")
A = TypeVarTuple("A")

StoreRequests: TypeAlias = Counter[tuple[str, str]]
"""Numbers of requests by kind and result: get, put, delete, list; ok, missing, conflict, cancelled, failed."""


class TracedStore:
    """An `ObjectStore` over another one; `requests` also counts those that no client's request is behind.

    Each request to it takes one of the `places`. Changes are noted in `versions`, also those that failed: they may have
    been carried out.
    """

    def __init__(
        self,
        store: ObjectStore,
        requests: StoreRequests | None = None,
        places: Admission | None = None,
        versions: ChunkVersions | None = None,
    ) -> None:
        self._store = store
        self._requests = Counter() if requests is None else requests
        self._places = places
        self._versions = versions
        self.name = store.name
        self.features: Collection[str] = getattr(store, "features", ())

    async def get(self, key: str) -> Stored:
        return await self._ask(Work.READS, "get", key, self._store.get, key)

    async def get_range(self, key: str, start: int, length: int | None = None) -> Stored:
        return await self._ask(Work.READS, "get", key, self._store.get_range, key, start, length)

    async def put(self, key: str, data: Buffer) -> str:
        return await self._change("put", (key,), self._store.put, key, data)

    async def put_if_absent(self, key: str, data: Buffer) -> str:
        return await self._change("put", (key,), self._store.put_if_absent, key, data)

    async def put_if_match(self, key: str, data: Buffer, etag: str) -> str:
        return await self._change("put", (key,), self._store.put_if_match, key, data, etag)

    async def delete(self, key: str) -> None:
        await self._change("delete", (key,), self._store.delete, key)

    async def delete_if_match(self, key: str, etag: str) -> None:
        await self._change("delete", (key,), self._store.delete_if_match, key, etag)

    async def delete_all(self, entries: Sequence[Entry]) -> list[bool]:
        """Delete them in one turn; counted as a request for each when it succeeds."""
        if not entries:
            return []
        keys = tuple(entry.key for entry in entries)
        deleted = await self._change("delete", keys, self._store.delete_all, entries)
        self._requests["delete", "ok"] += sum(deleted) - 1
        if changed := deleted.count(False):
            self._requests["delete", "conflict"] += changed
        return deleted

    async def list(
        self, prefix: str, *, delimiter: bool = False, start_after: str = ""
    ) -> AsyncIterator[Page]:
        pages = self._store.list(prefix, delimiter=delimiter, start_after=start_after)
        while (page := await self._ask(Work.READS, "list", prefix, anext, pages, None)) is not None:
            yield page

    async def presigned(self, key: str, seconds: int) -> str:
        return await self._store.presigned(key, seconds)

    async def close(self) -> None:
        await self._store.close()

    async def _change(
        self, kind: str, keys: tuple[str, ...], change: Callable[[Unpack[A]], Awaitable[R]], *args: *A
    ) -> R:
        """Send a change to the store; what it changes has a new version, and is invalidated when it did not answer."""
        if self._versions is None:
            return await self._ask(Work.WRITES, kind, keys[0], change, *args)
        try:
            return await self._ask(Work.WRITES, kind, keys[0], change, *args)
        except (PreconditionFailed, NotFound):
            raise
        except BaseException:
            self._versions.invalidate(keys)
            raise
        finally:
            self._versions.note(keys)

    async def _ask(
        self,
        work: Work,
        kind: str,
        key: str,
        request: Callable[[Unpack[A]], Awaitable[R]],
        *args: *A,
    ) -> R:
        """Send a request to the store in its turn, which nothing but cancellation keeps it from; count and time it."""
        trace, clock = current_trace(), asyncio.get_running_loop().time
        place = None if self._places is None else await self._places.enter(queue_user(), patient=True)
        result, began = "failed", clock()
        try:
            asked = request(*args)
            if trace is not None and trace.span is not None:
                asked = in_span(trace.span.child(f"store {kind}", {"hsparse.about": key}), asked)
            answer = await asked
            result = "ok"
            return answer
        except NotFound:
            result = "missing"
            raise
        except PreconditionFailed:
            result = "conflict"
            raise
        except CancelledError:
            result = "cancelled"
            raise
        finally:
            self._requests[kind, result] += 1
            if trace is not None:
                trace.add(work, clock() - began)
            if place is not None:
                place.leave()


MAX_DATASETS = 100_000
"""The most datasets whose last change is remembered, those that changed last."""

DOUBT = 600.0
"""Seconds after which a change that the store did not answer is not carried out any more."""


def chunk_prefix_of_key(key: str) -> str:
    """Return the prefix of the dataset whose record or chunk has this key."""
    return "/".join((*key.split("/", 4)[:4], ""))


class ChunkVersions:
    """Numbers the changes of chunks that this node makes. A version is of one run of the node."""

    def __init__(self, clock: Clock, limit: int = MAX_DATASETS) -> None:
        self._clock = clock
        self.reset()
        self._limit = limit
        self._count = 0
        self._forgotten = 0
        """The newest change of the datasets that are not remembered: it stands for all of them, so none is missed."""
        self._last: OrderedDict[str, int] = OrderedDict()
        self._doubted: dict[str, float] = {}
        """Until when the store may carry out a change that it did not answer, by dataset, without a note of it."""

    def note(self, keys: Iterable[str]) -> None:
        """Note that the chunk objects of these keys were changed; to be called before that is acknowledged."""
        for key in keys:
            self._advance(chunk_prefix_of_key(key))

    def _advance(self, folder: str) -> None:
        self._count += 1
        self._last[folder] = self._count
        self._last.move_to_end(folder)
        if len(self._last) > self._limit:
            _, self._forgotten = self._last.popitem(last=False)

    def invalidate(self, keys: Iterable[str]) -> None:
        """Note that changes of chunks may still be carried out: for a while no version of their datasets stands."""
        for key in keys:
            self._doubted[chunk_prefix_of_key(key)] = self._clock.now() + DOUBT

    def reset(self) -> None:
        """Give all chunks new versions: others may have changed any of them."""
        self._run = self._clock.token(8).hex()

    def of(self, dataset: str) -> str:
        """Answer `GetChunkVersion`."""
        folder = chunk_prefix(dataset)
        if self._doubted:
            now = self._clock.now()
            self._doubted = {name: end for name, end in self._doubted.items() if end > now}
            if folder in self._doubted:
                self._advance(folder)
        return f"{self._run}-{self._last.get(folder, self._forgotten)}"
