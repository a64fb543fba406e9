"""The base of the store wrappers: every call of the protocol goes through one method."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from hsparse.storage.object_store import Buffer, ObjectStore, Page, Stored

R = TypeVar("R")

METHODS = ("get", "get_range", "put", "put_if_absent", "put_if_match", "delete", "list")


class StoreWrapper:
    """An `ObjectStore` that hands each call to `around`; one call a page for `list`, by its prefix.

    `data` is what a put is given, empty otherwise.
    """

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.name = store.name

    async def around(self, method: str, key: str, data: Buffer, call: Callable[[Buffer], Awaitable[R]]) -> R:
        """Await `call(data)`; subclasses do their work here."""
        return await call(data)

    async def get(self, key: str) -> Stored:
        return await self.around("get", key, b"", lambda _: self.store.get(key))

    async def get_range(self, key: str, start: int, length: int | None = None) -> Stored:
        return await self.around("get_range", key, b"", lambda _: self.store.get_range(key, start, length))

    async def put(self, key: str, data: Buffer) -> str:
        return await self.around("put", key, data, lambda data: self.store.put(key, data))

    async def put_if_absent(self, key: str, data: Buffer) -> str:
        return await self.around("put_if_absent", key, data, lambda data: self.store.put_if_absent(key, data))

    async def put_if_match(self, key: str, data: Buffer, etag: str) -> str:
        return await self.around(
            "put_if_match", key, data, lambda data: self.store.put_if_match(key, data, etag)
        )

    async def delete(self, key: str) -> None:
        await self.around("delete", key, b"", lambda _: self.store.delete(key))

    async def list(
        self, prefix: str, *, delimiter: bool = False, start_after: str = ""
    ) -> AsyncIterator[Page]:
        pages = self.store.list(prefix, delimiter=delimiter, start_after=start_after)

        async def turn(_: Buffer) -> Page | None:
            return await anext(pages, None)

        while (page := await self.around("list", prefix, b"", turn)) is not None:
            yield page

    async def presigned(self, key: str, seconds: int) -> str:
        return await self.store.presigned(key, seconds)

    async def close(self) -> None:
        await self.store.close()
