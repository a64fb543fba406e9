"""Conditional puts for a store that ignores conditions, where this process is its only writer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from hsparse.errors import BadRequest, NotFound, PreconditionFailed
from hsparse.storage.object_store import Buffer, ObjectStore, Page, Stored

R = TypeVar("R")


class SingleWriter:
    """An `ObjectStore` over one that ignores conditions: they are checked here, one write a key at a time.

    The operator declares that nothing else writes to the store; with a second writer updates get lost.
    """

    def __init__(self, store: ObjectStore) -> None:
        self.name = store.name
        self._store = store
        self._locks: dict[str, asyncio.Lock] = {}
        self._waiting: dict[str, int] = {}
        self._writes: set[asyncio.Task[Any]] = set()

    async def get(self, key: str) -> Stored:
        return await self._store.get(key)

    async def get_range(self, key: str, start: int, length: int | None = None) -> Stored:
        return await self._store.get_range(key, start, length)

    async def put(self, key: str, data: Buffer) -> str:
        return await self._alone(key, lambda: self._store.put(key, data))

    async def put_if_absent(self, key: str, data: Buffer) -> str:
        async def write() -> str:
            if await self._etag(key) is not None:
                raise PreconditionFailed(f"{key!r} exists already; read it and replace that state.")
            return await self._store.put(key, data)

        return await self._alone(key, write)

    async def put_if_match(self, key: str, data: Buffer, etag: str) -> str:
        async def write() -> str:
            if await self._etag(key) != etag:
                raise PreconditionFailed(f"{key!r} is no longer at etag {etag}; read it again.")
            return await self._store.put(key, data)

        return await self._alone(key, write)

    async def delete(self, key: str) -> None:
        await self._alone(key, lambda: self._store.delete(key))

    def list(self, prefix: str, *, delimiter: bool = False, start_after: str = "") -> AsyncIterator[Page]:
        return self._store.list(prefix, delimiter=delimiter, start_after=start_after)

    async def presigned(self, key: str, seconds: int) -> str:
        return await self._store.presigned(key, seconds)

    async def close(self) -> None:
        """Let the writes under way end, then close the store."""
        await asyncio.gather(*self._writes, return_exceptions=True)
        await self._store.close()

    async def _etag(self, key: str) -> str | None:
        """Return the etag of what is stored, None where there is nothing."""
        try:
            return (await self._store.get_range(key, 0, 1)).etag
        except NotFound:
            return None
        except BadRequest:  # an empty object has no first byte
            return (await self._store.get(key)).etag

    async def _alone(self, key: str, write: Callable[[], Awaitable[R]]) -> R:
        """Await `write` while no other write of `key` runs.

        A caller that is cancelled does not take the lock away: what it sent may still reach the store,
        and must not overtake the next write.
        """
        task = asyncio.create_task(self._locked(key, write))
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)
        return await asyncio.shield(task)

    def _locked(self, key: str, write: Callable[[], Awaitable[R]]) -> Coroutine[Any, Any, R]:
        lock = self._locks.setdefault(key, asyncio.Lock())
        self._waiting[key] = self._waiting.get(key, 0) + 1

        async def run() -> R:
            try:
                async with lock:
                    return await write()
            finally:
                self._waiting[key] -= 1
                if not self._waiting[key]:
                    del self._waiting[key], self._locks[key]

        return run()
