"""A store that counts what is asked of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeVar

from hsparse.storage.object_store import Buffer, ObjectStore, Stored
from hsparse.testing.store_wrapper import StoreWrapper

R = TypeVar("R")


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
