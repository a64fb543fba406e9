"""The budget of bytes."""

from __future__ import annotations

import asyncio

import pytest

from hsparse.concurrency.memory_budget import MemoryBudget
from hsparse.concurrency.request_trace import RequestTrace, begin_trace, end_trace
from hsparse.errors import Busy


async def test_waiters_are_served_in_order() -> None:
    budget = MemoryBudget(10)
    order: list[int] = []
    gate = asyncio.Event()

    async def take(number: int, nbytes: int) -> None:
        async with budget.hold(nbytes):
            order.append(number)
            await gate.wait()

    tasks = [asyncio.create_task(take(i, n)) for i, n in enumerate([6, 6, 1])]
    await asyncio.sleep(0)
    assert order == [0]
    assert budget.used == 6
    gate.set()
    await asyncio.gather(*tasks)
    assert order == [0, 1, 2]
    assert budget.used == 0


async def test_more_than_all_counts_as_all() -> None:
    budget = MemoryBudget(10)
    async with budget.hold(10**9):
        assert budget.used == 10
    assert budget.used == 0


async def test_no_room_in_time_is_busy() -> None:
    budget = MemoryBudget(10, patience=0)
    async with budget.hold(10):
        with pytest.raises(Busy):
            async with budget.hold(1):
                pytest.fail("there was no room")
    async with budget.hold(10):
        assert budget.used == 10


async def test_one_that_gives_up_lets_the_next_in() -> None:
    budget = MemoryBudget(10)
    entered = asyncio.Event()

    async def small() -> None:
        async with budget.hold(4):
            entered.set()

    async with budget.hold(5):
        big = asyncio.create_task(budget.hold(8).__aenter__())
        await asyncio.sleep(0)
        waiting = asyncio.create_task(small())
        await asyncio.sleep(0)
        assert not entered.is_set()
        big.cancel()
        await asyncio.wait([big])
        await waiting
    assert budget.used == 0


async def test_users_who_wait_have_turns() -> None:
    budget, order = MemoryBudget(10), []

    async def take(user: str) -> None:
        begin_trace(RequestTrace("", queue_user=user))
        async with budget.hold(10):
            order.append(user)

    async with budget.hold(10):
        tasks = [asyncio.create_task(take(user)) for user in "aaaaab"]
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert order.index("b") == 1


async def test_nobody_waits_beyond_the_deadline() -> None:
    budget = MemoryBudget(10)
    begin_trace(RequestTrace("", deadline=asyncio.get_running_loop().time()))
    async with budget.hold(10):
        assert not budget.has_room(1)
        with pytest.raises(Busy, match="within 0 s"):
            async with budget.hold(1):
                pytest.fail("there was no room")


async def test_a_request_holds_until_it_ends_and_once() -> None:
    budget = MemoryBudget(10)
    await budget.hold_for_request(10)
    assert budget.used == 0, "nothing is held for no request"
    token = begin_trace(RequestTrace("first"))
    await budget.hold_for_request(6)
    await asyncio.gather(budget.hold_for_request(9), budget.hold_for_request(9))
    assert budget.used == 6
    end_trace(token)
    assert budget.used == 0


async def test_a_request_that_ends_while_it_waits_holds_nothing() -> None:
    budget = MemoryBudget(10)
    async with budget.hold(10):
        token = begin_trace(RequestTrace("late"))
        waiting = asyncio.create_task(budget.hold_for_request(6))
        await asyncio.sleep(0)
        end_trace(token)
    await waiting
    assert budget.used == 0
