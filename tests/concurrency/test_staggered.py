"""Staggered attempts: the first to succeed wins, failures go on to the next."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from hsparse.concurrency.gather import staggered

FOREVER = 1e6


class Attempt:
    """An attempt that ends when it is told to; `begun` is set when it begins."""

    def __init__(self, result: int | Exception | None = None) -> None:
        self.begun = asyncio.Event()
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if isinstance(result, Exception):
            self.ended.set_exception(result)
        elif result is not None:
            self.ended.set_result(result)

    async def __call__(self) -> int:
        self.begun.set()
        return await self.ended


def all_of(*attempts: Attempt) -> list[Callable[[], Awaitable[int]]]:
    return list(attempts)


async def test_one_that_succeeds_is_enough() -> None:
    first, second = Attempt(1), Attempt(2)
    assert await staggered(all_of(first, second), FOREVER, (OSError,)) == 1
    assert not second.begun.is_set()


async def test_a_failure_begins_the_next_at_once() -> None:
    assert await staggered(all_of(Attempt(OSError("a")), Attempt(2)), FOREVER, (OSError,)) == 2


async def test_another_error_is_raised_at_once() -> None:
    second = Attempt(2)
    with pytest.raises(ValueError, match="a"):
        await staggered(all_of(Attempt(ValueError("a")), second), FOREVER, (OSError,))
    assert not second.begun.is_set()


async def test_the_last_failure_is_raised_when_all_have_failed() -> None:
    with pytest.raises(OSError, match="b"):
        await staggered(all_of(Attempt(OSError("a")), Attempt(OSError("b"))), FOREVER, (OSError,))


async def test_a_slow_one_is_not_overtaken_where_that_is_not_allowed() -> None:
    slow, quick, asked = Attempt(), Attempt(2), asyncio.Event()

    def may_hedge() -> bool:
        asked.set()
        return False

    task = asyncio.create_task(staggered(all_of(slow, quick), 0.001, (OSError,), may_hedge))
    await asked.wait()
    assert not quick.begun.is_set()
    slow.ended.set_exception(OSError("a"))
    assert await task == 2


async def test_a_slow_one_is_overtaken_and_cancelled() -> None:
    slow, quick = Attempt(), Attempt(2)
    assert await staggered(all_of(slow, quick), 0.001, (OSError,)) == 2
    assert slow.begun.is_set()
    await asyncio.sleep(0)
    assert slow.ended.cancelled()


async def test_a_slow_one_may_still_be_the_first() -> None:
    slow, never = Attempt(), Attempt()
    running = asyncio.create_task(staggered(all_of(slow, never), 0.001, (OSError,)))
    await never.begun.wait()
    slow.ended.set_result(1)
    assert await running == 1
