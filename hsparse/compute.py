"""How a process does much at once: work on many bytes in threads, many coroutines together, each name under its lock.

`compute` is the one place that chooses a thread. Of coroutines that are awaited together none is left running when one
fails.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
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
