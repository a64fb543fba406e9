"""The simulated network and store: each fault does what its name says."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

import pytest

from hsparse.errors import NotFound, PreconditionFailed, StoreFailed
from hsparse.wire.message import GetInfo, NodeInfo
from tests.simulation.simulated_network import FaultRates, SimulatedNetwork, SimulatedNode
from tests.simulation.simulated_store import STORE, SimulatedStore
from tests.simulation.virtual_clock import VirtualClock
from tests.simulation.virtual_loop import Process, VirtualLoop
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


def test_a_message_is_answered_by_a_copy() -> None:
    bench = Bench(CALM)
    assert bench.run(bench.node.send(GetInfo())) == NodeInfo("b", "READY", 1.0, "bucket", {}, ("bucket",))


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
        assert bench.got == later
        assert len(bench.memory._objects) == later

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


def test_errors_of_the_store_are_its_own() -> None:
    bench = Bench(CALM)

    async def main() -> None:
        with pytest.raises(NotFound):
            await bench.store.get("key")
        etag = await bench.store.put_if_absent("key", b"1")
        with pytest.raises(PreconditionFailed):
            await bench.store.put_if_absent("key", b"2")
        await bench.store.put_if_match("key", b"3", etag)
        assert [entry.key async for page in bench.store.list("") for entry in page.entries] == ["key"]

    bench.run(main())


def test_a_defect_of_a_node_is_kept() -> None:
    bench = Bench(CALM)
    bench.send = lambda message: asyncio.sleep(0, 1 // 0)  # type: ignore[method-assign]

    async def main() -> None:
        with pytest.raises(Exception, match="Internal error"):
            await bench.node.send(GetInfo())

    bench.run(main())
    assert [type(error) for error in bench.network.defects] == [ZeroDivisionError]
