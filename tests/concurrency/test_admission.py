"""Admission, on virtual time: whole overloads in a moment, the same each time."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.concurrency.admission import (
    BURST_SECONDS,
    MAX_QUEUE_SECONDS,
    MIN_PLACES,
    Admission,
    Rejection,
    Watcher,
)
from hsparse.errors import Busy
from tests.simulation.virtual_loop import on_virtual_time

PLACES, SERVICE = 8, 0.05
RATE = PLACES / SERVICE
"""What the places can do a second."""


class Load:
    """Requests of some users that come at random times, and what became of them."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._generator = random.Random(1)
        self.seconds: dict[str, list[float]] = {}
        self.refused: Counter[str] = Counter()
        self.retry_after: list[float] = []

    async def offer(self, user: str, rate: float, seconds: float) -> None:
        """Send `rate` requests a second for so long, whatever becomes of them, and wait for the last."""
        loop = asyncio.get_running_loop()
        end, tasks = loop.time() + seconds, []
        while loop.time() < end:
            tasks.append(asyncio.create_task(self.request(user)))
            await asyncio.sleep(self._generator.expovariate(rate))
        await asyncio.gather(*tasks)

    async def request(self, user: str) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            place = await self._admission.enter(user, began + 30)
        except Busy as error:
            self.refused[user] += 1
            self.retry_after.append(error.retry_after)
            return
        await asyncio.sleep(self._generator.uniform(0.5, 1.5) * SERVICE)
        place.leave()
        self.seconds.setdefault(user, []).append(loop.time() - began)

    def p99(self, users: str) -> float:
        seconds = sorted(one for user in users for one in self.seconds[user])
        return seconds[int(0.99 * (len(seconds) - 1))]


@on_virtual_time
async def test_twice_the_load_is_served_as_fast_as_it_can_be() -> None:
    load = Load(Admission(PLACES))
    await load.offer("a", 2 * RATE, 20)
    assert len(load.seconds["a"]) >= 0.95 * 20 * RATE
    assert load.p99("a") < BURST_SECONDS + MAX_QUEUE_SECONDS + 2 * SERVICE
    assert load.refused["a"] > 0.9 * 20 * RATE
    assert min(load.retry_after) >= 1


@on_virtual_time
async def test_one_greedy_user_does_not_slow_down_modest_ones() -> None:
    modest = "abcdefghij"

    async def offered(greedy: float) -> Load:
        load = Load(Admission(PLACES))
        users = [load.offer(user, RATE / 20, 10) for user in modest]
        if greedy:
            users.append(load.offer("greedy", greedy, 10))
        await asyncio.gather(*users)
        return load

    alone, beside = await offered(0), await offered(5 * RATE)
    assert beside.p99(modest) <= 2 * alone.p99(modest)
    assert sum(beside.refused[user] for user in modest) == 0
    assert beside.refused["greedy"] > 0


@on_virtual_time
async def test_a_burst_is_not_refused() -> None:
    load = Load(Admission(PLACES))
    await load.offer("a", RATE / 2, 1)
    await asyncio.gather(*[load.request("a") for _ in range(1000)])
    assert not load.refused


@on_virtual_time
async def test_a_short_queue_is_served_however_slow_requests_are() -> None:
    admission, served = Admission(2), []

    async def request() -> None:
        place = await admission.enter("a")
        await asyncio.sleep(5)
        place.leave()
        served.append(1)

    for _ in range(20):
        await asyncio.gather(*[request() for _ in range(4)])
    assert len(served) == 80


@on_virtual_time
async def test_a_turn_that_comes_after_the_deadline_is_refused_at_once() -> None:
    loop, load = asyncio.get_running_loop(), Load(Admission(PLACES))
    await load.offer("a", RATE / 2, 2)
    admission = load._admission
    places = [await admission.enter("a") for _ in range(PLACES)]
    waiting = [asyncio.create_task(admission.enter("a")) for _ in range(50 * PLACES)]
    await asyncio.sleep(0)
    before = loop.time()
    with pytest.raises(Busy, match="its turn would come too late"):
        await admission.enter("a", before + 0.1)
    with pytest.raises(Busy, match="its time is over"):
        await admission.enter("b", before - 1)
    assert loop.time() == before
    patient = asyncio.create_task(admission.enter("a", before + 0.1, patient=True))
    other = asyncio.create_task(admission.enter("b", before + 0.1))
    await asyncio.sleep(0)
    places.pop().leave()
    places.pop().leave()
    (await other).leave()
    with pytest.raises(Busy, match="its time is over"):
        await patient
    assert loop.time() == before + 0.1
    for task in waiting:
        task.cancel()


@on_virtual_time
async def test_who_waits_is_refused_at_the_deadline() -> None:
    reasons: list[Rejection] = []
    waits: list[float] = []
    loop, admission = (asyncio.get_running_loop(), Admission(1, Watcher(waits.append, reasons.append)))
    place = await admission.enter("a")
    began = loop.time()
    with pytest.raises(Busy):
        await admission.enter("a", began + 3)
    assert (loop.time(), reasons, waits) == (began + 3, [Rejection.DEADLINE], [3.0])
    place.leave()
    place.leave()
    assert (admission.running, admission.waiting) == (0, 0)


@on_virtual_time
async def test_what_nobody_waits_for_takes_no_place() -> None:
    admission = Admission(1)
    place = await admission.enter("a")
    gone = asyncio.create_task(admission.enter("a", is_gone=lambda: True))
    cancelled = asyncio.create_task(admission.enter("a"))
    both = asyncio.create_task(admission.enter("a"))
    last = asyncio.create_task(admission.enter("a"))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.sleep(0)
    place.leave()
    both.cancel()  # admitted in the same step
    (await last).leave()
    with pytest.raises(Busy):
        await gone
    assert (admission.running, admission.waiting) == (0, 0)


@on_virtual_time
async def test_a_place_is_regained_in_turn() -> None:
    admission = Admission(1)
    place = await admission.enter("a")
    place.leave()
    other = await admission.enter("b")
    await asyncio.sleep(1)
    again = asyncio.create_task(place.regain())
    await asyncio.sleep(1)
    assert not again.done()
    other.leave()
    await again
    await place.regain()
    assert admission.running == 1
    place.leave()
    assert admission.running == 0


@on_virtual_time
async def test_retry_after_grows_with_what_was_refused() -> None:
    load = Load(Admission(PLACES))
    await load.offer("a", 2 * RATE, 3)
    assert max(load.retry_after) <= 2
    await load.offer("a", 20 * RATE, 2)
    assert 5 < load.retry_after[-1] <= 30


@on_virtual_time
async def test_users_have_as_many_places_each_while_the_loop_is_short_of_time() -> None:
    admission = Admission(64)
    admission._limit.value, admission._limit.each = 8, 1
    greedy = [asyncio.create_task(admission.enter("greedy")) for _ in range(20)]
    await asyncio.sleep(0)
    places = [task.result() for task in greedy if task.done()]
    assert len(places) == 8
    modest = [asyncio.create_task(admission.enter(user)) for user in "abc"]
    await asyncio.sleep(0)
    places.pop().leave()
    await asyncio.sleep(0)
    assert [task.done() for task in modest] == [True, False, False]
    for place in places:
        place.leave()
    await asyncio.sleep(0)
    assert all(task.done() for task in modest)
    assert admission.running == 3 + MIN_PLACES
    await admission.enter("d")
    admission._limit.value = admission._limit.each = 64
    admission._fill()
    assert (admission.running, admission.waiting) == (16, 0)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5), st.integers(0, 5), st.booleans())))
@on_virtual_time
async def test_places_are_never_exceeded_or_lost(requests: list[tuple[str, int, int, bool]]) -> None:
    admission, running = Admission(3), 0

    async def request(user: str, start: int, seconds: int) -> None:
        nonlocal running
        await asyncio.sleep(start)
        place = await admission.enter(user, asyncio.get_running_loop().time() + 4)
        running += 1
        assert running <= 3
        try:
            await asyncio.sleep(seconds)
        finally:
            running -= 1
            place.leave()

    tasks = [asyncio.create_task(request(user, start, length)) for user, start, length, _ in requests]
    await asyncio.sleep(3)
    for task, (*_, cancelled) in zip(tasks, requests, strict=True):
        if cancelled:
            task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert all(task.cancelled() or isinstance(task.exception(), Busy | None) for task in tasks)
    assert (admission.running, admission.waiting, running) == (0, 0, 0)
