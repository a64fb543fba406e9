"""What requests take: bytes of a budget, counts of a trace, and runs of the cycle collector."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hsparse.clock import Clock
from hsparse.concurrency.collector import SERVER_THRESHOLDS, WHOLE_EVERY, collect_seldom, paused_collector
from hsparse.concurrency.memory_budget import MemoryBudget
from hsparse.concurrency.request_trace import (
    RequestTrace,
    Work,
    begin_trace,
    current_trace,
    end_trace,
    valid_id,
)
from hsparse.errors import Busy
from tests.testing.manual_clock import ManualClock


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
    assert (order, budget.used) == ([0], 6)
    gate.set()
    await asyncio.gather(*tasks)
    assert (order, budget.used) == ([0, 1, 2], 0)


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


@pytest.fixture(autouse=True)
def enabled() -> Iterator[None]:
    was = gc.isenabled()
    gc.enable()
    yield
    (gc.enable if was else gc.disable)()


def test_it_goes_on_after_an_error() -> None:
    def fail() -> None:
        with paused_collector():
            assert not gc.isenabled()
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert gc.isenabled()


def test_a_pause_inside_a_pause_does_not_end_it() -> None:
    with paused_collector():
        with paused_collector():
            pass
        assert not gc.isenabled()


def test_one_that_is_off_stays_off() -> None:
    gc.disable()
    with paused_collector():
        pass
    assert not gc.isenabled()


def test_a_pause_that_ends_before_another_does_not_end_it() -> None:
    first, second = paused_collector(), paused_collector()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled()


def test_a_server_has_thresholds_of_its_own() -> None:
    with server_collector(ManualClock()):
        assert gc.get_threshold() == SERVER_THRESHOLDS


class Cycle:
    """An object that only the collector frees."""

    def __init__(self) -> None:
        self.own = self


def test_objects_that_stay_are_looked_through_once_until_it_is_time_again() -> None:
    clock = ManualClock()
    with server_collector(clock):
        stays, later = Cycle(), Cycle()
        gone, known = weakref.ref(later), [Cycle() for _ in range(100)]
        gc.collect()
        assert not {id(one) for one in (stays, later, *known)} & {id(one) for one in gc.get_objects()}
        at_once = weakref.ref(new := Cycle())
        del later, new
        gc.collect()
        assert at_once() is None
        assert gone() is not None
        clock.time += WHOLE_EVERY + 1
        gc.collect()
        assert gone() is None


@contextmanager
def server_collector(clock: Clock) -> Iterator[None]:
    """Have the collector run as in a server for the context."""
    thresholds, callbacks = gc.get_threshold(), list(gc.callbacks)
    try:
        collect_seldom(clock.monotonic)
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks[:] = callbacks
        gc.unfreeze()


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
