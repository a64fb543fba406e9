"""How a process does much at once: work on many bytes in threads, many coroutines together, each name under its lock.

`compute` chooses the thread for work, `ShortCalls` those for calls that seldom wait. Of coroutines that are awaited
together none is left running when one fails.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from contextvars import copy_context
from functools import cache
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

INLINE = 16 * 1024
"""Work on at most so many bytes is done on the event loop: changing threads costs about 50 us, as much as that work."""
ALONE = 128 * 1024
"""Work on fewer bytes is done by one thread, one after the other: numpy holds Python's lock for most of it, and two
threads, and the event loop, would wait for each other. Measured: chunks of 2,000 points are written 1.14 times as fast.
"""
LONG = 1 << 30
"""The bytes of work whose size is not known, and that may take long."""
THREADS = 4
"""Threads of a process for work on more bytes."""


@cache
def _threads(name: str, count: int) -> ThreadPoolExecutor:
    """Return threads of this process, which are made at their first use."""
    return ThreadPoolExecutor(count, thread_name_prefix=f"hsparse-{name}")


os.register_at_fork(after_in_child=_threads.cache_clear)


async def compute(nbytes: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return `function(*args)`, which works on `nbytes` bytes, computed in a thread if they are many.

    An element that is looked at by itself, as a number of a list, takes as long as one to ten bytes: count it as one.
    Steps that follow each other are one call, and what takes 3 ms at its largest is done on the event loop.
    """
    if nbytes <= INLINE:
        return function(*args, **kwargs)
    threads = _threads("small-work", 1) if nbytes < ALONE else _threads("work", THREADS)
    run = copy_context().run
    return await asyncio.get_running_loop().run_in_executor(threads, lambda: run(function, *args, **kwargs))


TICK = 0.001
"""Seconds between looks at calls that are made."""
FEW = 8
"""Calls that end between two looks: when fewer do, they wait for something."""


class ShortCalls:
    """Calls of one event loop that seldom wait, as reads of files in memory: one thread makes many.

    128 such reads take 4 ms, and 11 ms in threads of their own. Calls that do wait have one, of the pool's `threads`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, pool: ThreadPoolExecutor, threads: int) -> None:
        self.loop = loop
        self._pool = pool
        self._threads = threads
        self._todo = deque[tuple[asyncio.Future[Any], Callable[[], Any]]]()
        self._done = deque[tuple[asyncio.Future[Any], Callable[[Any], None], Any]]()
        self._calling = 0
        self._wait = False  # calls wait for something
        self._timer: asyncio.TimerHandle  # while calls are made

    async def call(self, function: Callable[[], T]) -> T:
        """Return `function()`, not called if this is cancelled before."""
        self._todo.append((future := self.loop.create_future(), function))
        if self._wait or not self._calling:
            self._begin(1)
        try:
            result: T = await future
            return result
        finally:
            del future  # the traceback of its error has this frame

    def _begin(self, wanted: int) -> None:
        if not self._calling:
            self._timer = self.loop.call_later(TICK, self._look)
        threads = min(wanted, self._threads - self._calling)
        self._calling += threads
        for _ in range(threads):
            self._pool.submit(self._call_all)

    def _look(self) -> None:
        self._wait = len(self._done) < FEW
        self._settle()
        self._begin(len(self._todo) if self._wait else 0)
        self._timer = self.loop.call_later(TICK, self._look)

    def _settle(self, ended: int = 0) -> None:
        """Hand over what was returned; `ended` threads saw nothing more to do."""
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
                except BaseException as error:  # noqa: BLE001 - raised where it is awaited
                    outcome = future.set_exception, error
                self._done.append((future, *outcome))
                del future, outcome  # the traceback of an error has this frame
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            self.loop.call_soon_threadsafe(self._settle, 1)


U = TypeVar("U")

YIELD_EVERY = 16
"""After how many items other tasks have their turn: items that are worked on at once take some 0.1 ms each."""


async def gather_all(awaitables: Iterable[Awaitable[T]]) -> list[T]:
    """Await all; when some fail, wait for the rest before raising the first failure."""
    pending = list(awaitables)
    if len(pending) <= 1:
        return [await one for one in pending]
    results = await asyncio.gather(*pending, return_exceptions=True)
    failed = [result for result in results if isinstance(result, BaseException)]
    try:
        if failed:
            raise failed[0]
        return [result for result in results if not isinstance(result, BaseException)]
    finally:
        _forget(failed, results)


async def gather_each(function: Callable[[U], Awaitable[T]], items: Iterable[U], limit: int) -> list[T]:
    """Return `function` of each item, in their order, at most `limit` at a time.

    Once one fails no more are started; when the running ones are done, the error of the first failed item is raised.
    Other tasks have their turn between items, also where no item waits for anything.
    """
    todo = list(items)
    if len(todo) <= limit:
        return await gather_all(map(function, todo))
    return await _gather_in_order(function, todo, limit)


async def _gather_in_order(function: Callable[[U], Awaitable[T]], todo: list[U], limit: int) -> list[T]:
    """Do as `gather_each`, for more items than the limit."""
    drawn = iter(enumerate(todo))
    done: dict[int, T] = {}
    failed: dict[int, BaseException] = {}

    async def work() -> None:
        for number, item in drawn:
            if number % YIELD_EVERY == YIELD_EVERY - 1:
                await asyncio.sleep(0)
            if failed:
                return
            try:
                done[number] = await function(item)
            except BaseException as error:  # noqa: BLE001 - raised below
                failed[number] = error

    try:
        # Not one task for each item: there may be a million.
        await gather_all([work() for _ in range(limit)])
        if failed:
            raise failed[min(failed)]
        return [done[number] for number in range(len(todo))]
    finally:
        _forget(failed)


def _forget(*kept: list[Any] | dict[int, Any]) -> None:
    """Empty what has errors: one that its own traceback refers to stays, with all its frames, until a collection."""
    for one in kept:
        one.clear()


async def staggered(
    attempts: Iterable[Callable[[], Awaitable[T]]],
    delay: float,
    failures: tuple[type[Exception], ...],
    may_hedge: Callable[[], bool] = lambda: True,
) -> T:
    """Return the result of the attempt that is the first to succeed; the others are cancelled.

    The next attempt begins when one has raised one of the `failures` or, if `may_hedge` allows it then, the newest one
    has run for `delay` seconds. Any other error is raised at once; when all have failed, the last failure is. There is
    at least one attempt; each is taken from the iterable when it is to begin.
    """
    todo = iter(attempts)
    more = True
    tasks: set[asyncio.Task[T]] = set()
    done: set[asyncio.Task[T]] = set()
    task: asyncio.Task[T] | None = None
    failure: BaseException | None = None
    try:
        while True:
            if more and (done or not tasks or may_hedge()):
                if (attempt := next(todo, None)) is not None:
                    tasks.add(asyncio.ensure_future(_awaited(attempt)))
                else:
                    more = False
            if not tasks:
                break
            done, tasks = await asyncio.wait(
                tasks, timeout=delay if more else None, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                failure = task.exception()
                if failure is None:
                    return task.result()
                if not isinstance(failure, failures):
                    raise failure
        assert failure is not None
        raise failure
    finally:
        for task in tasks:
            task.cancel()
        # An error that its own traceback refers to stays until a collection, with all its frames.
        done.clear()
        failure = task = None


async def _awaited(attempt: Callable[[], Awaitable[T]]) -> T:
    return await attempt()


async def with_pauses(items: Iterable[T], count: int) -> AsyncIterator[T]:
    """Yield the items; other requests run after each `count` of them."""
    for done, item in enumerate(items, 1):
        yield item
        if done % count == 0:
            await asyncio.sleep(0)


class KeyedLock:
    """Locks by name; one that nobody holds or waits for takes no memory."""

    def __init__(self) -> None:
        self._locks: dict[Hashable, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def hold(self, name: Hashable) -> AsyncIterator[None]:
        """Wait until nobody else holds this name's lock, and hold it."""
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
