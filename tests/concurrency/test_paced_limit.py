"""The limit that follows the event loop's lag, on virtual time: what blocks the loop moves the clock."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from hsparse.concurrency import admission as paced_limit
from hsparse.concurrency.admission import FEW, LAG, TICK, PacedLimit
from tests.simulation.virtual_loop import VirtualLoop

MOST = 64


def on_virtual_time(main: Coroutine[Any, Any, Any]) -> None:
    VirtualLoop().run(main)


class Lagging:
    """A limit whose ticks come late by so many seconds."""

    def __init__(self, most: int = MOST) -> None:
        self.raised = 0
        self.limit = PacedLimit(most, lambda: False, self._note)

    def _note(self) -> None:
        self.raised += 1

    async def run(self, ticks: int, late: float, cpu: float = 1.0) -> int:
        """Look so many times, each so late, after using a part of the CPU; return the limit then."""
        for _ in range(ticks):
            now = asyncio.get_running_loop().time()
            self.limit._last = now - TICK, paced_limit.thread_time() - cpu * TICK
            self.limit._look(now - late)
        return self.limit.value


def test_the_limit_falls_while_the_loop_lags_and_rises_when_it_does_not() -> None:
    async def main() -> None:
        one = Lagging()
        assert one.limit.value == MOST
        assert await one.run(100, 2 * LAG) == FEW
        assert one.raised == 0
        assert await one.run(100, 0) == MOST
        assert one.raised > 0

    on_virtual_time(main())


def test_the_limit_of_each_user_falls_while_the_loop_computes() -> None:
    async def main() -> None:
        one = Lagging()
        assert one.limit.each == MOST
        await one.run(100, 0)
        assert (one.limit.value, one.limit.each) == (MOST, 1)
        assert one.raised == 0
        await one.run(100, 0, cpu=0.2)
        assert one.limit.each == MOST
        assert one.raised > 0

    on_virtual_time(main())


def test_a_loop_that_waits_for_the_cpu_keeps_its_limit() -> None:
    async def main() -> None:
        assert await Lagging().run(100, 2 * LAG, cpu=0.2) == MOST

    on_virtual_time(main())


def test_a_moment_s_lag_changes_nothing() -> None:
    async def main() -> None:
        one = Lagging()
        for _ in range(20):
            assert await one.run(1, 1000 * LAG) == MOST
            assert await one.run(5, 0) == MOST

    on_virtual_time(main())


def test_a_low_setting_is_kept() -> None:
    async def main() -> None:
        one = Lagging(2)
        assert await one.run(100, 2 * LAG) == 2
        assert await one.run(100, 0) == 2
        assert one.limit.few == 2

    on_virtual_time(main())


def test_it_looks_only_while_there_is_enough_to_do() -> None:
    async def main() -> None:
        one = Lagging()
        looks = []
        one.limit._is_busy = lambda: bool(looks.append(1)) or len(looks) < 5
        one.limit.watch()
        one.limit.watch()
        await asyncio.sleep(20 * TICK)
        assert len(looks) == 5
        one.limit.watch()
        await asyncio.sleep(20 * TICK)
        assert len(looks) == 6

    on_virtual_time(main())
