"""The cache of a data node: objects in memory within a byte budget, with least-recently-used eviction."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

E = TypeVar("E", bound="CacheEntry")


class CacheEntry(Protocol):
    """An entry of a data node's `Cache`, such as a cached object, a listing, or a file-backed chunk."""

    key: str

    @property
    def busy(self) -> bool:
        """Whether the entry must stay in memory, because a task loads or stores it."""
        ...

    @property
    def nbytes(self) -> int:
        """The bytes of memory that an eviction of this entry frees."""
        ...

    def invalidate(self, kept: Callable[[str], bool]) -> None:
        """Check the entry with the store before its next use, unless this node has always owned it (see `Kept`)."""
        ...

    async def settle(self) -> None:
        """Wait until changes accepted before this call are stored or have failed."""
        ...

    async def drain(self) -> None:
        """Wait until no load or change of this entry is running."""
        ...


class Cache:
    """A cache of at most `budget` bytes. An entry in use is never evicted, so a key never has two entries at a time."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self._entries: OrderedDict[str, Any] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self._users: dict[str, int] = {}
        self._left_busy: set[str] = set()
        """Keys of entries that were busy when their last user left; their size is measured once they are idle."""
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[CacheEntry]:
        return iter(list(self._entries.values()))

    @contextmanager
    def use(self, key: str, make: Callable[[], E]) -> Iterator[E]:
        """Yield the entry of `key`, created by `make` if it is missing; the entry is not evicted within the context."""
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = make()
            self._sizes[key] = 0
        else:
            self._entries.move_to_end(key)
        self._users[key] = self._users.get(key, 0) + 1
        try:
            yield entry
        finally:
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key]
                if entry.busy:
                    self._left_busy.add(key)
            self._measure(key)
            if self._left_busy:
                self._measure_left()

    def beginning_with(self, prefix: str) -> Iterator[CacheEntry]:
        """Return the entries whose keys begin with `prefix`."""
        return iter([entry for key, entry in self._entries.items() if key.startswith(prefix)])

    def get(self, key: str) -> Any:
        """Return the entry of `key` and mark it as most recently used, or return None if there is no such entry."""
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
        return entry

    def peek(self, key: str) -> Any:
        """Return the entry of `key` without marking it as used, or None if there is no such entry."""
        return self._entries.get(key)

    def drop(self, prefix: str) -> None:
        """Evict the idle entries whose keys begin with `prefix`."""
        for key in [key for key in self._entries if key.startswith(prefix)]:
            self._evict(key)

    def _measure_left(self) -> None:
        """Update the recorded sizes of the entries in `_left_busy` that are no longer busy."""
        ended = {key for key in self._left_busy if key not in self._entries or not self._entries[key].busy}
        self._left_busy -= ended
        for key in ended:
            self._measure(key)

    def _measure(self, key: str) -> None:
        if (entry := self._entries.get(key)) is not None:
            nbytes = entry.nbytes
            self.nbytes += nbytes - self._sizes[key]
            self._sizes[key] = nbytes
        for _ in range(len(self._entries)):
            if self.nbytes <= self.budget:
                return
            oldest = next(iter(self._entries))
            if not self._evict(oldest):
                self._entries.move_to_end(oldest)

    def _evict(self, key: str) -> bool:
        if key in self._users or self._entries[key].busy:
            return False
        del self._entries[key]
        self.nbytes -= self._sizes.pop(key)
        return True


class BucketCache(Cache):
    """One bucket's view of a cache that all buckets share; the budget and the order of eviction span all buckets."""

    def __init__(self, shared: Cache, bucket: str) -> None:
        super().__init__(shared.budget)
        self._shared = shared
        self._prefix = f"{bucket}/"

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __iter__(self) -> Iterator[CacheEntry]:
        return self.beginning_with("")

    @property
    def nbytes(self) -> int:
        """Bytes of the entries of all buckets."""
        return self._shared.nbytes

    @nbytes.setter
    def nbytes(self, value: int) -> None:
        """Ignore the value: only the shared cache counts bytes."""

    @contextmanager
    def use(self, key: str, make: Callable[[], E]) -> Iterator[E]:
        with self._shared.use(self._prefix + key, make) as entry:
            yield entry

    def beginning_with(self, prefix: str) -> Iterator[CacheEntry]:
        return self._shared.beginning_with(self._prefix + prefix)

    def get(self, key: str) -> Any:
        return self._shared.get(self._prefix + key)

    def peek(self, key: str) -> Any:
        return self._shared.peek(self._prefix + key)

    def drop(self, prefix: str) -> None:
        self._shared.drop(self._prefix + prefix)


UNRESERVED_BYTES = 1024 * 1024
"""The most bytes for which a `Reservation` reserves nothing: most objects need less, and few are in use at a time."""
