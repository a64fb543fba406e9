"""What is counted for a request."""

from __future__ import annotations

import asyncio

import pytest

from hsparse.concurrency.memory_budget import MemoryBudget
from hsparse.concurrency.request_trace import (
    RequestTrace,
    Work,
    begin_trace,
    current_trace,
    end_trace,
    valid_id,
)


async def test_tasks_inherit_the_trace_and_others_have_their_own() -> None:
    async def ask(id: str) -> str:
        token = begin_trace(RequestTrace(id))
        found = await asyncio.create_task(seen())
        end_trace(token)
        return found

    async def seen() -> str:
        await asyncio.sleep(0)
        trace = current_trace()
        assert trace is not None
        return trace.id

    assert await asyncio.gather(ask("a"), ask("b")) == ["a", "b"]
    assert current_trace() is None


async def test_what_was_done_is_added_up_also_where_it_failed() -> None:
    trace = RequestTrace("a")
    for _ in range(2):
        with trace.measured(Work.READS):
            pass
    with pytest.raises(ValueError, match="no"), trace.measured(Work.WRITES):
        raise ValueError("no")
    trace.conflicts = 3
    assert {kind: count for kind, (count, _) in trace.work.items()} == {Work.READS: 2, Work.WRITES: 1}
    assert trace.text == "2 store reads in 0.000 s, 1 store writes in 0.000 s, 3 conflicts"


async def test_waiting_for_memory_is_counted() -> None:
    budget = MemoryBudget(10)
    trace = RequestTrace("a")

    async def hold() -> None:
        begin_trace(trace)
        async with budget.hold(10):
            pass

    async with budget.hold(10):
        waiting = asyncio.create_task(hold())
        await asyncio.sleep(0)  # the task runs until it waits
        assert budget._waiting
        assert Work.WAITS not in trace.work
    await waiting
    assert trace.work[Work.WAITS][0] == 1


@pytest.mark.parametrize("id", ["a", "0f-1", "x" * 128, "a.b_c:d/e+f=g@h"])
def test_ids(id: str) -> None:
    assert valid_id(id) == id


@pytest.mark.parametrize("text", [None, "", "x" * 129, "a b", "a\n", "ä", '"', "\x00"])
def test_what_is_no_id(text: str | None) -> None:
    assert valid_id(text) is None
