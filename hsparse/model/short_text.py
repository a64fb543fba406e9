"""The beginning of what a client sent, for sentences of errors: what was sent may be as long as a body.

A cache of what was made of texts, bounded by their length: clients may send long ones, as many as they like.
"""

from __future__ import annotations

import reprlib
from collections import OrderedDict
from collections.abc import Callable
from itertools import islice
from threading import Lock
from typing import Any, Generic, TypeVar, TypeVarTuple

LENGTH = 80
"""Characters, at most."""
ITEMS = 12
"""The items of a list or dict that are looked at, and the lists in each other: `ITEMS` to the power of `LEVELS`."""
LEVELS = 3


class _Beginning(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = LEVELS
        self.maxlist = self.maxtuple = self.maxdict = ITEMS
        self.maxstring = self.maxother = 2 * LENGTH

    def repr_dict(self, x: dict[Any, Any], level: int) -> str:
        """Return the first items in their order; `reprlib` would sort all of them."""
        if level <= 0:
            return "{...}"
        items = islice(x.items(), self.maxdict)
        pieces = [f"{self.repr1(key, level - 1)}: {self.repr1(value, level - 1)}" for key, value in items]
        return "{" + ", ".join([*pieces, "..."] if len(x) > self.maxdict else pieces) + "}"

    def repr_bytes(self, x: bytes, level: int) -> str:
        return repr(x[: self.maxstring])


_BEGINNING = _Beginning()


def shorten(text: str, length: int = LENGTH) -> str:
    """Return a text or, of a longer one, its beginning and three dots, `length` characters in all."""
    return text if len(text) <= length else text[: length - 3] + "..."


def short_repr(value: Any) -> str:
    """Return the `repr` of a value, of a long one the beginning; it takes as long for any value."""
    if isinstance(value, str):
        return shorten(repr(value[: 2 * LENGTH]))
    return shorten(_BEGINNING.repr(value))


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
