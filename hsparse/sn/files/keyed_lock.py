"""One at a time for each name, in the order in which they came."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager


class KeyedLock:
    """Locks by name, which are there as long as somebody wants them."""

    def __init__(self) -> None:
        self._turns: dict[Hashable, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def of(self, name: Hashable) -> AsyncIterator[None]:
        """Wait until nobody else has this name's turn, and have it."""
        lock, waiting = self._turns.get(name, (asyncio.Lock(), 0))
        self._turns[name] = (lock, waiting + 1)
        try:
            async with lock:
                yield
        finally:
            lock, waiting = self._turns[name]
            if waiting > 1:
                self._turns[name] = (lock, waiting - 1)
            else:
                del self._turns[name]
