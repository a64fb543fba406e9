"""Await many coroutines concurrently, and let other tasks run in between. If one fails, none is left running."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")
U = TypeVar("U")

YIELD_EVERY = 16
"""Number of items after which other tasks may run; an item that does not wait takes about 0.1 ms."""
YIELD_SECONDS = 0.003
"""Seconds of work on items after which other tasks may run."""
_WAITING: WeakKeyDictionary[asyncio.AbstractEventLoop, deque[asyncio.Future[None]]] = WeakKeyDictionary()
"""Maps each event loop to the futures of the tasks in `give_way`; the future that waits longest is first."""


async def give_way() -> None:
    """Let other tasks run. Each iteration of the loop resumes one such task, so many tasks cannot block the loop."""
    loop = asyncio.get_running_loop()
    waiting = _WAITING.setdefault(loop, deque())
    waiting.append(turn := loop.create_future())
    if len(waiting) == 1:
        loop.call_soon(_go_on, loop, waiting)
    await turn


def _go_on(loop: asyncio.AbstractEventLoop, waiting: deque[asyncio.Future[None]]) -> None:
    turn = waiting.popleft()
    while turn.done() and waiting:  # its task was cancelled
        turn = waiting.popleft()
    if not turn.done():
        turn.set_result(None)
    if waiting:
        loop.call_soon(_go_on, loop, waiting)


async def gather_all(awaitables: Iterable[Awaitable[T]]) -> list[T]:
    """Await all awaitables and return their results; if any fails, raise the first failure after all have ended."""
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
    """Return the results of `await function(item)` in the order of the items; at most `limit` calls run at a time.

    After a failure no more calls start; when the running calls end, the error of the first failed item is raised. With
    more than `limit` items, other tasks run between the items, even if no call waits.
    """
    todo = list(items)
    if len(todo) <= limit:
        return await gather_all(map(function, todo))
    return await _gather_in_order(function, todo, limit)


async def _gather_in_order(function: Callable[[U], Awaitable[T]], todo: list[U], limit: int) -> list[T]:
    """Implement `gather_each` for more items than the limit."""
    drawn = iter(enumerate(todo))
    done: dict[int, T] = {}
    failed: dict[int, BaseException] = {}
    time = asyncio.get_running_loop().time

    async def work(number: int) -> None:
        if number:
            await give_way()
        since = time()
        for number, item in drawn:
            if number % YIELD_EVERY == YIELD_EVERY - 1 or time() - since > YIELD_SECONDS:
                await give_way()
                since = time()
            if failed:
                return
            try:
                done[number] = await function(item)
            except BaseException as error:  # noqa: BLE001 - raised below
                failed[number] = error

    try:
        # One task per worker instead of per item, as there may be a million items.
        await gather_all([work(number) for number in range(limit)])
        if failed:
            raise failed[min(failed)]
        return [done[number] for number in range(len(todo))]
    finally:
        _forget(failed)


def _forget(*kept: list[Any] | dict[int, Any]) -> None:
    """Empty containers of errors, to break the cycle from an error's traceback to the frame and back to the error."""
    for one in kept:
        one.clear()


async def with_pauses(items: Iterable[T], count: int) -> AsyncIterator[T]:
    """Yield the items; after every `count` items, let other tasks run."""
    for done, item in enumerate(items):
        if done and done % count == 0:
            await give_way()
        yield item
