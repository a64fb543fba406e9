"""The tasks of a member, of which one keeps its lease on clocks that jump."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field

import pytest

from hsparse.cluster.lease_object import LeaseObjects
from hsparse.dn.membership.lease_keeper import MOST_JUMPS, LeaseKeeper
from hsparse.dn.membership.peers import NodeTasks
from hsparse.errors import Misconfigured, StoreFailed, Unanswered
from tests.cluster.test_lease_object import TwoClocks
from tests.testing.memory_store import MemoryStore

PERIOD = 0.01


@dataclass(slots=True)
class Holder:
    """`LeaseHolder` that notes renewals; `jump` is done after each."""

    clock: TwoClocks
    jump: float = 0.0
    epoch: int = 1
    regained: list[bool] = field(default_factory=list)
    renewal: asyncio.Event = field(default_factory=asyncio.Event)

    async def follow(self) -> None:
        raise AssertionError("nobody recalls it")

    def renewed(self, *, regained: bool) -> None:
        self.regained.append(regained)
        self.clock.time += PERIOD
        self.clock.day += self.jump
        self.renewal.set()


async def taken(clock: TwoClocks) -> LeaseKeeper:
    keeper = LeaseKeeper(LeaseObjects(MemoryStore()), clock, PERIOD)
    assert not keeper.holds()
    assert keeper.age == float("inf")
    await keeper.take("a", 1)
    assert keeper.holds()
    return keeper


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
async def test_a_jump_is_told_and_the_lease_renewed(jump: float, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "hsparse")  # tools in other tests raise the root's
    clock = TwoClocks()
    keeper, holder = await taken(clock), Holder(clock)
    clock.day += jump
    assert keeper.holds() is (jump < 0), "time that has passed by one clock has passed"
    keeping = asyncio.create_task(keeper.keep(holder, at_once=True))
    async with asyncio.timeout(10):
        while len(holder.regained) < 3:
            holder.renewal.clear()
            await holder.renewal.wait()
    assert keeper.holds()
    assert holder.regained == [True, False, False]
    assert [record.getMessage() for record in caplog.records if "suspended" in record.getMessage()] == [
        "a owns nothing until its lease is renewed, as this machine was suspended or its clock set: "
        f"the time of day has gone {jump:+.3g} s further than the monotonic clock"
    ]
    keeping.cancel()


async def test_a_clock_that_keeps_jumping_is_refused() -> None:
    clock = TwoClocks()
    keeper, holder = await taken(clock), Holder(clock, jump=5.0)
    async with asyncio.timeout(10):
        with pytest.raises(Misconfigured, match=r"keeps jumping.*NTP"):
            await keeper.keep(holder)
    assert len(holder.regained) == MOST_JUMPS + 1, "the first one was in time"
    assert not keeper.holds()


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
