"""Wrappers of a store: the base that hands every call to one method, one that counts calls, one that adds latency."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from typing import TypeVar

from hsparse.storage.delegating_store import delete_each
from hsparse.storage.object_store import Buffer, Entry, ObjectStore, Page, Stored

R = TypeVar("R")

METHODS = ("get", "get_range", "put", "put_if_absent", "put_if_match", "delete", "delete_if_match", "list")


class StoreWrapper:
    """An `ObjectStore` that hands each call to `around`; one call a page for `list`, by its prefix.

    `data` is what a put is given, empty otherwise. `delete_all` is a `delete_if_match` of each object, so that
    what a subclass does meets it between any two of them.
    """

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.name = store.name
        self.features: Collection[str] = getattr(store, "features", ())

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

    async def delete_if_match(self, key: str, etag: str) -> None:
        await self.around("delete_if_match", key, b"", lambda _: self.store.delete_if_match(key, etag))

    async def delete_all(self, entries: Sequence[Entry]) -> list[bool]:
        return await delete_each(self, entries)

    async def list(
        self, prefix: str, *, delimiter: bool = False, start_after: str = ""
    ) -> AsyncIterator[Page]:
        pages = self.store.list(prefix, delimiter=delimiter, start_after=start_after)

        async def next_page(_: Buffer) -> Page | None:
            return await anext(pages, None)

        while (page := await self.around("list", prefix, b"", next_page)) is not None:
            yield page

    async def presigned(self, key: str, seconds: int) -> str:
        return await self.store.presigned(key, seconds)

    async def close(self) -> None:
        await self.store.close()


class CountingStore(StoreWrapper):
    """Counts calls, also those that fail, and bytes.

    `calls` is by method; `keys` by (method, key), a listing's key being its prefix. A listing counts one
    call a page asked for, the empty answer that ends it too. `bytes_in` were put, `bytes_out` were got.
    """

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.calls: Counter[str] = Counter()
        self.keys: Counter[tuple[str, str]] = Counter()
        self.bytes_in = 0
        self.bytes_out = 0

    @property
    def gets(self) -> int:
        """Return the reads of objects, whole or in part."""
        return self.calls["get"] + self.calls["get_range"]

    @property
    def puts(self) -> int:
        """Return the puts, with a condition or without."""
        return self.calls["put"] + self.calls["put_if_absent"] + self.calls["put_if_match"]

    def reset(self) -> None:
        """Count from zero again."""
        self.calls.clear()
        self.keys.clear()
        self.bytes_in = self.bytes_out = 0

    async def around(self, method: str, key: str, data: Buffer, call: Callable[[Buffer], Awaitable[R]]) -> R:
        self.calls[method] += 1
        self.keys[method, key] += 1
        self.bytes_in += memoryview(data).nbytes
        result = await call(data)
        if isinstance(result, Stored):
            self.bytes_out += len(result.data)
        return result


class SlowStore(StoreWrapper):
    """Awaits `wait(method, key)` before every call, and after it too unless `after` is False.

    `wait` may sleep, or wait for an event the test sets: latency under the test's control.
    """

    def __init__(
        self, store: ObjectStore, wait: Callable[[str, str], Awaitable[object]], *, after: bool = True
    ) -> None:
        super().__init__(store)
        self._wait = wait
        self._after = after

    async def around(self, method: str, key: str, data: Buffer, call: Callable[[Buffer], Awaitable[R]]) -> R:
        await self._wait(method, key)
        result = await call(data)
        if self._after:
            await self._wait(method, key)
        return result
