"""The metrics of a data node, and requests to the store counted for the request that sends them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import TestServer

from hsparse.clock import SystemClock
from hsparse.concurrency.request_trace import RequestTrace, Work, begin_trace
from hsparse.dn.data_settings import DataSettings
from hsparse.dn.metrics import NODE_METRICS, NodeMetrics, NodeState
from hsparse.dn.server import create_node_app
from hsparse.dn.service import DataService, NodeResources
from hsparse.dn.traced_store import StoreRequests, TracedStore
from hsparse.errors import NotFound, PreconditionFailed, StoreFailed, Unsupported
from hsparse.model.ids import new_root_id
from hsparse.storage.object_store import Buffer, Entry, Stored
from hsparse.wire.message import InBucket, Routed, message_name
from hsparse.wire.record_message import ChangeObjects, CreateObject, ListKeys, PutAcl, ReadObjects
from hsparse.wire.remote_node import RemoteNode
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import SlowStore

STATE = NodeState({"cached_objects": 3, "cached_bytes": 400}, 0.5, 2)


def values(text: bytes) -> dict[str, float]:
    """Return the samples by name and labels."""
    lines = [line for line in text.decode().splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_a_message_counts_by_its_type_with_what_was_done_for_it() -> None:
    metrics = NodeMetrics(lambda: STATE)
    work = {Work.READS: (2, 0.1), Work.WAITS: (1, 0.3)}
    trace = RequestTrace("x", work=work, conflicts=1, hits=5, loads=2, commits=2, changes=7)
    message = Routed("dn-1", 1, InBucket("other", ReadObjects(("a",))))
    assert message_name(message) == "ReadObjects"
    metrics.count(message, "ok", 0.02, trace)
    metrics.count(message, "busy", 0.02, RequestTrace("y"))
    found = values(metrics.text())
    assert found['hsparse_node_messages_total{message="ReadObjects",outcome="ok"}'] == 1
    assert found['hsparse_node_messages_total{message="ReadObjects",outcome="busy"}'] == 1
    assert found['hsparse_node_message_seconds_sum{message="ReadObjects"}'] == 0.04
    assert found["hsparse_node_queue_wait_seconds_sum"] == 0.3
    assert found["hsparse_node_queue_wait_seconds_count"] == 2
    assert (found["hsparse_node_cache_hits_total"], found["hsparse_node_cache_loads_total"]) == (5, 2)
    assert (found["hsparse_node_commits_total"], found["hsparse_node_changes_total"]) == (2, 7)
    assert found["hsparse_node_conflicts_total"] == 1


def test_the_state_is_that_when_it_is_asked_for() -> None:
    found = values(NodeMetrics(lambda: STATE).text())
    assert (found["hsparse_node_cached_objects"], found["hsparse_node_cached_bytes"]) == (3, 400)
    assert (found["hsparse_node_lease_age_seconds"], found["hsparse_node_members"]) == (0.5, 2)
    text = NodeMetrics(lambda: STATE).text().decode()
    assert all(f"# TYPE {one.name.removesuffix('_total')}" in text for one in NODE_METRICS)


def test_store_requests_are_all_there_were_whenever_they_are_read() -> None:
    requests: StoreRequests = Counter()
    metrics = NodeMetrics(lambda: NodeState(STATE.cached, 0.5, 2, requests))
    for _ in range(3):
        requests["get", "ok"] += 2
        requests["put", "conflict"] += 1
        found = values(metrics.text())
    assert found['hsparse_node_store_requests_total{kind="get",result="ok"}'] == 6
    assert found['hsparse_node_store_requests_total{kind="put",result="conflict"}'] == 3


async def test_a_node_serves_its_metrics() -> None:
    resources = NodeResources.of(DataSettings())
    service = DataService(MemoryStore(), SystemClock(), resources=resources)
    metrics = NodeMetrics(lambda: NodeState(service.counters(), 0.0, 1, resources.requests))
    async with (
        TestServer(create_node_app(service, "secret", metrics=metrics)) as server,
        ClientSession() as session,
    ):
        remote = RemoteNode(str(server.make_url("/")), "secret")
        root = new_root_id(SystemClock())
        await remote.send(ChangeObjects((CreateObject(root, {"id": root}),)))
        async with session.get(server.make_url("/metrics")) as answer:
            found = values(await answer.read())
        assert found['hsparse_node_messages_total{message="ChangeObjects",outcome="ok"}'] == 1
        assert found['hsparse_node_store_requests_total{kind="put",result="ok"}'] == 1
        assert found["hsparse_node_commits_total"] == found["hsparse_node_changes_total"] == 1
        assert found["hsparse_node_cached_objects"] == 1
        await remote.close()
    await service.close()


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
def memory() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
async def node(memory: MemoryStore, gate: Gate) -> AsyncIterator[DataService]:
    made = DataService(SlowStore(memory, gate, after=False), SystemClock())
    yield made
    await made.close()


async def one_after_the_other(
    gate: Gate, first: Coroutine[Any, Any, None], second: Coroutine[Any, Any, None]
) -> None:
    """Begin the second while the first waits for the store."""
    gate.open.clear()
    gate.reached.clear()
    tasks = [asyncio.create_task(first)]
    await gate.reached.wait()
    tasks.append(asyncio.create_task(second))
    for _ in range(2):
        await asyncio.sleep(0)
    gate.open.set()
    await asyncio.gather(*tasks)


async def test_one_loads_and_the_other_waits(node: DataService, gate: Gate) -> None:
    await node.send(ChangeObjects((CreateObject("/home", FOLDER),)))
    await node.send(ListKeys(""))
    node._cache.drop("")
    traces = RequestTrace("a"), RequestTrace("b")

    async def read(trace: RequestTrace) -> None:
        begin_trace(trace)
        await node.send(ReadObjects(("/home",)))

    await one_after_the_other(gate, read(traces[0]), read(traces[1]))
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
    assert (trace.conflicts, counts(trace)) == (1, {Work.WRITES: 2, Work.READS: 1})
    await other.close()


async def test_a_change_waits_for_a_commit_under_way(node: DataService, gate: Gate) -> None:
    await node.send(ChangeObjects((CreateObject("/home", FOLDER),)))
    traces = RequestTrace("a"), RequestTrace("b")

    async def allow(trace: RequestTrace, user: str) -> None:
        begin_trace(trace)
        await node.send(ChangeObjects((PutAcl("/home", user, {"read": True}, "b/home"),)))

    await one_after_the_other(gate, allow(traces[0], "ben"), allow(traces[1], "cem"))
    assert counts(traces[0]) == {Work.WRITES: 1}
    # The first change of a group has its put: the one that began to commit has been answered by then.
    assert counts(traces[1]) == {Work.WAITS: 1, Work.WRITES: 1}
    assert [(trace.commits, trace.changes, trace.hits) for trace in traces] == [(1, 1, 1), (1, 1, 1)]
