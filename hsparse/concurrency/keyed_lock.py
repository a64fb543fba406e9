"""Locks by key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager


class KeyedLock:
    """Locks by name; a lock that no task holds or waits for takes no memory."""

    def __init__(self) -> None:
        self._locks: dict[Hashable, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def hold(self, name: Hashable) -> AsyncIterator[None]:
        """Wait for the lock of this name, and hold it during the context."""
        lock, waiting = self._locks.get(name, (asyncio.Lock(), 0))
        self._locks[name] = (lock, waiting + 1)
        try:
            async with lock:
                yield
        finally:
            lock, waiting = self._locks[name]
            if waiting > 1:
                self._locks[name] = (lock, waiting - 1)
            else:
                del self._locks[name]
