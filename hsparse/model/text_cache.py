"""A cache of what was made of texts, bounded by their length: clients may send long ones, as many as they like."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar, TypeVarTuple

A = TypeVarTuple("A")
T = TypeVar("T")

ENTRY_SIZE = 1024
"""Characters that an entry counts besides its text."""


class TextCache(Generic[*A, T]):
    """A function of a text, and of other arguments, that remembers its latest results.

    Their texts have at most `limit` characters together, and `largest` each. `weigh` says as how many characters the
    other arguments count; those that are small count as none. It may be called by several threads.
    """

    def __init__(
        self,
        function: Callable[[str, *A], T],
        limit: int,
        largest: int,
        weigh: Callable[[*A], int] = lambda *args: 0,
    ) -> None:
        self._function = function
        self._limit = limit
        self._largest = largest
        self._weigh = weigh
        self._results: OrderedDict[tuple[object, ...], tuple[T, int]] = OrderedDict()
        self._lock = Lock()
        self.size = 0

    def __len__(self) -> int:
        return len(self._results)

    def __call__(self, text: str, *args: *A) -> T:
        """Return the function's result; its errors are raised, and not remembered."""
        key = (text, *args)
        with self._lock:
            if key in self._results:
                self._results.move_to_end(key)
                return self._results[key][0]
        result = self._function(text, *args)
        length = len(text) + self._weigh(*args)
        if length <= self._largest:
            self._remember(key, result, length + ENTRY_SIZE)
        return result

    def _remember(self, key: tuple[object, ...], result: T, size: int) -> None:
        with self._lock:
            if key in self._results:
                return
            self._results[key] = result, size
            self.size += size
            while self.size > self._limit:
                _, (_, forgotten) = self._results.popitem(last=False)
                self.size -= forgotten
