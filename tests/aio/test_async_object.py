"""How methods become ones to await: requests are bounded, and cancelled calls disturb no other one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import Any

import numpy as np
import pytest

from hsparse import aio
from hsparse.aio.async_object import AsyncObject

WAIT = 30


class Gate:
    """A call that waits for `opened`, and counts how many wait."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.entered = threading.Semaphore(0)
        self.inside = self.most = 0
        self._lock = threading.Lock()

    def pass_through(self, result: Any) -> Any:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        self.entered.release()
        assert self.opened.wait(WAIT)
        with self._lock:
            self.inside -= 1
        return result


async def entered(gate: Gate) -> None:
    assert await asyncio.to_thread(gate.entered.acquire, timeout=WAIT)


async def test_no_more_calls_than_requests_are_under_way(address: str) -> None:
    gate = Gate()
    async with aio.open(address, "x", requests=3) as file:
        calls = [asyncio.create_task(file.run(gate.pass_through, number)) for number in range(10)]
        for _ in range(3):
            await entered(gate)
        gate.opened.set()
        assert await asyncio.gather(*calls) == list(range(10))
    assert gate.most == 3


async def test_a_cancelled_call_disturbs_no_other(address: str) -> None:
    gate = Gate()
    sent: list[int] = []
    async with aio.open(address, "x", requests=1) as file:
        assert isinstance(file, aio.AsyncFile)
        await file.create_dataset("y", data=np.arange(5))
        y = await file.getitem("y")
        assert isinstance(y, aio.AsyncDense)
        begun = asyncio.create_task(file.run(gate.pass_through, 1))
        await entered(gate)
        waiting = asyncio.create_task(file.run(sent.append, 1))
        await asyncio.sleep(0)  # it is queued now
        for call in (begun, waiting):
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        gate.opened.set()
        assert (await y.getitem(slice(1, 3))).tolist() == [1, 2]
        assert gate.inside == 0
        assert sent == []


async def test_many_reads_cancelled_at_any_time_leave_right_answers(address: str) -> None:
    async with aio.open(address, "x", requests=4) as file:
        assert isinstance(file, aio.AsyncFile)
        x = await file.create_sparse("x", (200, 4), "i4", (10, 4))
        await x.write([[row, row % 4] for row in range(200)], np.arange(200))
        reads = [asyncio.create_task(x.read(f"[{row},:]")) for row in range(120)]
        await reads[5]
        for read in reads[::3]:
            read.cancel()
        found = await asyncio.gather(*reads, return_exceptions=True)
    answers = {row: one for row, one in enumerate(found) if not isinstance(one, asyncio.CancelledError)}
    assert len(answers) >= 80
    for row, (coords, values) in answers.items():  # type: ignore[misc]
        assert (coords.tolist(), values.tolist()) == ([[row, row % 4]], [row])


class Steps:
    """An iterator of numbers whose steps pass a gate, and that says when it was closed."""

    def __init__(self, gate: Gate, count: int = 5) -> None:
        self.gate = gate
        self.count = count
        self.closed = threading.Event()

    def iterate(self) -> Iterator[int]:
        try:
            for number in range(self.count):
                yield self.gate.pass_through(number)
        finally:
            self.closed.set()


async def test_an_iterator_left_early_is_closed() -> None:
    gate = Gate()
    gate.opened.set()
    steps = Steps(gate)
    with ThreadPoolExecutor(1) as pool:
        wrapped = AsyncObject(steps, pool)
        assert [number async for number in wrapped.iterate(steps.iterate)] == [0, 1, 2, 3, 4]
        steps.closed.clear()
        async with aclosing(wrapped.iterate(steps.iterate)) as numbers:
            assert [await anext(numbers), await anext(numbers)] == [0, 1]
            assert not steps.closed.is_set()
        assert steps.closed.is_set()


async def test_a_cancelled_step_ends_in_its_thread_and_the_iterator_is_closed_then() -> None:
    gate = Gate()
    steps = Steps(gate)
    with ThreadPoolExecutor(1) as pool:
        numbers = AsyncObject(steps, pool).iterate(steps.iterate)
        step = asyncio.create_task(anext(numbers))
        await entered(gate)
        step.cancel()
        with pytest.raises(asyncio.CancelledError):
            await step
        assert not steps.closed.is_set()
        gate.opened.set()
        assert await asyncio.to_thread(steps.closed.wait, WAIT)


async def test_rows_cancelled_at_any_time_leave_right_answers(address: str) -> None:
    async with aio.open(address, "x", requests=2) as file:
        assert isinstance(file, aio.AsyncFile)
        x = await file.create_sparse("x", (60, 4), "i4", (10, 4))
        await x.write([[row, row % 4] for row in range(60)], np.arange(1, 61))

        async def total(count: int) -> int:
            return sum([int(block.sum()) async for block in x.iter_rows(count)])

        tasks = [asyncio.create_task(total(count)) for count in (7, 10, 11, 20, 30, 60)]
        await tasks[-1]
        for task in tasks[::2]:
            task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert {one for one in found if not isinstance(one, asyncio.CancelledError)} == {1830}
        assert await total(13) == 1830
