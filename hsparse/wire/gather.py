"""Awaiting many at once, on either side of the wire, so that nothing runs on unseen after a failure."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")


async def gather_all(awaitables: Iterable[Awaitable[T]]) -> list[T]:
    """Await all; when some fail, wait for the rest before raising the first failure."""
    pending = list(awaitables)
    if len(pending) == 1:
        return [await pending[0]]
    results = await asyncio.gather(*pending, return_exceptions=True)
    done: list[T] = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        done.append(result)
    return done


async def gather_each(function: Callable[[U], Awaitable[T]], items: Iterable[U], limit: int) -> list[T]:
    """Return `function` of each item, at most `limit` at a time, as `gather_all` does."""
    gate = asyncio.Semaphore(limit)

    async def one(item: U) -> T:
        async with gate:
            return await function(item)

    return await gather_all([one(item) for item in items])
