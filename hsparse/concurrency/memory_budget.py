"""A memory budget: admission control by bytes. Requests wait for room, then fail as `Busy`."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hsparse.concurrency.request_trace import measured_wait
from hsparse.errors import Busy

PATIENCE = 30.0
"""Seconds that a request waits for room."""


class MemoryBudget:
    """A budget of bytes that may be in use at a time; waiting requests are admitted in the order of arrival."""

    def __init__(self, limit: int, patience: float = PATIENCE) -> None:
        self._limit = limit
        self._patience = patience
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.used = 0

    @asynccontextmanager
    async def hold(self, nbytes: int) -> AsyncIterator[None]:
        """Hold `nbytes` (at most the whole budget); `Busy` when there is no room within `patience` seconds."""
        nbytes = min(nbytes, self._limit)
        await self._acquire(nbytes)
        try:
            yield
        finally:
            self.used -= nbytes
            self._admit()

    async def _acquire(self, nbytes: int) -> None:
        if not self._waiting and self.used + nbytes <= self._limit:
            self.used += nbytes
            return
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((nbytes, admitted))
        try:
            async with asyncio.timeout(self._patience):
                with measured_wait():
                    await admitted
        except BaseException as error:
            if admitted.done() and not admitted.cancelled():
                self.used -= nbytes
            self._waiting = deque(item for item in self._waiting if item[1] is not admitted)
            self._admit()
            if isinstance(error, TimeoutError):
                raise Busy(f"No room for {nbytes} bytes within {self._patience:g} s; try again.") from error
            raise

    def _admit(self) -> None:
        while self._waiting and self.used + self._waiting[0][0] <= self._limit:
            nbytes, admitted = self._waiting.popleft()
            if not admitted.done():
                self.used += nbytes
                admitted.set_result(None)
