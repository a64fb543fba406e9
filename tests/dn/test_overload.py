"""A data node with much to do: messages have turns by user, and time that is over is not worked on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp.test_utils import TestServer

from hsparse.clock import SystemClock
from hsparse.concurrency.admission import Admission
from hsparse.concurrency.request_trace import RequestTrace, begin_trace, end_trace
from hsparse.dn.data_settings import DataSettings
from hsparse.dn.metrics import NodeMetrics, NodeState
from hsparse.dn.server import create_node_app
from hsparse.dn.service import DataService, NodeResources
from hsparse.dn.traced_store import TracedStore
from hsparse.errors import Busy
from hsparse.storage.object_store import Stored
from hsparse.wire.message import GetInfo, Message
from hsparse.wire.record_message import ChangeObjects, CreateObject, ReadObjects
from hsparse.wire.remote_node import RemoteNode
from tests.testing.memory_store import MemoryStore

READ = ReadObjects(("g-1",))


class HeldStore(MemoryStore):
    """Reads wait for `gate`; `begun` and `most` are how many are under way, and were at most."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.reached = asyncio.Event(), asyncio.Event()
        self.begun = self.most = 0

    async def get(self, key: str) -> Stored:
        self.begun += 1
        self.most = max(self.most, self.begun)
        self.reached.set()
        try:
            await self.gate.wait()
            return await super().get(key)
        finally:
            self.begun -= 1


class Node:
    """A data node of one place behind HTTP, over a store whose reads wait."""

    def __init__(
        self, remote: RemoteNode, store: HeldStore, admission: Admission, metrics: NodeMetrics
    ) -> None:
        self.remote = remote
        self.store = store
        self.admission = admission
        self.metrics = metrics

    async def send(self, message: Message[object], user: str, seconds: float | None = None) -> object:
        """Send a message for a request of a user that has so many seconds left."""
        deadline = None if seconds is None else asyncio.get_running_loop().time() + seconds
        token = begin_trace(RequestTrace("a", queue_user=user, deadline=deadline))
        try:
            return await self.remote.send(message)
        finally:
            end_trace(token)


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    store = HeldStore()
    admission = Admission(1)
    resources = NodeResources.of(DataSettings(), admission=admission)
    service = DataService(store, SystemClock(), resources=resources)
    metrics = NodeMetrics(lambda: NodeState(service.counters(), 0.0, 1))
    metrics.show(admission)
    async with TestServer(create_node_app(service, "secret", metrics=metrics)) as server:
        remote = RemoteNode(str(server.make_url("/")), "secret")
        yield Node(remote, store, admission, metrics)
        store.gate.set()
        await remote.close()
    await service.close()


async def test_messages_have_turns_by_user(node: Node) -> None:
    order: list[str] = []

    async def read(user: str) -> None:
        await node.send(READ, user)
        order.append(user)

    tasks = [asyncio.create_task(read("first"))]
    await node.store.reached.wait()
    for number, user in enumerate("aaaaab", 1):
        tasks.append(asyncio.create_task(read(user)))
        while node.admission.waiting < number:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)
    assert (await node.remote.send(GetInfo())).id  # never waits
    assert b"hsparse_node_messages_waiting 6.0" in node.metrics.text()
    node.store.gate.set()
    await asyncio.gather(*tasks)
    assert order.index("b") <= 2


async def test_a_message_whose_time_is_over_is_refused(node: Node) -> None:
    with pytest.raises(Busy):
        await node.send(READ, "a", 0.0)
    assert not node.store.begun
    assert b'hsparse_node_messages_refused_total{reason="deadline"} 1.0' in node.metrics.text()


async def test_a_read_is_given_up_at_its_deadline_and_the_load_goes_on() -> None:
    store = HeldStore()
    service = DataService(store, SystemClock())

    async def read(deadline: float | None) -> object:
        begin_trace(RequestTrace("a", deadline=deadline))
        return await service.send(READ)

    patient = asyncio.create_task(read(None))
    await store.reached.wait()
    with pytest.raises(Busy, match="within the time"):
        await read(asyncio.get_running_loop().time())
    with pytest.raises(Busy, match="within the time"):
        await asyncio.create_task(read(asyncio.get_running_loop().time() + 0.01))
    store.gate.set()
    await patient
    assert store.most == 1
    await service.close()


async def test_the_store_is_not_asked_for_longer_than_anybody_waits() -> None:
    store = HeldStore()
    service = DataService(store, SystemClock())

    async def read(seconds: float) -> object:
        begin_trace(RequestTrace("a", deadline=asyncio.get_running_loop().time() + seconds))
        return await service.send(READ)

    outcomes = await asyncio.gather(*(read(0.01 * number) for number in (1, 2, 3)), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [Busy] * 3
    await asyncio.sleep(0)
    assert (store.begun, store.most) == (0, 1)
    store.gate.set()
    await read(60.0)  # asks again
    await service.close()


async def test_changes_wait_where_reads_are_refused(node: Node) -> None:
    node.admission._mean = 10.0
    held = asyncio.create_task(node.send(READ, "a"))
    await node.store.reached.wait()
    other = asyncio.create_task(node.send(READ, "a"))
    while not node.admission.waiting:  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0)
    node.admission._waiting_since -= 1.0
    for _ in range(3):
        node.admission._queue.push("c", node.admission._queue.peek().item)
    with pytest.raises(Busy) as refused:
        await node.send(READ, "c")
    assert refused.value.retry_after > 10
    waiting = node.admission.waiting
    change = asyncio.create_task(node.send(ChangeObjects((CreateObject("g-2", {"id": "g-2"}),)), "c"))
    while node.admission.waiting == waiting and not change.done():  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0)
    node.store.gate.set()
    await asyncio.gather(held, other, change)


async def test_a_store_is_sent_so_many_requests_at_a_time() -> None:
    store = HeldStore()
    places = Admission(4)
    traced = TracedStore(store, places=places)
    await store.put("a", b"x")
    reads = [asyncio.create_task(traced.get("a")) for _ in range(20)]
    await store.reached.wait()
    for _ in range(10):
        await asyncio.sleep(0)
    reads[-1].cancel()
    store.gate.set()
    await asyncio.gather(*reads[:-1])
    assert store.most == 4
    assert (places.running, places.waiting) == (0, 0)
