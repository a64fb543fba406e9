"""A store that is read and never written."""

from __future__ import annotations

from collections.abc import AsyncIterator

from hsparse.errors import HsparseError
from hsparse.storage.object_store import Buffer, ObjectStore, Page, Stored


class ReadOnlyStore:
    """An `ObjectStore` over another one: puts and deletes raise an error of the type and message of `error`."""

    def __init__(self, store: ObjectStore, error: HsparseError) -> None:
        self.name = store.name
        self._store = store
        self._error = error

    async def get(self, key: str) -> Stored:
        return await self._store.get(key)

    async def get_range(self, key: str, start: int, length: int | None = None) -> Stored:
        return await self._store.get_range(key, start, length)

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

    def list(self, prefix: str, *, delimiter: bool = False, start_after: str = "") -> AsyncIterator[Page]:
        return self._store.list(prefix, delimiter=delimiter, start_after=start_after)

    async def presigned(self, key: str, seconds: int) -> str:
        return await self._store.presigned(key, seconds)

    async def close(self) -> None:
        await self._store.close()

    def _refused(self) -> HsparseError:
        return type(self._error)(self._error.message)
