"""Several attempts at the same thing, each begun when the ones before have failed or take long."""

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
