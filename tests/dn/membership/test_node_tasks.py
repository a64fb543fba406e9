"""Tasks of a member: shared by all who wait, and ended with it."""

from __future__ import annotations

import asyncio

import pytest

from hsparse.dn.membership.peers import NodeTasks
from hsparse.errors import StoreFailed, Unanswered


async def test_work_is_done_once_for_all_who_wait() -> None:
    tasks, go_on, begun = NodeTasks(lambda: "dn"), asyncio.Event(), []

    async def work() -> int:
        begun.append(1)
        await go_on.wait()
        return len(begun)

    waiting = [asyncio.create_task(tasks.once("read", "a", work)) for _ in range(3)]
    other = asyncio.create_task(tasks.once("read", "b", work))
    await asyncio.sleep(0)
    waiting[0].cancel()
    go_on.set()
    assert await asyncio.gather(*waiting[1:], other) == [1, 1, 2]
    assert await tasks.once("read", "a", work) == 3


async def test_who_waits_when_the_node_stops_gets_no_answer() -> None:
    tasks = NodeTasks(lambda: "dn")
    waiting = asyncio.create_task(tasks.once("read", "", asyncio.Event().wait))
    await asyncio.sleep(0)
    await tasks.close()
    with pytest.raises(Unanswered, match="dn is stopping"):
        await waiting


async def test_a_defect_is_told_and_an_expected_error_is_not() -> None:
    tasks = NodeTasks(lambda: "dn")

    async def fail(error: Exception) -> None:
        raise error

    await asyncio.wait([tasks.start(fail(StoreFailed("503")))])
    assert not tasks.defect.is_set()
    await asyncio.wait([tasks.start(fail(ZeroDivisionError()))])
    assert tasks.defect.is_set()
