"""Store wrappers: the base, which passes each call to one method, a call counter, and one that adds latency."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from typing import TypeVar

from hsparse.storage.delegating_store import delete_each
from hsparse.storage.object_store import Buffer, Entry, ObjectStore, Page, Stored

R = TypeVar("R")

METHODS = ("get", "get_range", "put", "put_if_absent", "put_if_match", "delete", "delete_if_match", "list")


class StoreWrapper:
    """An `ObjectStore` that passes each call to `around`; `list` is one call per page, with the prefix as its key.

    `data` is the data of a put, and empty for other methods. `delete_all` calls `delete_if_match` for each object, so
    that a subclass can act between any two of them.
    """

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.name = store.name
        self.features: Collection[str] = getattr(store, "features", ())

    async def around(self, method: str, key: str, data: Buffer, call: Callable[[Buffer], Awaitable[R]]) -> R:
        """Return `await call(data)`; subclasses override this."""
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
    """Counts calls, including failed ones, and bytes.

    `calls` is by method, `keys` by (method, key); the key of a listing is its prefix. A listing counts one call per
    requested page, including the empty page that ends it. `bytes_in` counts data of puts, `bytes_out` data of gets.
    """

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.calls: Counter[str] = Counter()
        self.keys: Counter[tuple[str, str]] = Counter()
        self.bytes_in = 0
        self.bytes_out = 0

    @property
    def gets(self) -> int:
        """The number of reads of objects and of ranges."""
        return self.calls["get"] + self.calls["get_range"]

    @property
    def puts(self) -> int:
        """The number of puts, conditional or not."""
        return self.calls["put"] + self.calls["put_if_absent"] + self.calls["put_if_match"]

    def reset(self) -> None:
        """Set all counts to zero."""
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
    """Awaits `wait(method, key)` before every call and, unless `after` is False, also after it.

    `wait` may sleep or wait for an event, so that the test controls the latency.
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
