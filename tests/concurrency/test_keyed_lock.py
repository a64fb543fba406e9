"""One at a time for each name."""

from __future__ import annotations

import asyncio

import pytest

from hsparse.concurrency.gather import KeyedLock


async def test_one_name_waits_and_others_do_not() -> None:
    locks, order = KeyedLock(), []
    begun, go = asyncio.Event(), asyncio.Event()

    async def first() -> None:
        async with locks.hold("a"):
            begun.set()
            await go.wait()
            order.append("first")

    async def second() -> None:
        async with locks.hold("a"):
            order.append("second")

    async with asyncio.TaskGroup() as group:
        group.create_task(first())
        await begun.wait()
        group.create_task(second())
        async with locks.hold("b"):
            order.append("other")
        go.set()
    assert order == ["other", "first", "second"]
    assert not locks._locks


async def test_a_turn_that_fails_is_over() -> None:
    locks = KeyedLock()
    with pytest.raises(ValueError, match="no"):
        async with locks.hold("a"):
            raise ValueError("no")
    async with locks.hold("a"):
        assert len(locks._locks) == 1
    assert not locks._locks
