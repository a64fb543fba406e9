"""A store with latency."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from hsparse.storage.object_store import Buffer, ObjectStore
from hsparse.testing.store_wrapper import StoreWrapper

R = TypeVar("R")


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
