"""A group waits for clients that come back together, and for nobody else. On virtual time."""

from __future__ import annotations

import asyncio

from hsparse.concurrency.request_trace import RequestTrace, begin_trace
from hsparse.dn.cached_object import CachedObject
from hsparse.dn.stored_form import SingleObject
from tests.dn.test_cached_object import KEY, TextCodec, add
from tests.simulation.virtual_loop import VirtualLoop
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore, SlowStore

PUT, THOUGHT = 0.02, 0.001
"""Seconds that a put takes, and those that a client takes to come back."""


async def slow_puts(method: str, key: str) -> None:
    if method.startswith("put"):
        await asyncio.sleep(PUT)


class Clients:
    """Clients that change one object, each one request after the other."""

    def __init__(self) -> None:
        self.store = CountingStore(SlowStore(MemoryStore(), slow_puts, after=False))
        self._object = CachedObject(SingleObject(KEY, self.store, TextCodec()))

    async def change(self, times: int, thought: float = THOUGHT) -> None:
        for _ in range(times):
            begin_trace(RequestTrace("request"))
            await self._object.apply(add("x"))
            await asyncio.sleep(thought)


def run(*changes: tuple[int, float]) -> tuple[int, float]:
    """Return the puts and the seconds of clients that begin together: how often each changes, how long it thinks."""

    async def main() -> tuple[int, float]:
        clients, began = Clients(), asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as group:
            for times, thought in changes:
                group.create_task(clients.change(times, thought))
        return clients.store.puts, asyncio.get_running_loop().time() - began

    return VirtualLoop().run(main())


def test_clients_that_come_back_together_share_each_put() -> None:
    puts, seconds = run(*((10, number * THOUGHT / 8) for number in range(1, 17)))
    assert puts <= 10 + 2
    assert seconds < 12 * (PUT + 2 * THOUGHT)


def test_a_client_alone_does_not_wait() -> None:
    puts, seconds = run((10, THOUGHT))
    assert puts == 10
    assert seconds < 10 * (PUT + THOUGHT) + THOUGHT


def test_who_does_not_come_back_is_waited_for_once() -> None:
    puts, seconds = run((10, THOUGHT), *[(1, THOUGHT)] * 15)
    assert puts <= 10 + 1
    assert seconds < 12 * (PUT + THOUGHT)


def test_nobody_is_waited_for_after_an_idle_time() -> None:
    thought = 3 * PUT
    _, seconds = run((5, thought), (1, THOUGHT))
    assert seconds < 5 * (PUT + thought) + THOUGHT
