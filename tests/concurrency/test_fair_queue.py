"""Waiting in a fair order, by keys, in pauses and together."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.concurrency import admission as paced_limit
from hsparse.concurrency import memory_budget as fair_queue
from hsparse.concurrency.admission import (
    INTERVAL_SECONDS,
    LAG_CHECK_SECONDS,
    MAX_MEAN_LAG_SECONDS,
    MIN_LIMIT,
    PacedLimit,
    RecentUsers,
)
from hsparse.concurrency.gathering import YIELD_EVERY, gather_each, with_pauses
from hsparse.concurrency.keyed_lock import KeyedLock
from hsparse.concurrency.memory_budget import FairQueue
from hsparse.concurrency.staggered import staggered
from tests.simulation.virtual_loop import on_virtual_time

USERS = "abcde"


@given(st.lists(st.sampled_from(USERS)))
def test_pushed_at_once_is_served_by_turns(users: list[str]) -> None:
    queue: FairQueue[tuple[str, int]] = FairQueue()
    waiting: dict[str, deque[tuple[str, int]]] = {}
    for number, user in enumerate(users):
        queue.push(user, (user, number))
        waiting.setdefault(user, deque()).append((user, number))
    expected = []
    while any(waiting.values()):
        heads = sorted((one for one in waiting.values() if one), key=lambda one: one[0][1])
        expected += sorted((one.popleft() for one in heads), key=lambda item: item[1])
    assert [queue.pop() for _ in users] == expected
    assert not queue


@given(st.lists(st.tuples(st.sampled_from(USERS), st.floats(0.1, 5.0)), min_size=1, max_size=60))
def test_users_who_wait_are_served_equal_costs(pushes: list[tuple[str, float]]) -> None:
    queue: FairQueue[tuple[str, float]] = FairQueue()
    left: Counter[str] = Counter()
    for user, cost in pushes:
        queue.push(user, (user, cost), cost)
        left[user] += 1
    served = dict.fromkeys(left, 0.0)
    most = 2 * max(cost for _, cost in pushes)
    while all(left.values()):
        user, cost = queue.pop()
        served[user] += cost
        left[user] -= 1
        assert max(served.values()) - min(served.values()) <= most + 1e-9


@given(st.data())
def test_ahead_is_how_many_are_served_before(data: st.DataObject) -> None:
    queue: FairQueue[int] = FairQueue()
    for number, user in enumerate(data.draw(st.lists(st.sampled_from(USERS), max_size=40))):
        queue.push(user, number, data.draw(st.sampled_from([0.5, 1.0, 3.0])))
    for _ in range(data.draw(st.integers(0, len(queue)))):
        queue.pop()
    user = data.draw(st.sampled_from(USERS))
    ahead = queue.ahead(user)
    queue.push(user, -1)
    assert [queue.pop() for _ in range(len(queue))].index(-1) == ahead


@given(st.lists(st.tuples(st.sampled_from(USERS), st.sampled_from(["push", "pop", "remove"])), max_size=80))
def test_nothing_is_lost_or_served_twice(moves: list[tuple[str, str]]) -> None:
    queue: FairQueue[int] = FairQueue()
    entries = {}
    for number, (user, move) in enumerate(moves):
        if move == "push":
            entries[number] = queue.push(user, number)
        elif entries and move == "pop":
            first = queue.peek().item
            assert queue.pop() == first
            del entries[first]
        elif entries:
            entry = entries.pop(min(entries))
            queue.remove(entry)
            queue.remove(entry)  # again: it is not there
        assert len(queue) == len(entries)
    assert sorted(queue.pop() for _ in range(len(queue))) == sorted(entries)


def test_a_user_who_comes_late_waits_one_turn() -> None:
    queue: FairQueue[str] = FairQueue()
    for number in range(1000):
        queue.push("greedy", f"greedy {number}")
    for _ in range(500):
        queue.pop()
    assert queue.ahead("modest") <= 1
    queue.push("modest", "modest")
    assert "modest" in [queue.pop(), queue.pop()]


def test_a_lower_cost_is_a_greater_weight() -> None:
    queue: FairQueue[str] = FairQueue()
    for _ in range(30):
        queue.push("heavy", "heavy", 1 / 2)
        queue.push("light", "light")
    assert Counter(queue.pop() for _ in range(30)) == {"heavy": 20, "light": 10}


def test_what_was_taken_back_is_not_counted() -> None:
    queue: FairQueue[str] = FairQueue()
    queue.push("other", "other")
    for entry in [queue.push("user", "withdrawn") for _ in range(100)]:
        queue.remove(entry)
    for _ in range(3):
        queue.push("other", "other")
    assert queue.ahead("user") <= 2


def test_users_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fair_queue, "MAX_IDLE_USERS", 10)
    queue: FairQueue[int] = FairQueue()
    queue.push("stays", -1)
    for number in range(1000):
        queue.push(str(number), number)
        queue.push("stays", -1)
        queue.pop()
        queue.pop()
        assert len(queue._ends) < 20


def test_users_who_may_not_are_passed_over() -> None:
    queue: FairQueue[str] = FairQueue()
    for item in ("a1", "a2", "b1", "a3"):
        queue.push(item[0], item)
    assert queue.pop_of(lambda user: user == "b") == "b1"
    assert queue.pop_of(lambda user: user == "b") is None
    queue.push("b", "b2")
    assert [queue.pop_of(lambda user: True) for _ in range(5)] == ["a1", "a2", "b2", "a3", None]


def test_users_are_counted_for_a_moment() -> None:
    users = RecentUsers()
    assert len(users) == 0
    for number in range(10):
        users.add(str(number % 5), number * INTERVAL_SECONDS / 10)
    assert len(users) == 5
    users.add("a", INTERVAL_SECONDS)
    assert len(users) == 5
    users.add("a", 2 * INTERVAL_SECONDS)
    assert len(users) == 1
    users.add("b", 10 * INTERVAL_SECONDS)
    assert len(users) == 1


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


@pytest.mark.parametrize("length", [0, 5, 6, 7, 20])
async def test_another_task_runs_after_so_many_items(length: int) -> None:
    ran = 0
    ended = False

    async def other() -> None:
        nonlocal ran
        while not ended:
            ran += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    seen = []
    async for item in with_pauses(range(length), 3):
        seen.append((item, ran))
    ended = True
    await task
    assert [item for item, _ in seen] == list(range(length))
    assert all(turns >= item // 3 for item, turns in seen)


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
    assert begun == [0, 1, 2], "others begin in later turns of the loop"
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


FOREVER = 1e6


class Attempt:
    """An attempt that ends when it is told to; `begun` is set when it begins."""

    def __init__(self, result: int | Exception | None = None) -> None:
        self.begun = asyncio.Event()
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if isinstance(result, Exception):
            self.ended.set_exception(result)
        elif result is not None:
            self.ended.set_result(result)

    async def __call__(self) -> int:
        self.begun.set()
        return await self.ended


def all_of(*attempts: Attempt) -> list[Callable[[], Awaitable[int]]]:
    return list(attempts)


async def test_one_that_succeeds_is_enough() -> None:
    first, second = Attempt(1), Attempt(2)
    assert await staggered(all_of(first, second), FOREVER, (OSError,)) == 1
    assert not second.begun.is_set()


async def test_a_failure_begins_the_next_at_once() -> None:
    assert await staggered(all_of(Attempt(OSError("a")), Attempt(2)), FOREVER, (OSError,)) == 2


async def test_another_error_is_raised_at_once() -> None:
    second = Attempt(2)
    with pytest.raises(ValueError, match="a"):
        await staggered(all_of(Attempt(ValueError("a")), second), FOREVER, (OSError,))
    assert not second.begun.is_set()


async def test_the_last_failure_is_raised_when_all_have_failed() -> None:
    with pytest.raises(OSError, match="b"):
        await staggered(all_of(Attempt(OSError("a")), Attempt(OSError("b"))), FOREVER, (OSError,))


async def test_a_slow_one_is_not_overtaken_where_that_is_not_allowed() -> None:
    slow, quick, asked = Attempt(), Attempt(2), asyncio.Event()

    def may_hedge() -> bool:
        asked.set()
        return False

    task = asyncio.create_task(staggered(all_of(slow, quick), 0.001, (OSError,), may_hedge))
    await asked.wait()
    assert not quick.begun.is_set()
    slow.ended.set_exception(OSError("a"))
    assert await task == 2


async def test_a_slow_one_is_overtaken_and_cancelled() -> None:
    slow, quick = Attempt(), Attempt(2)
    assert await staggered(all_of(slow, quick), 0.001, (OSError,)) == 2
    assert slow.begun.is_set()
    await asyncio.sleep(0)
    assert slow.ended.cancelled()


async def test_a_slow_one_may_still_be_the_first() -> None:
    slow, never = Attempt(), Attempt()
    running = asyncio.create_task(staggered(all_of(slow, never), 0.001, (OSError,)))
    await never.begun.wait()
    slow.ended.set_result(1)
    assert await running == 1


MOST = 64


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
            self.limit._last = now - LAG_CHECK_SECONDS, paced_limit.thread_time() - cpu * LAG_CHECK_SECONDS
            self.limit._look(now - late)
        return self.limit.value


@on_virtual_time
async def test_the_limit_falls_while_the_loop_lags_and_rises_when_it_does_not() -> None:
    one = Lagging()
    assert one.limit.value == MOST
    assert await one.run(100, 2 * MAX_MEAN_LAG_SECONDS) == MIN_LIMIT
    assert one.raised == 0
    assert await one.run(100, 0) == MOST
    assert one.raised > 0


@on_virtual_time
async def test_the_limit_of_each_user_falls_while_the_loop_computes() -> None:
    one = Lagging()
    assert one.limit.each == MOST
    await one.run(100, 0)
    assert (one.limit.value, one.limit.each, one.raised) == (MOST, 1, 0)
    await one.run(100, 0, cpu=0.2)
    assert one.limit.each == MOST
    assert one.raised > 0


@on_virtual_time
async def test_a_loop_that_waits_for_the_cpu_keeps_its_limit() -> None:
    assert await Lagging().run(100, 2 * MAX_MEAN_LAG_SECONDS, cpu=0.2) == MOST


@on_virtual_time
async def test_a_moment_s_lag_changes_nothing() -> None:
    one = Lagging()
    for _ in range(20):
        assert await one.run(1, 1000 * MAX_MEAN_LAG_SECONDS) == MOST
        assert await one.run(5, 0) == MOST


@on_virtual_time
async def test_a_low_setting_is_kept() -> None:
    one = Lagging(2)
    assert await one.run(100, 2 * MAX_MEAN_LAG_SECONDS) == 2
    assert await one.run(100, 0) == 2
    assert one.limit.few == 2


@on_virtual_time
async def test_it_looks_only_while_there_is_enough_to_do() -> None:
    one = Lagging()
    looks = []
    one.limit._is_busy = lambda: bool(looks.append(1)) or len(looks) < 5
    one.limit.watch()
    one.limit.watch()
    await asyncio.sleep(20 * LAG_CHECK_SECONDS)
    assert len(looks) == 5
    one.limit.watch()
    await asyncio.sleep(20 * LAG_CHECK_SECONDS)
    assert len(looks) == 6
