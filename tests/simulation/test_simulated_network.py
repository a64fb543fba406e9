"""The simulated network, store and loop do what faults' names say; the checker knows right histories from wrong."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Collection, Coroutine
from typing import Any

import pytest

from hsparse.errors import StoreFailed
from hsparse.wire.message import GetInfo, NodeInfo
from tests.simulation.linearizability import (
    ANY_CHANGE,
    DELETIONS,
    Action,
    AppendOperation,
    ExtentRead,
    Growth,
    Operation,
    refuted_by,
    wrong_appends,
    wrong_extensions,
)
from tests.simulation.simulated_network import (
    STORE,
    FaultRates,
    SimulatedNetwork,
    SimulatedNode,
    SimulatedStore,
)
from tests.simulation.virtual_loop import Process, Stuck, VirtualClock, VirtualLoop, current_process
from tests.testing.memory_store import MemoryStore

CALM = FaultRates(slow=0.0)


class Bench:
    """Two processes, `a` and `b`, and a store of `a`. `b` counts the messages that it gets, and answers after 0.1 s."""

    def __init__(self, rates: FaultRates) -> None:
        self.loop = VirtualLoop()
        self.network = SimulatedNetwork(self.loop, random.Random(1))
        self.a, self.b = Process("a"), Process("b")
        self.memory = MemoryStore(clock=VirtualClock(self.loop, random.Random(1)))
        self.store = SimulatedStore(self.memory, self.network, self.a, lambda method, key: rates)
        self.node = SimulatedNode(self.network, self.a, lambda: (self.b, self), lambda: rates)
        self.got = 0

    async def send(self, message: GetInfo) -> NodeInfo:
        self.got += 1
        await asyncio.sleep(0.1)
        return NodeInfo("b", "READY", 1.0, "bucket", buckets=("bucket",))

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run(self._as_a(work))

    async def _as_a(self, work: Coroutine[Any, Any, Any]) -> Any:
        return await self.loop.spawn(self.a, work)


async def unanswered(work: Coroutine[Any, Any, Any], reason: str) -> None:
    with pytest.raises(StoreFailed, match=reason):
        await work


@pytest.mark.parametrize(
    ("rates", "reason", "soon", "later"),
    [
        (FaultRates(lost_request=1), "timed out", 0, 0),
        (FaultRates(lost_reply=1), "timed out", 1, 1),
        (FaultRates(late=1), "timed out", 0, 1),
        (FaultRates(refused=1), "503", 0, 0),
    ],
    ids=["lost request", "lost reply", "late", "refused"],
)
def test_faults(rates: FaultRates, reason: str, soon: int, later: int) -> None:
    bench = Bench(rates)

    async def main() -> None:
        await unanswered(bench.node.send(GetInfo()), reason)
        assert bench.got == soon
        await unanswered(bench.store.put_if_absent("key", b"1"), reason)
        assert len(bench.memory._objects) == soon
        await asyncio.sleep(5)
        assert (bench.got, len(bench.memory._objects)) == (later, later)

    bench.run(main())


def test_a_duplicate_is_carried_out_before_the_answer() -> None:
    bench = Bench(FaultRates(duplicated=1, slow=0))
    bench.run(bench.node.send(GetInfo()))
    assert bench.got == 2


def test_a_cut_link_lets_nothing_through_in_either_direction() -> None:
    bench = Bench(CALM)

    async def main() -> None:
        sent = asyncio.create_task(bench.node.send(GetInfo()))
        await asyncio.sleep(0.05)
        bench.network.cut("a", "b")
        await unanswered(sent, "timed out")
        await unanswered(bench.node.send(GetInfo()), "timed out")
        assert bench.got == 1
        await bench.store.put("key", b"1")
        bench.network.cut("a", STORE)
        await unanswered(bench.store.get("key"), "timed out")
        bench.network.heal()
        await bench.node.send(GetInfo())

    bench.run(main())


def test_a_dead_node_refuses_and_resets_connections() -> None:
    bench = Bench(CALM)

    async def main() -> None:
        sent = asyncio.create_task(bench.node.send(GetInfo()))
        await asyncio.sleep(0.05)
        bench.b.kill()
        await unanswered(sent, "connection reset")
        await unanswered(bench.node.send(GetInfo()), "connection refused")
        assert bench.got == 1

    bench.run(main())


def test_a_frozen_node_answers_when_it_goes_on() -> None:
    bench = Bench(CALM)

    async def main() -> None:
        bench.b.freeze()
        sent = asyncio.create_task(bench.node.send(GetInfo()))
        await asyncio.sleep(0.5)
        assert bench.got == 0
        bench.b.thaw(bench.loop)
        await sent

    bench.run(main())


def test_what_a_dying_process_has_sent_may_still_be_applied() -> None:
    applied = set()
    for seed in range(20):
        bench = Bench(CALM)
        bench.network.generator.seed(seed)

        async def main(bench: Bench = bench) -> None:
            put = bench.loop.spawn(bench.a, bench.store.put_if_absent("key", b"1"))
            await asyncio.sleep(0)
            bench.a.kill()
            await asyncio.sleep(1)
            assert not put.done()

        bench.loop.run(main())
        applied.add(len(bench.memory._objects))
    assert applied == {0, 1}


def test_a_defect_of_a_node_is_kept() -> None:
    bench = Bench(CALM)
    bench.send = lambda message: asyncio.sleep(0, 1 // 0)  # type: ignore[method-assign]

    async def main() -> None:
        with pytest.raises(Exception, match="Internal error"):
            await bench.node.send(GetInfo())

    bench.run(main())
    assert [type(error) for error in bench.network.defects] == [ZeroDivisionError]


@pytest.fixture
def loop() -> VirtualLoop:
    return VirtualLoop(start=0.0)


def test_time_jumps_from_timer_to_timer(loop: VirtualLoop) -> None:
    seen = []

    async def sleeper(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        seen.append((name, loop.time()))

    async def main() -> str:
        await asyncio.gather(sleeper("a", 3000), sleeper("b", 0.5), sleeper("c", 0.5), sleeper("d", 0))
        return "done"

    assert (loop.run(main()), seen) == ("done", [("d", 0.0), ("b", 0.5), ("c", 0.5), ("a", 3000.0)])


def test_a_deadlock_is_told_with_the_stacks(loop: VirtualLoop) -> None:
    async def waits_for_ever() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Stuck, match="waits_for_ever"):
        loop.run(waits_for_ever())


def test_a_busy_loop_is_no_hang(loop: VirtualLoop) -> None:
    async def spin() -> None:
        while True:  # noqa: ASYNC110 - an event would not spin
            await asyncio.sleep(0)

    with pytest.raises(Stuck, match="spin"):
        loop.run(spin())


def test_a_run_has_a_last_second(loop: VirtualLoop) -> None:
    async def tick() -> None:
        while True:  # noqa: ASYNC110 - a timer is wanted
            await asyncio.sleep(1)

    with pytest.raises(Stuck, match=r"Stuck after 11\.000 s"):
        loop.run(tick(), seconds=10)


def test_tasks_are_of_the_process_that_starts_them(loop: VirtualLoop) -> None:
    async def name() -> str:
        await asyncio.sleep(1)
        process = current_process()
        return "none" if process is None else process.name

    async def both() -> list[str]:
        return list(await asyncio.gather(name(), asyncio.create_task(name())))

    async def main() -> list[list[str]]:
        return list(await asyncio.gather(both(), loop.spawn(Process("p"), both())))

    assert loop.run(main()) == [["none", "none"], ["p", "p"]]


def test_a_frozen_process_misses_its_timers_and_catches_up(loop: VirtualLoop) -> None:
    process, seen = Process("p"), []

    async def ticks() -> None:
        for _ in range(3):
            await asyncio.sleep(1)
            seen.append(loop.time())

    async def main() -> None:
        task = loop.spawn(process, ticks())
        await asyncio.sleep(1.5)
        process.freeze()
        await asyncio.sleep(8.5)
        assert seen == [1.0]
        process.thaw(loop)
        await task

    loop.run(main())
    assert seen == [1.0, 10.0, 11.0]


def test_a_dead_process_runs_nothing_and_others_see_its_end(loop: VirtualLoop) -> None:
    process, seen = Process("p"), []
    process.when_dead.append(lambda: seen.append("closed"))

    async def works() -> None:
        try:
            await asyncio.sleep(1)
        finally:
            seen.append("finally")

    async def main() -> None:
        loop.spawn(process, works())
        await asyncio.sleep(0.5)
        process.kill()
        process.kill()
        await asyncio.sleep(10)
        assert seen == ["closed"]

    loop.run(main())


@pytest.mark.parametrize("steps", range(6))
def test_a_process_can_die_at_any_await(loop: VirtualLoop, steps: int) -> None:
    process, seen = Process("p"), []

    async def works() -> None:
        for number in range(5):
            seen.append(number)
            await asyncio.sleep(0)
        seen.append("done")

    async def main() -> None:
        process.kill_after(steps)
        loop.spawn(process, works())
        await asyncio.sleep(1)
        assert seen == [0, 1, 2, 3, 4, "done"][:steps]
        assert process.dead

    loop.run(main())


W, R, C, D, G = Action.WRITE, Action.READ, Action.CREATE, Action.DELETE, Action.GROW


def history(*lines: tuple[Action, object, int, int | None] | tuple[Action, object, int, int | None, bool]):
    """Return operations of (action, value, invoked, returned, refused)."""
    return [
        Operation("x", line[0], line[1], line[2], returned=line[3], refused=len(line) > 4 and line[4])
        for line in lines
    ]


RIGHT = {
    "nothing": (),
    "a write is read": ((W, 1, 1, 2), (R, 1, 3, 4)),
    "nothing is read before a write": ((R, None, 1, 2), (W, 1, 3, 4)),
    "writes at once, either order": ((W, 1, 1, 4), (W, 2, 2, 3), (R, 1, 5, 6)),
    "a read during a write sees the old value": ((W, 1, 1, 2), (W, 2, 3, 6), (R, 1, 4, 5), (R, 2, 7, 8)),
    "a write without an answer takes effect later": ((W, 1, 1, None), (R, None, 2, 3), (R, 1, 4, 5)),
    "a write without an answer takes effect after another": ((W, 1, 1, None), (W, 2, 2, 3), (R, 1, 4, 5)),
    "a write without an answer never takes effect": ((W, 1, 1, None), (W, 2, 2, 3), (R, 2, 4, 5)),
    "a deletion, then nothing": ((C, 1, 1, 2), (D, None, 3, 4), (R, None, 5, 6), (C, 2, 7, 8)),
    "refused as it should be": ((D, None, 1, 2, True), (C, 1, 3, 4), (C, 2, 5, 6, True), (R, 1, 7, 8)),
    "refused for one without an answer": ((C, 1, 1, None), (C, 2, 2, 3, True), (R, 1, 4, 5)),
    "a refused write that took effect": ((W, 1, 1, 2, True), (R, 1, 3, 4)),
    "a refused write that did not": ((W, 1, 1, 2, True), (R, None, 3, 4)),
    "both ends grow": ((W, (0, 0), 1, 2), (G, Growth(2, True, -2), 3, 5), (G, Growth(1, False, 0), 4, 6)),
    "growth without an answer": ((W, (0, 3), 1, 2), (G, Growth(1, True), 3, None), (R, (-1, 3), 4, 5)),
    "growth after a write without an answer": ((W, (0, 3), 1, None), (G, Growth(1, False, 3), 2, 3)),
    "an erasure without an answer": ((W, 1, 1, 2), (W, None, 3, None), (R, 1, 4, 5), (R, None, 6, 7)),
}
WRONG = {
    "a stale read": ((W, 1, 1, 2), (W, 2, 3, 4), (R, 1, 5, 6)),
    "a lost write": ((W, 1, 1, 2), (R, None, 3, 4)),
    "never written": ((R, 7, 1, 2),),
    "a refused write that took effect later": ((W, 1, 1, 2, True), (R, None, 3, 4), (R, 1, 5, 6)),
    "the new value, then the old one": ((W, 1, 1, 2), (W, 2, 3, 8), (R, 2, 4, 5), (R, 1, 6, 7)),
    "v2, then v1, of writes without an answer": (
        (W, 1, 1, None),
        (W, 2, 2, None),
        (R, 1, 3, 4),
        (R, 2, 5, 6),
        (R, 1, 7, 8),
    ),
    "read before it is written": ((R, 1, 1, 2), (W, 1, 3, 4)),
    "grown twice": ((W, (0, 0), 1, 2), (G, Growth(1, False, 0), 3, 4), (R, (0, 2), 5, 6)),
    "grown at one place": ((W, (0, 0), 1, 2), (G, Growth(1, False, 0), 3, 5), (G, Growth(1, False, 0), 4, 6)),
    "grown over a shrink": ((W, (0, 4), 1, 2), (W, (0, 2), 3, 4), (G, Growth(1, False, 4), 5, 6)),
    "created twice": ((C, 1, 1, 2), (C, 2, 3, 4)),
    "deleted twice": ((C, 1, 1, 2), (D, None, 3, 4), (D, None, 5, 6)),
    "a deletion that did nothing": ((C, 1, 1, 2), (D, None, 3, 4), (R, 1, 5, 6)),
    "refused for nothing": ((C, 1, 1, 2, True),),
    "missing though it is there": ((C, 1, 1, 2), (D, None, 3, 4, True)),
}
WRONG_EVEN_WITH_REPEATS = set(WRONG) - {"v2, then v1, of writes without an answer", "deleted twice"}


@pytest.mark.parametrize("repeats", [(), DELETIONS, ANY_CHANGE])
@pytest.mark.parametrize("name", RIGHT)
def test_right_histories(name: str, repeats: Collection[Action]) -> None:
    assert refuted_by(history(*RIGHT[name]), repeats=repeats) is None


@pytest.mark.parametrize("name", WRONG)
def test_wrong_histories(name: str) -> None:
    assert refuted_by(history(*WRONG[name])) is not None


@pytest.mark.parametrize("name", WRONG)
def test_a_change_may_take_effect_again_only_while_it_is_not_answered(name: str) -> None:
    found = refuted_by(history(*WRONG[name]), repeats=ANY_CHANGE)
    assert (found is not None) == (name in WRONG_EVEN_WITH_REPEATS)


def test_a_repeated_write_may_come_back_until_it_is_answered() -> None:
    begun = history((W, 1, 1, 8), (W, 2, 2, 3), (R, 1, 4, 5), (R, 2, 6, 7))
    assert refuted_by(begun) is not None
    back = history((W, 1, 1, 10), (R, 1, 2, 3), (W, 2, 4, 5), (R, 2, 6, 7), (R, 1, 8, 9))
    assert refuted_by(back) is not None
    assert refuted_by(back, repeats=ANY_CHANGE) is None
    answered = history((W, 1, 1, 4), (R, 1, 2, 3), (W, 2, 5, 6), (R, 2, 7, 8), (R, 1, 9, 10))
    assert refuted_by(answered, repeats=ANY_CHANGE) is not None


def by_brute_force(operations: list[Operation]) -> bool:
    """Say whether some order of all answered operations, and of some others, explains a history of reads and writes."""
    answered = [one for one in operations if one.returned is not None]
    others = [one for one in operations if one.returned is None and one.action is W]
    for count in range(len(others) + 1):
        for some in itertools.combinations(others, count):
            if any(map(_explains, itertools.permutations([*answered, *some]))):
                return True
    return False


def _explains(order: tuple[Operation, ...]) -> bool:
    value = None
    for place, operation in enumerate(order):
        if any(later.returned and later.returned < operation.invoked for later in order[place + 1 :]):
            return False
        if operation.action is W:
            value = operation.value
        elif operation.value != value:
            return False
    return True


def test_it_agrees_with_all_orders_tried() -> None:
    generator = random.Random(1)
    verdicts = set()
    for _ in range(400):
        ends = generator.sample(range(1, 13), 12)
        operations = []
        for number in range(6):
            low, high = sorted(ends[2 * number : 2 * number + 2])
            action = generator.choice((W, R))
            value = number if action is W else generator.choice((None, 0, 1, 2, 3, 4, 5))
            returned = None if action is W and generator.random() < 0.3 else high
            operations.append(Operation("x", action, value, low, returned=returned))
        verdict = by_brute_force(operations)
        assert (refuted_by(operations) is None) == verdict, [str(one) for one in operations]
        verdicts.add(verdict)
    assert verdicts == {True, False}


APPENDS = [AppendOperation(1, 2, 1, 4, 0), AppendOperation(2, 1, 2, None), AppendOperation(3, 1, 5, 6, 3)]


@pytest.mark.parametrize(
    ("values", "extents", "wrong"),
    [
        ([1, 1, 2, 3], [], 0),
        ([1, 1, None, 3], [], 1),
        ([1, 1, 2, 3, 3], [], 1),
        ([1, 1, 2, 3, 2], [], 1),
        ([1, 2, 2, 3], [], 2),
        ([1, 1, 2], [], 1),
        ([1, 1, 2, 3], [ExtentRead(2, 5, 7), ExtentRead(4, 8, 9)], 0),
        ([1, 1, 2, 3], [ExtentRead(2, 7, 8)], 1),
        ([1, 1, 2, 3], [ExtentRead(4, 3, 4), ExtentRead(3, 5, 6)], 1),
    ],
    ids=["right", "a gap", "twice", "twice, unanswered", "torn", "lost", "grows", "stale", "shrinks"],
)
def test_appends(values: list[int | None], extents: list[ExtentRead], wrong: int) -> None:
    assert len(wrong_appends(values, APPENDS, extents)) == wrong


def test_appends_are_in_the_order_in_which_they_were_answered() -> None:
    """One that began before another was answered may be on either side of it."""
    answered = [
        AppendOperation(1, 1, 1, 4, 1),
        AppendOperation(2, 1, 2, 5, 0),
        AppendOperation(3, 1, 6, 7, 2),
    ]
    assert wrong_appends([2, 1, 3], answered, []) == []
    answered[2].start, answered[0].start = 1, 2
    assert len(wrong_appends([2, 3, 1], answered, [])) == 1


def test_extensions_take_place_once_and_do_not_overlap() -> None:
    assert (wrong_extensions(0, []), wrong_extensions(5, [(2, 3), (3, 0)])) == ([], [])
    assert wrong_extensions(5, [(2, 3), (1, None), (3, None)]) == []
    assert "do not lead" in wrong_extensions(7, [(2, 0), (3, None)])[0]
    assert "overlap" in wrong_extensions(4, [(2, 0), (2, 1)])[0]
