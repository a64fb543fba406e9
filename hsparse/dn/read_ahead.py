"""A listing of which the next page is asked for while one is worked on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TypeVar

T = TypeVar("T")


async def read_ahead(items: AsyncIterator[T]) -> AsyncGenerator[T, None]:
    """Yield the items; the next one is being read meanwhile. Close it (`contextlib.aclosing`) to leave it early."""
    following = _next(items)
    try:
        while (item := await following) is not None:
            following = _next(items)
            yield item
    finally:
        following.cancel()  # and not awaited: nothing can be, when a task is dropped
        del following  # an error has this frame, and would have itself


def _next(items: AsyncIterator[T]) -> asyncio.Task[T | None]:
    async def read() -> T | None:
        return await anext(items, None)

    reading = asyncio.create_task(read())
    # Who leaves early does not ask how it went.
    reading.add_done_callback(lambda task: task.cancelled() or task.exception())
    return reading
