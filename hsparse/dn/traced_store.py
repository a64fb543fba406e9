"""A store that counts requests: for the request that they are sent for, and for the node by their results.

It is not piled up on when it is slow: so many requests are under way at a time, and users have turns.
"""

from __future__ import annotations

import asyncio
from asyncio import CancelledError
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import nullcontext
from typing import TypeAlias, TypeVar

from hsparse.concurrency.admission import Admission
from hsparse.concurrency.request_trace import Work, current_trace, queue_user
from hsparse.errors import NotFound, PreconditionFailed
from hsparse.storage.object_store import Buffer, Entry, ObjectStore, Page, Stored

R = TypeVar("R")

StoreRequests: TypeAlias = Counter[tuple[str, str]]
"""Numbers of requests by kind and result: get, put, delete, list; ok, missing, conflict, cancelled, failed."""


class TracedStore:
    """An `ObjectStore` over another one; `requests` also counts those that no client's request is behind.

    Each request to it takes one of the `places`.
    """

    def __init__(
        self, store: ObjectStore, requests: StoreRequests | None = None, places: Admission | None = None
    ) -> None:
        self._store = store
        self._requests = Counter() if requests is None else requests
        self._places = places
        self.name = store.name

    async def get(self, key: str) -> Stored:
        return await self._read("get", key, self._store.get(key))

    async def get_range(self, key: str, start: int, length: int | None = None) -> Stored:
        return await self._read("get", key, self._store.get_range(key, start, length))

    async def put(self, key: str, data: Buffer) -> str:
        return await self._write("put", key, self._store.put(key, data))

    async def put_if_absent(self, key: str, data: Buffer) -> str:
        return await self._write("put", key, self._store.put_if_absent(key, data))

    async def put_if_match(self, key: str, data: Buffer, etag: str) -> str:
        return await self._write("put", key, self._store.put_if_match(key, data, etag))

    async def delete(self, key: str) -> None:
        await self._write("delete", key, self._store.delete(key))

    async def delete_if_match(self, key: str, etag: str) -> None:
        await self._write("delete", key, self._store.delete_if_match(key, etag))

    async def delete_all(self, entries: Sequence[Entry]) -> list[bool]:
        """Delete them in one turn; counted as a request for each when it succeeds."""
        if not entries:
            return []
        deleted = await self._write("delete", entries[0].key, self._store.delete_all(entries))
        self._requests["delete", "ok"] += sum(deleted) - 1
        if changed := deleted.count(False):
            self._requests["delete", "conflict"] += changed
        return deleted

    async def list(
        self, prefix: str, *, delimiter: bool = False, start_after: str = ""
    ) -> AsyncIterator[Page]:
        pages = self._store.list(prefix, delimiter=delimiter, start_after=start_after)
        while (page := await self._read("list", prefix, anext(pages, None))) is not None:
            yield page

    async def presigned(self, key: str, seconds: int) -> str:
        return await self._store.presigned(key, seconds)

    async def close(self) -> None:
        await self._store.close()

    async def _read(self, kind: str, key: str, request: Awaitable[R]) -> R:
        return await self._in_turn(Work.READS, kind, key, request)

    async def _write(self, kind: str, key: str, request: Awaitable[R]) -> R:
        return await self._in_turn(Work.WRITES, kind, key, request)

    async def _in_turn(self, work: Work, kind: str, key: str, request: Awaitable[R]) -> R:
        """Await a request to the store in its turn, which nothing but cancellation keeps it from."""
        if self._places is None:
            return await self._counted(work, kind, key, request)
        try:
            place = await self._places.enter(queue_user(), patient=True)
        except BaseException:
            if asyncio.iscoroutine(request):
                request.close()
            raise
        try:
            return await self._counted(work, kind, key, request)
        finally:
            place.leave()

    async def _counted(self, work: Work, kind: str, key: str, request: Awaitable[R]) -> R:
        trace, result = current_trace(), "failed"
        try:
            with nullcontext() if trace is None else trace.measured(work, f"store {kind}", key):
                answer = await request
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
