"""The base of stores over another one: each call goes to that, but for those that a subclass answers otherwise.

`delete_all` of a store that can only delete one object a request.

A store that is read and never written.

The reference store: everything in memory, nothing durable.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from hsparse.clock import Clock, SystemClock
from hsparse.errors import HsparseError, NotFound, PreconditionFailed
from hsparse.storage.object_store import (
    Buffer,
    Entry,
    ObjectStore,
    Page,
    Stored,
    check_key,
    no_urls,
    resolve_range,
)


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


DELETES_AT_ONCE = 32


async def delete_each(store: ObjectStore, entries: Sequence[Entry]) -> list[bool]:
    """Answer `delete_all` by `delete_if_match` of each object, `DELETES_AT_ONCE` at a time.

    Once one fails no more are begun; when those under way are done, the error of the first failed one is raised.
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
        failed.clear()  # an error that its own traceback refers to stays until a collection


class ReadOnlyStore(DelegatingStore):
    """An `ObjectStore` over another one: puts and deletes raise an error of the type and message of `error`."""

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


PAGE_SIZE = 1000


@dataclass(frozen=True, slots=True)
class _Object:
    data: bytes
    etag: str
    modified: float


class MemoryStore:
    """An `ObjectStore` in a dict; its objects live as long as it does."""

    def __init__(
        self, name: str = "memory", *, clock: Clock | None = None, page_size: int = PAGE_SIZE
    ) -> None:
        self.name = name
        self._page_size = page_size
        self._clock = clock or SystemClock()
        self._objects: dict[str, _Object] = {}
        self._keys: list[str] = []  # sorted: code point order is the bytewise order of UTF-8
        self._version = 0

    async def get(self, key: str) -> Stored:
        found = self._find(key)
        return Stored(found.data, found.etag, len(found.data))

    async def get_range(self, key: str, start: int, length: int | None = None) -> Stored:
        found = self._find(key)
        first, count = resolve_range(key, start, length, len(found.data))
        return Stored(found.data[first : first + count], found.etag, len(found.data))

    async def put(self, key: str, data: Buffer) -> str:
        return self._store(check_key(key), data)

    async def put_if_absent(self, key: str, data: Buffer) -> str:
        if check_key(key) in self._objects:
            raise PreconditionFailed(f"{key!r} exists already; read it and replace that state.")
        return self._store(key, data)

    async def put_if_match(self, key: str, data: Buffer, etag: str) -> str:
        found = self._objects.get(check_key(key))
        if found is None or found.etag != etag:
            raise PreconditionFailed(f"{key!r} is no longer at etag {etag}; read it again.")
        return self._store(key, data)

    async def delete(self, key: str) -> None:
        if self._objects.pop(check_key(key), None) is not None:
            del self._keys[bisect_left(self._keys, key)]

    async def delete_if_match(self, key: str, etag: str) -> None:
        found = self._objects.get(check_key(key))
        if found is not None and found.etag != etag:
            raise PreconditionFailed(f"{key!r} is no longer at etag {etag}; read it again.")
        await self.delete(key)

    async def delete_all(self, entries: Sequence[Entry]) -> list[bool]:
        return await delete_each(self, entries)

    async def list(
        self, prefix: str, *, delimiter: bool = False, start_after: str = ""
    ) -> AsyncIterator[Page]:
        cursor: str | None = start_after
        while cursor is not None:
            page, cursor = self._page(prefix, delimiter, cursor)
            if page.entries or page.prefixes:
                yield page

    async def presigned(self, key: str, seconds: int) -> str:
        check_key(key)
        raise no_urls(self.name)

    async def close(self) -> None:
        """Do nothing: the objects stay, so that a node can be restarted over the same store."""

    def _find(self, key: str) -> _Object:
        found = self._objects.get(check_key(key))
        if found is None:
            raise NotFound(f"There is no object {key!r} in {self.name!r}.")
        return found

    def _store(self, key: str, data: Buffer) -> str:
        if key not in self._objects:
            insort(self._keys, key)
        self._version += 1
        self._objects[key] = _Object(bytes(data), f"{self._version:x}", self._clock.now())
        return self._objects[key].etag

    def _page(self, prefix: str, delimiter: bool, start_after: str) -> tuple[Page, str | None]:
        """Return the page after `start_after`, and the last name in it when more may follow."""
        entries: list[Entry] = []
        prefixes: list[str] = []
        last = start_after
        at = max(bisect_left(self._keys, prefix), bisect_right(self._keys, start_after))
        while at < len(self._keys) and (key := self._keys[at]).startswith(prefix):
            if len(entries) + len(prefixes) == self._page_size:
                return Page(tuple(entries), tuple(prefixes)), last
            cut = key.find("/", len(prefix)) if delimiter else -1
            if cut < 0:
                found = self._objects[key]
                entries.append(Entry(key, len(found.data), found.etag, found.modified))
                last, at = key, at + 1
                continue
            last = key[: cut + 1]
            if last > start_after:  # a common prefix is listed at its own place in the order
                prefixes.append(last)
            at = bisect_left(self._keys, key[:cut] + "0")  # "0" follows "/": past all that share it
        return Page(tuple(entries), tuple(prefixes)), None
