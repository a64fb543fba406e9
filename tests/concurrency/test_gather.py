"""Awaiting many: their order, how many there are at once, and what a failure stops."""

from __future__ import annotations

import asyncio

import pytest

from hsparse.concurrency.gather import YIELD_EVERY, gather_each

LIMIT = 4


async def test_results_are_in_the_order_of_the_items() -> None:
    async def wait(item: int) -> int:
        for _ in range(item % 3):
            await asyncio.sleep(0)
        return -item

    assert await gather_each(wait, range(20), LIMIT) == [-item for item in range(20)]
    assert await gather_each(wait, [], LIMIT) == []


async def test_others_have_their_turn_where_no_item_waits() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def be_done_at_once(item: int) -> int:
        return item

    counting = asyncio.create_task(count())
    await gather_each(be_done_at_once, range(10 * YIELD_EVERY), 1)
    counting.cancel()
    assert turns >= 10


async def test_there_are_no_more_tasks_than_the_limit() -> None:
    before, most = len(asyncio.all_tasks()), 0

    async def count(item: int) -> None:
        nonlocal most
        most = max(most, len(asyncio.all_tasks()))
        await asyncio.sleep(0)

    await gather_each(count, range(1000), LIMIT)
    assert most - before == LIMIT


@pytest.mark.parametrize("limit", [1, LIMIT])
async def test_after_a_failure_no_more_are_begun(limit: int) -> None:
    begun: list[int] = []
    ended: list[int] = []

    async def fail(item: int) -> None:
        begun.append(item)
        await asyncio.sleep(0)
        if item in (2, 3):
            raise ValueError(item)
        await asyncio.sleep(0)
        ended.append(item)

    with pytest.raises(ValueError, match="2"):
        await gather_each(fail, range(1000), limit)
    assert begun == list(range(max(3, limit)))
    assert ended == [0, 1], "what was begun is waited for"


async def test_an_item_that_fails_while_another_one_has_its_turn_begins_no_more() -> None:
    begun: list[int] = []
    before_pause = asyncio.Event()

    async def work(item: int) -> None:
        begun.append(item)
        if item == YIELD_EVERY - 2:
            before_pause.set()
        if item == 0:
            await before_pause.wait()
            raise ValueError(item)

    with pytest.raises(ValueError, match="0"):
        await gather_each(work, range(2 * YIELD_EVERY), 2)
    assert begun == list(range(YIELD_EVERY - 1))


@pytest.mark.parametrize("limit", [1, LIMIT])
async def test_cancelling_it_cancels_what_was_begun(limit: int) -> None:
    begun: list[int] = []
    cancelled: list[int] = []
    full = asyncio.Event()

    async def wait(item: int) -> None:
        begun.append(item)
        if len(begun) == limit:
            full.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(item)
            raise

    task = asyncio.create_task(gather_each(wait, range(1000), limit))
    await full.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert begun == cancelled == list(range(limit))
