"""Stores that wrap another store: the base class, and a read-only store.

`delete_each` implements `delete_all` for stores that delete one object per request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Any

from hsparse.errors import HsparseError, PreconditionFailed, Unsupported
from hsparse.storage.object_store import (
    AnsweringStore,
    Buffer,
    Entry,
    ObjectStore,
    Page,
    Stored,
)


class DelegatingStore:
    """An `ObjectStore` that passes every call to the wrapped store; subclasses override some methods."""

    def __init__(self, store: ObjectStore) -> None:
        self.name = store.name
        self.features: Collection[str] = getattr(store, "features", ())
        """Features that records in this store may require of a server; see `hsparse.model.schema`."""
        self._store = store

    async def get(self, key: str) -> Stored:
        return await self._store.get(key)

    async def get_range(self, key: str, start: int, length: int | None = None) -> Stored:
        return await self._store.get_range(key, start, length)

    async def put(self, key: str, data: Buffer) -> str:
        return await self._store.put(key, data)

    async def put_if_absent(self, key: str, data: Buffer) -> str:
        return await self._store.put_if_absent(key, data)

    async def put_if_match(self, key: str, data: Buffer, etag: str) -> str:
        return await self._store.put_if_match(key, data, etag)

    async def delete(self, key: str) -> None:
        await self._store.delete(key)

    async def delete_if_match(self, key: str, etag: str) -> None:
        await self._store.delete_if_match(key, etag)

    async def delete_all(self, entries: Sequence[Entry]) -> list[bool]:
        return await self._store.delete_all(entries)

    def list(self, prefix: str, *, delimiter: bool = False, start_after: str = "") -> AsyncIterator[Page]:
        return self._store.list(prefix, delimiter=delimiter, start_after=start_after)

    async def presigned(self, key: str, seconds: int) -> str:
        return await self._store.presigned(key, seconds)

    async def close(self) -> None:
        await self._store.close()

    async def answer(self, question: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Forward a question to the wrapped store; raise `Unsupported` if that store is no `AnsweringStore`."""
        if not isinstance(self._store, AnsweringStore):
            raise Unsupported(f"The store {self.name!r} does not support the question {question}.")
        return await self._store.answer(question, arguments)


DELETES_AT_ONCE = 32


async def delete_each(store: ObjectStore, entries: Sequence[Entry]) -> list[bool]:
    """Implement `delete_all` by a `delete_if_match` for each entry, `DELETES_AT_ONCE` at a time.

    After a failure, no further delete starts. When the running deletes have ended, the error of the failed entry that
    comes first in `entries` is raised.
    """
    deleted = [False] * len(entries)
    failed: dict[int, BaseException] = {}
    waiting = iter(range(len(entries)))

    async def work() -> None:
        for number in waiting:
            if failed:
                return
            try:
                await store.delete_if_match(entries[number].key, entries[number].etag)
            except PreconditionFailed:
                continue
            except BaseException as error:  # noqa: BLE001 - raised below
                failed[number] = error
                return
            deleted[number] = True

    try:
        await asyncio.gather(*(work() for _ in range(min(DELETES_AT_ONCE, len(entries)))))
        if failed:
            raise failed[min(failed)]
        return deleted
    finally:
        failed.clear()  # breaks the cycle from an error to this frame and back


class ReadOnlyStore(DelegatingStore):
    """An `ObjectStore` that reads from another store, and whose puts and deletes raise a copy of `error`."""

    def __init__(self, store: ObjectStore, error: HsparseError) -> None:
        super().__init__(store)
        self._error = error

    async def put(self, key: str, data: Buffer) -> str:
        raise self._refused()

    async def put_if_absent(self, key: str, data: Buffer) -> str:
        raise self._refused()

    async def put_if_match(self, key: str, data: Buffer, etag: str) -> str:
        raise self._refused()

    async def delete(self, key: str) -> None:
        raise self._refused()

    async def delete_if_match(self, key: str, etag: str) -> None:
        raise self._refused()

    async def delete_all(self, entries: Sequence[Entry]) -> list[bool]:
        raise self._refused()

    def _refused(self) -> HsparseError:
        return type(self._error)(self._error.message)
