"""Requests to the store are counted for the request that sends them; waiting for others' too."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from hsparse.clock import SystemClock
from hsparse.concurrency.request_trace import RequestTrace, Work, begin_trace
from hsparse.dn.service import DataService
from hsparse.dn.traced_store import StoreRequests, TracedStore
from hsparse.errors import NotFound, PreconditionFailed, StoreFailed, Unsupported
from hsparse.storage.object_store import Buffer, Entry, Stored
from hsparse.wire.record_message import ChangeObjects, CreateObject, ListKeys, PutAcl, ReadObjects
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import SlowStore

FOLDER = {"owner": "ann", "acls": {}, "created": 0.0, "lastModified": 0.0}


def counts(trace: RequestTrace) -> dict[Work, int]:
    return {kind: count for kind, (count, _) in trace.work.items()}


async def test_every_request_is_counted() -> None:
    requests: StoreRequests = Counter()
    store = TracedStore(MemoryStore(), requests)
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
    [page] = [page async for page in store.list("a/")]
    changed = Entry("a/c", 1, "another", 0.0)
    assert await store.delete_all([changed, *page.entries]) == [False, True]
    assert await store.delete_all([]) == []
    with pytest.raises(Unsupported):
        await store.presigned("a/c", 1)
    assert counts(trace) == {Work.WRITES: 6, Work.READS: 6}
    assert requests == {
        ("put", "ok"): 3,
        ("get", "ok"): 2,
        ("list", "ok"): 4,
        ("delete", "ok"): 3,
        ("delete", "conflict"): 1,
    }
    await store.close()


class BrokenStore(MemoryStore):
    """A store whose gets never answer, and whose puts fail."""

    async def get(self, key: str) -> Stored:
        return await asyncio.get_running_loop().create_future()

    async def put(self, key: str, data: Buffer) -> str:
        raise StoreFailed("The store is on fire.")


async def test_requests_are_counted_by_their_results_also_without_a_trace() -> None:
    requests: StoreRequests = Counter()
    store = TracedStore(BrokenStore(), requests)
    await store.put_if_absent("a", b"x")
    for expected, request in (
        (PreconditionFailed, lambda: store.put_if_absent("a", b"y")),
        (NotFound, lambda: store.get_range("b", 0, 1)),
        (StoreFailed, lambda: store.put("b", b"y")),
    ):
        with pytest.raises(expected):
            await request()
    hanging = asyncio.create_task(store.get("a"))
    await asyncio.sleep(0)  # it waits for its answer
    hanging.cancel()
    await asyncio.wait([hanging])
    assert requests == {
        ("put", "ok"): 1,
        ("put", "conflict"): 1,
        ("get", "missing"): 1,
        ("put", "failed"): 1,
        ("get", "cancelled"): 1,
    }


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
    assert [trace.loads for trace in traces] == [1, 0]
    again = RequestTrace("c")
    await read(again)
    assert (again.hits, again.loads, counts(again)) == (1, 0, {})


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
    assert counts(traces[0]) == {Work.WRITES: 1}
    # The first change of a group has its put: the one that began to commit has been answered by then.
    assert counts(traces[1]) == {Work.WAITS: 1, Work.WRITES: 1}
    assert [(trace.commits, trace.changes, trace.hits) for trace in traces] == [(1, 1, 1), (1, 1, 1)]
