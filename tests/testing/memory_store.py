"""The reference implementation of a store: all objects are in memory, and none is durable."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from hsparse.clock import Clock, SystemClock
from hsparse.errors import NotFound, PreconditionFailed
from hsparse.storage.delegating_store import delete_each
from hsparse.storage.object_store import Buffer, Entry, Page, Stored, check_key, no_urls, resolve_range

PAGE_SIZE = 1000


@dataclass(frozen=True, slots=True)
class _Object:
    data: bytes
    etag: str
    modified: float


class MemoryStore:
    """An `ObjectStore` in a dict; its objects are lost with it."""

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
        """Do nothing; the objects stay, so that a node can be restarted over the same store."""

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
        """Return the page after `start_after`, and its last name if more pages may follow, otherwise None."""
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
            if last > start_after:  # a common prefix is ordered like a key
                prefixes.append(last)
            at = bisect_left(self._keys, key[:cut] + "0")  # "0" follows "/": skips the common prefix
        return Page(tuple(entries), tuple(prefixes)), None
