"""A store that counts requests in the trace of the request that they are sent for, and limits those under way.

A slow store is not piled up on, and users have turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import TypeVar

from hsparse.concurrency.admission import Admission
from hsparse.concurrency.request_trace import Work, current_trace
from hsparse.storage.object_store import Buffer, ObjectStore, Page, Stored

R = TypeVar("R")


class TracedStore:
    """An `ObjectStore` over another one; each of its requests takes one of the `places`."""

    def __init__(self, store: ObjectStore, places: Admission | None = None) -> None:
        self._store = store
        self._places = places
        self.name = store.name

    async def get(self, key: str) -> Stored:
        return await self._read(self._store.get(key))

    async def get_range(self, key: str, start: int, length: int | None = None) -> Stored:
        return await self._read(self._store.get_range(key, start, length))

    async def put(self, key: str, data: Buffer) -> str:
        return await self._write(self._store.put(key, data))

    async def put_if_absent(self, key: str, data: Buffer) -> str:
        return await self._write(self._store.put_if_absent(key, data))

    async def put_if_match(self, key: str, data: Buffer, etag: str) -> str:
        return await self._write(self._store.put_if_match(key, data, etag))

    async def delete(self, key: str) -> None:
        await self._write(self._store.delete(key))

    async def delete_if_match(self, key: str, etag: str) -> None:
        await self._write(self._store.delete_if_match(key, etag))

    async def list(
        self, prefix: str, *, delimiter: bool = False, start_after: str = ""
    ) -> AsyncIterator[Page]:
        pages = self._store.list(prefix, delimiter=delimiter, start_after=start_after)
        while (page := await self._read(anext(pages, None))) is not None:
            yield page

    async def presigned(self, key: str, seconds: int) -> str:
        return await self._store.presigned(key, seconds)

    async def close(self) -> None:
        await self._store.close()

    async def _read(self, request: Awaitable[R]) -> R:
        return await self._counted(Work.READS, request)

    async def _write(self, request: Awaitable[R]) -> R:
        return await self._counted(Work.WRITES, request)

    async def _counted(self, kind: Work, request: Awaitable[R]) -> R:
        trace = current_trace()
        if trace is None:
            return await self._in_turn(request, "")
        with trace.measured(kind):
            return await self._in_turn(request, trace.queue_user)

    async def _in_turn(self, request: Awaitable[R], user: str) -> R:
        """Await a request to the store in its turn, which nothing but cancellation keeps it from."""
        if self._places is None:
            return await request
        try:
            place = await self._places.enter(user, patient=True)
        except BaseException:
            if asyncio.iscoroutine(request):
                request.close()
            raise
        try:
            return await request
        finally:
            place.leave()
