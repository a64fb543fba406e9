"""Await many coroutines concurrently; when one fails, none is left running."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

T = TypeVar("T")
U = TypeVar("U")

YIELD_EVERY = 16
"""After how many items other tasks have their turn: items that are worked on at once take some 0.1 ms each."""


async def gather_all(awaitables: Iterable[Awaitable[T]]) -> list[T]:
    """Await all; when some fail, wait for the rest before raising the first failure."""
    pending = list(awaitables)
    if len(pending) == 1:
        return [await pending[0]]
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
        await gather_all([work() for _ in range(min(limit, len(todo)))])
        if failed:
            raise failed[min(failed)]
        return [done[number] for number in range(len(todo))]
    finally:
        _forget(failed)


def _forget(*kept: list[Any] | dict[int, Any]) -> None:
    """Empty what has errors: one that its own traceback refers to stays, with all its frames, until a collection."""
    for one in kept:
        one.clear()
