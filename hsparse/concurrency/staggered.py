"""Start several attempts at the same result, one after another, until an attempt succeeds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


async def staggered(
    attempts: Iterable[Callable[[], Awaitable[T]]],
    delay: float,
    failures: tuple[type[Exception], ...],
    may_hedge: Callable[[], bool] = lambda: True,
) -> T:
    """Return the result of the first attempt that succeeds, and cancel the other attempts.

    The next attempt starts when an attempt raises one of the `failures` or, if `may_hedge()` is then true, when no
    attempt has ended for `delay` seconds. Any other error is raised at once. If all attempts fail, the last failure is
    raised. `attempts` must not be empty; it is iterated only as attempts start.
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
        # Break the cycle from the error's traceback to this frame and back to the error.
        done.clear()
        failure = task = None


async def _awaited(attempt: Callable[[], Awaitable[T]]) -> T:
    return await attempt()
