from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from hsparse.dn.deletions import read_ahead


async def test_the_next_one_is_read_while_one_is_worked_on() -> None:
    asked = [asyncio.Event() for _ in range(4)]

    async def numbers() -> AsyncIterator[int]:
        for number in range(3):
            asked[number].set()
            yield number
        asked[3].set()

    seen = []
    async for number in read_ahead(numbers()):
        seen.append(number)
        await asked[number + 1].wait()
    assert seen == [0, 1, 2]


async def test_who_leaves_early_leaves_nothing_running() -> None:
    entered, ended = asyncio.Event(), asyncio.Event()

    async def numbers() -> AsyncIterator[int]:
        yield 0
        entered.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.set()

    async with aclosing(read_ahead(numbers())) as ahead:
        async for _ in ahead:
            await entered.wait()
            break
    await ended.wait()


async def test_an_error_comes_after_what_was_read_before_it() -> None:
    async def numbers() -> AsyncIterator[int]:
        yield 0
        raise OSError("the disk")

    ahead = read_ahead(numbers())
    assert await anext(ahead) == 0
    with pytest.raises(OSError, match="the disk"):
        await anext(ahead)
