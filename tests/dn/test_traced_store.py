"""Requests to the store are counted for the request that sends them; waiting for others' too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from hsparse.clock import SystemClock
from hsparse.concurrency.request_trace import RequestTrace, Work, begin_trace
from hsparse.dn.service import DataService
from hsparse.dn.traced_store import TracedStore
from hsparse.errors import Unsupported
from hsparse.storage.memory import MemoryStore
from hsparse.testing.store_wrapper import SlowStore
from hsparse.wire.record_message import ChangeObjects, CreateObject, ListKeys, PutAcl, ReadObjects

FOLDER = {"owner": "ann", "acls": {}, "created": 0.0, "lastModified": 0.0}


def counts(trace: RequestTrace) -> dict[Work, int]:
    return {kind: count for kind, (count, _) in trace.work.items()}


async def test_every_request_is_counted() -> None:
    store = TracedStore(MemoryStore())
    trace = RequestTrace("a")
    begin_trace(trace)
    etag = await store.put("a/b", b"x")
    await store.put_if_match("a/b", b"y", etag)
    await store.put_if_absent("a/c", b"z")
    await store.get("a/b")
    await store.get_range("a/b", 0, 1)
    assert len([page async for page in store.list("a/")]) == 1
    await store.delete("a/b")
    await store.delete_if_match("a/b", etag)
    with pytest.raises(Unsupported):
        await store.presigned("a/c", 1)
    assert counts(trace) == {Work.WRITES: 5, Work.READS: 4}
    await store.close()


class Gate:
    """Holds requests to a store until it is opened."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.open = asyncio.Event()
        self.open.set()

    async def __call__(self, method: str, key: str) -> None:
        self.reached.set()
        await self.open.wait()


@pytest.fixture
async def gate() -> Gate:
    return Gate()


@pytest.fixture
async def memory() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
async def node(memory: MemoryStore, gate: Gate) -> AsyncIterator[DataService]:
    made = DataService(SlowStore(memory, gate, after=False), SystemClock())
    yield made
    await made.close()


async def test_one_loads_and_the_other_waits(node: DataService, gate: Gate) -> None:
    await node.send(ChangeObjects((CreateObject("/home", FOLDER),)))
    await node.send(ListKeys(""))
    node._cache.drop("")
    traces = RequestTrace("a"), RequestTrace("b")

    async def read(trace: RequestTrace) -> None:
        begin_trace(trace)
        await node.send(ReadObjects(("/home",)))

    gate.open.clear()
    gate.reached.clear()
    first = asyncio.create_task(read(traces[0]))
    await gate.reached.wait()
    second = asyncio.create_task(read(traces[1]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    gate.open.set()
    await asyncio.gather(first, second)
    assert [counts(trace) for trace in traces] == [{Work.READS: 1}, {Work.WAITS: 1}]


async def test_conflicts_are_counted(node: DataService, memory: MemoryStore) -> None:
    await node.send(ChangeObjects((CreateObject("/home", FOLDER),)))
    other = DataService(memory, SystemClock())
    await other.send(ChangeObjects((PutAcl("/home", "ben", {"read": True}, "b/home"),)))
    trace = RequestTrace("a")
    begin_trace(trace)
    await node.send(ChangeObjects((PutAcl("/home", "cem", {"read": True}, "b/home"),)))
    assert trace.conflicts == 1
    assert counts(trace) == {Work.WRITES: 2, Work.READS: 1}
    await other.close()


async def test_a_change_waits_for_a_commit_under_way(node: DataService, gate: Gate) -> None:
    await node.send(ChangeObjects((CreateObject("/home", FOLDER),)))
    traces = RequestTrace("a"), RequestTrace("b")

    async def allow(trace: RequestTrace, user: str) -> None:
        begin_trace(trace)
        await node.send(ChangeObjects((PutAcl("/home", user, {"read": True}, "b/home"),)))

    gate.open.clear()
    gate.reached.clear()
    first = asyncio.create_task(allow(traces[0], "ben"))
    await gate.reached.wait()
    second = asyncio.create_task(allow(traces[1], "cem"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    gate.open.set()
    await asyncio.gather(first, second)
    assert Work.WAITS not in traces[0].work
    assert counts(traces[1])[Work.WAITS] == 1
