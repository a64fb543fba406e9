"""Caches that are bounded in bytes or in entries and evict the least recently used entries.

A cache is bounded in bytes if clients determine the size of its entries: with a bound on the number of entries only,
clients could fill the memory.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import update_wrapper
from threading import Lock
from typing import Generic, Protocol, TypeVar, TypeVarTuple

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
A = TypeVarTuple("A")

ENTRY_BYTES = 256
"""Bytes that are added to the size of each entry, for the overhead of the entry."""


class BoundedCache(dict[K, V]):
    """A dict of at most `limit` bytes in total; a value has at most `largest` bytes (default: an eighth of `limit`).

    The least recently used entries are evicted first, but never the newest entry. `forgotten` is called with the key
    and the value of each evicted entry. Add values by `keep` and remove them by `forget` only. A dict lookup is cheap
    but does not mark the value as recently used; `use` does. Several threads may use one cache.
    """

    def __init__(
        self,
        limit: int,
        largest: int | None = None,
        *,
        entry_size: int = ENTRY_BYTES,
        forgotten: Callable[[K, V], object] | None = None,
    ) -> None:
        super().__init__()
        self.limit = limit
        self.largest = limit // 8 if largest is None else largest
        self.size = 0
        self._entry_size = entry_size
        self._forgotten = forgotten
        self._sizes: OrderedDict[K, int] = OrderedDict()
        self._lock = Lock()

    @classmethod
    def of_entries(cls, limit: int, forgotten: Callable[[K, V], object] | None = None) -> BoundedCache[K, V]:
        """Return a cache that counts entries instead of bytes and has at most `limit` entries; for small values."""
        return cls(limit, min(limit, 1), entry_size=0, forgotten=forgotten)

    def use(self, key: K) -> V | None:
        """Mark the value of a key as recently used and return the value, or None if the key is not in the cache."""
        if key in self._sizes:
            try:
                self._sizes.move_to_end(key)
            except KeyError:  # another thread has removed the key; a lock would cost more than the lookup
                return None
        return self.get(key)

    def keep(self, key: K, value: V, size: int = 1) -> None:
        """Set the value of a key; if `size`, in bytes, exceeds `largest`, only remove the old value of the key."""
        with self._lock:
            self.size -= self._sizes.pop(key, 0)
            super().pop(key, None)
            if size > self.largest:
                return
            self[key], self._sizes[key] = value, size + self._entry_size
            self.size += size + self._entry_size
            if self.size > self.limit:
                self._evict()

    def _evict(self) -> None:
        while self.size > self.limit and len(self) > 1:
            oldest, size = self._sizes.popitem(last=False)
            self.size -= size
            value = super().pop(oldest)
            if self._forgotten is not None:
                self._forgotten(oldest, value)

    def forget(self, key: K) -> V | None:
        """Remove the value of a key and return the value, or None if the key is not in the cache."""
        with self._lock:
            self.size -= self._sizes.pop(key, 0)
            return super().pop(key, None)

    def clear(self) -> None:
        """Remove all entries."""
        with self._lock:
            super().clear()
            self._sizes.clear()
            self.size = 0


class RememberedResults(Generic[*A, V]):
    """A function of hashable arguments with a cache of at most `limit` bytes of results; the oldest are evicted first.

    `weigh(result, *arguments)` returns the bytes that a result and its arguments take. Errors are not cached.
    """

    def __init__(
        self,
        function: Callable[[*A], V],
        limit: int,
        weigh: Callable[..., int],
        largest: int | None = None,
    ) -> None:
        update_wrapper(self, function)
        self._function = function
        self._weigh = weigh
        self.results: BoundedCache[tuple[object, ...], tuple[V]] = BoundedCache(limit, largest)

    def __call__(self, *arguments: *A) -> V:
        """Return the cached result for these arguments; if there is none, call the function and cache its result."""
        if (known := self.results.get(arguments)) is not None:
            return known[0]
        result = self._function(*arguments)
        self.results.keep(arguments, (result,), self._weigh(result, *arguments))
        return result


class Decorator(Protocol):
    """Decorator that caches the results of a function."""

    def __call__(self, function: Callable[[*A], V]) -> RememberedResults[*A, V]:
        """Return the caching function."""
        ...


def remember(limit: int, weigh: Callable[..., int], largest: int | None = None) -> Decorator:
    """Return a decorator that turns a function into a `RememberedResults` with this limit, `weigh` and `largest`."""

    def decorate(function: Callable[[*A], V]) -> RememberedResults[*A, V]:
        return RememberedResults(function, limit, weigh, largest)

    return decorate
