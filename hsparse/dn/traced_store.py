"""A store that counts its requests: in the trace of the client's request, and for the node by their results.

Admission control limits the concurrent requests, so that they do not pile up at a slow store, fairly between users.

`ChunkVersions` numbers the versions of a dataset's chunks, so that clients can tell whether their copies are current.
"""

from __future__ import annotations

import asyncio
from asyncio import CancelledError
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from typing import TypeAlias, TypeVar, TypeVarTuple, Unpack

from hsparse.bounded_cache import BoundedCache
from hsparse.clock import Clock
from hsparse.concurrency.admission import Admission
from hsparse.concurrency.request_trace import Work, current_trace, in_span, queue_user
from hsparse.errors import NotFound, PreconditionFailed
from hsparse.model.ids import chunk_prefix
from hsparse.storage.object_store import Buffer, Entry, ObjectStore, Page, Stored

R = TypeVar("R")
A = TypeVarTuple("A")

StoreRequests: TypeAlias = Counter[tuple[str, str]]
"""Counts of requests by kind (get, put, delete, list) and result (ok, missing, conflict, cancelled, failed)."""


class TracedStore:
    """An `ObjectStore` that passes requests to another store and counts them in `requests`.

    Requests without a client's request are counted, too. Each request takes one of the `places`. Each change gives the
    chunks a new version in `versions`, even if it failed, because the store may have applied it.
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
        await self._delete((key,), self._store.delete, key)

    async def delete_if_match(self, key: str, etag: str) -> None:
        await self._delete((key,), self._store.delete_if_match, key, etag)

    async def delete_all(self, entries: Sequence[Entry]) -> list[bool]:
        """Delete objects as one admitted request; each deleted object counts as a request."""
        if not entries:
            return []
        keys = tuple(entry.key for entry in entries)
        deleted = await self._delete(keys, self._store.delete_all, entries)
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

    async def _delete(
        self, keys: tuple[str, ...], delete: Callable[[Unpack[A]], Awaitable[R]], *args: *A
    ) -> R:
        """Delete objects, and forget which keys were put: `ChunkVersions.changed` cannot report deleted keys."""
        try:
            return await self._change("delete", keys, delete, *args)
        finally:
            if self._versions is not None:
                self._versions.unwatch(keys)

    async def _change(
        self, kind: str, keys: tuple[str, ...], change: Callable[[Unpack[A]], Awaitable[R]], *args: *A
    ) -> R:
        """Send a change to the store and note the datasets' new versions; versions are void if no answer arrives."""
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
        """Wait for admission, without a deadline, then send a request to the store; count and time the request."""
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
"""The most datasets whose last change is remembered; the least recently changed are forgotten."""

MAX_WATCHED, MAX_CHANGED = 64, 4096
"""The most datasets whose put keys are noted, and the most noted keys of one dataset."""

DOUBT_SECONDS = 600.0
"""Seconds after which the store no longer applies a change that it did not answer."""


def chunk_prefix_of_key(key: str) -> str:
    """Return the prefix of the dataset whose record or chunk has this key."""
    return "/".join((*key.split("/", 4)[:4], ""))


class ChunkVersions:
    """Numbers the changes of chunks that this node makes. A version is valid for one run of the node."""

    def __init__(self, clock: Clock, limit: int = MAX_DATASETS) -> None:
        self._clock = clock
        self.reset()
        self._count = 0
        self._forgotten = 0
        """The newest change of all forgotten datasets; each of them is assumed to have it, so no change is missed."""
        self._last: BoundedCache[str, int] = BoundedCache.of_entries(limit, self._forget)
        self._watched: BoundedCache[str, tuple[int, dict[str, int]]] = BoundedCache.of_entries(MAX_WATCHED)
        """Maps datasets to pairs: the change number since which put keys are noted, and each key's last change."""
        self._doubted: dict[str, float] = {}
        """Maps each dataset to the time until which the store may apply a change that it did not answer."""

    def note(self, keys: Iterable[str]) -> None:
        """Note that the chunk objects of these keys changed; must be called before the changes are acknowledged."""
        for key in keys:
            self._advance(chunk_prefix_of_key(key))
            if self._watched:
                self._watch(key)

    def _watch(self, key: str) -> None:
        folder = chunk_prefix_of_key(key)
        if (watched := self._watched.get(folder)) is not None:
            watched[1][key] = self._count
            if len(watched[1]) > MAX_CHANGED:
                self._watched.forget(folder)

    def doubt(self, dataset: str) -> None:
        """Note that any chunk of a dataset may have changed, so that its previous versions are void."""
        folder = chunk_prefix(dataset)
        self._advance(folder)
        self._watched.forget(folder)

    def unwatch(self, keys: Iterable[str]) -> None:
        """Forget which keys were put in the datasets of these keys."""
        for key in keys:
            self._watched.forget(chunk_prefix_of_key(key))

    def changed(self, dataset: str, since: Sequence[str]) -> tuple[str, ...] | None:
        """Return the keys put since the newest version in `since` of this run, or None if those keys are unknown.

        From now on, the dataset's put keys are noted.
        """
        folder = chunk_prefix(dataset)
        if (watched := self._watched.use(folder)) is None:
            watched = self._last.get(folder, self._forgotten), {}
            self._watched.keep(folder, watched)
        first, keys = watched
        counts = [int(count) for run, _, count in (one.partition("-") for one in since) if run == self._run]
        if folder in self._doubted or not counts or max(counts) < first:
            return None
        return tuple([key for key, count in keys.items() if count > max(counts)])

    def _advance(self, folder: str) -> None:
        self._count += 1
        self._last.keep(folder, self._count)

    def _forget(self, folder: str, last: int) -> None:
        self._forgotten = last

    def invalidate(self, keys: Iterable[str]) -> None:
        """Note that changes of these keys may still be applied: until then, no version of their datasets is valid."""
        for key in keys:
            self._doubted[chunk_prefix_of_key(key)] = self._clock.now() + DOUBT_SECONDS

    def reset(self) -> None:
        """Give all chunks new versions, because other nodes may have changed any of them."""
        self._run = self._clock.token(8).hex()

    def of(self, dataset: str) -> str:
        """Answer `GetChunkVersion`: return the current version of a dataset's chunks at this node."""
        folder = chunk_prefix(dataset)
        if self._doubted:
            now = self._clock.now()
            self._doubted = {name: end for name, end in self._doubted.items() if end > now}
            if folder in self._doubted:
                self._advance(folder)
        return f"{self._run}-{self._last.get(folder, self._forgotten)}"
