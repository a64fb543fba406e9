"""Run calls that rarely block in threads, so that one thread makes many calls."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")

CHECK_SECONDS = 0.001
"""Seconds between two checks of the running calls."""
MIN_ENDED_CALLS = 8
"""If fewer calls than this end between two checks, the calls count as blocked."""


class ShortCalls:
    """Calls of one event loop that rarely block, such as reads of cached files: one thread makes many of them.

    128 such reads take 4 ms in one thread, 11 ms in one each. Blocking calls get a thread each, up to `threads`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, pool: ThreadPoolExecutor, threads: int) -> None:
        self.loop = loop
        self._pool = pool
        self._threads = threads
        self._todo = deque[tuple[asyncio.Future[Any], Callable[[], Any]]]()
        self._done = deque[tuple[asyncio.Future[Any], Callable[[Any], None], Any]]()
        self._calling = 0
        self._wait = False  # whether calls block
        self._timer: asyncio.TimerHandle  # set while calls are running

    async def call(self, function: Callable[[], T]) -> T:
        """Return `function()`, called in a thread; a call that is cancelled before it starts is not made."""
        self._todo.append((future := self.loop.create_future(), function))
        if self._wait or not self._calling:
            self._begin(1)
        try:
            result: T = await future
            return result
        finally:
            del future  # breaks the cycle from the future's error to this frame and back

    def _begin(self, wanted: int) -> None:
        if not self._calling:
            self._timer = self.loop.call_later(CHECK_SECONDS, self._look)
        threads = min(wanted, self._threads - self._calling)
        self._calling += threads
        for _ in range(threads):
            self._pool.submit(self._call_all)

    def _look(self) -> None:
        self._wait = len(self._done) < MIN_ENDED_CALLS
        self._settle()
        self._begin(len(self._todo) if self._wait else 0)
        self._timer = self.loop.call_later(CHECK_SECONDS, self._look)

    def _settle(self, ended: int = 0) -> None:
        """Set the results of finished calls on their futures; `ended` threads have stopped, as no calls were left."""
        while self._done:
            future, settle, outcome = self._done.popleft()
            if not future.done():
                settle(outcome)
        self._calling -= ended
        if ended and not self._calling:
            self._timer.cancel()
            self._wait = False
            if self._todo:
                self._begin(1)

    def _call_all(self) -> None:
        with suppress(IndexError):
            while True:
                future, function = self._todo.popleft()
                if future.cancelled():
                    continue
                try:
                    outcome: tuple[Callable[[Any], None], Any] = future.set_result, function()
                except BaseException as error:  # noqa: BLE001 - raised in the awaiting task
                    outcome = future.set_exception, error
                self._done.append((future, *outcome))
                del future, outcome  # breaks the cycle from an error to this frame and back
        with suppress(RuntimeError):  # the loop is closed, so no task waits
            self.loop.call_soon_threadsafe(self._settle, 1)
