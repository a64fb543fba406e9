"""The objects a data node holds in memory, within a budget of bytes, least recently used out first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

E = TypeVar("E", bound="CacheEntry")


class CacheEntry(Protocol):
    """What the cache holds: a stored object with its owner's knowledge, or a chunk put together of others."""

    key: str

    @property
    def busy(self) -> bool:
        """Whether it must stay in memory."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of memory that forgetting it would free."""
        ...

    async def settle(self) -> None:
        """Wait until what was accepted before this call is stored or has failed."""
        ...

    async def drain(self) -> None:
        """Wait until nothing is under way."""
        ...


class Cache:
    """What is held, by key. What is in use is never dropped, so that a key never has two."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._objects: OrderedDict[str, Any] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self._users: dict[str, int] = {}
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[CacheEntry]:
        return iter(list(self._objects.values()))

    @contextmanager
    def use(self, key: str, make: Callable[[], E]) -> Iterator[E]:
        """Give the object of `key`, made when it is not there; it stays at least while it is used."""
        owned = self._objects.get(key)
        if owned is None:
            owned = self._objects[key] = make()
            self._sizes[key] = 0
        else:
            self._objects.move_to_end(key)
        self._users[key] = self._users.get(key, 0) + 1
        try:
            yield owned
        finally:
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key]
            self._measure(key, owned)

    def get(self, key: str) -> Any:
        """Return the object of `key` if it is held, as just used; for a look that does not wait."""
        owned = self._objects.get(key)
        if owned is not None:
            self._objects.move_to_end(key)
        return owned

    def drop(self, prefix: str) -> None:
        """Forget idle objects whose keys begin with `prefix`."""
        for key in [key for key in self._objects if key.startswith(prefix)]:
            self._forget(key)

    def _measure(self, key: str, owned: CacheEntry) -> None:
        if self._objects.get(key) is owned:
            nbytes = owned.nbytes
            self.nbytes += nbytes - self._sizes[key]
            self._sizes[key] = nbytes
        for _ in range(len(self._objects)):
            if self.nbytes <= self._budget:
                return
            oldest = next(iter(self._objects))
            if not self._forget(oldest):
                self._objects.move_to_end(oldest)

    def _forget(self, key: str) -> bool:
        if key in self._users or self._objects[key].busy:
            return False
        del self._objects[key]
        self.nbytes -= self._sizes.pop(key)
        return True
