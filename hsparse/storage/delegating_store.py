"""The base of stores over another one: each call goes to that, but for those that a subclass answers otherwise."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from hsparse.storage.object_store import Buffer, Entry, ObjectStore, Page, Stored


class DelegatingStore:
    """An `ObjectStore` that does what the store below it does."""

    def __init__(self, store: ObjectStore) -> None:
        self.name = store.name
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
