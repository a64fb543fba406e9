"""One at a time for each name."""

from __future__ import annotations

import asyncio

import pytest

from hsparse.sn.files.keyed_lock import KeyedLock


async def test_one_name_waits_and_others_do_not() -> None:
    turns, order = KeyedLock(), []
    begun, go = asyncio.Event(), asyncio.Event()

    async def first() -> None:
        async with turns.of("a"):
            begun.set()
            await go.wait()
            order.append("first")

    async def second() -> None:
        async with turns.of("a"):
            order.append("second")

    async with asyncio.TaskGroup() as group:
        group.create_task(first())
        await begun.wait()
        group.create_task(second())
        async with turns.of("b"):
            order.append("other")
        go.set()
    assert order == ["other", "first", "second"]
    assert not turns._turns


async def test_a_turn_that_fails_is_over() -> None:
    turns = KeyedLock()
    with pytest.raises(ValueError, match="no"):
        async with turns.of("a"):
            raise ValueError("no")
    async with turns.of("a"):
        assert len(turns._turns) == 1
    assert not turns._turns
