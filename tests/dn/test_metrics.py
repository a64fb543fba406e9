"""The metrics of a data node: what is counted for messages, and what is read when they are asked for."""

from __future__ import annotations

from collections import Counter

from aiohttp import ClientSession
from aiohttp.test_utils import TestServer

from hsparse.clock import SystemClock
from hsparse.concurrency.request_trace import RequestTrace, Work
from hsparse.dn.data_settings import DataSettings
from hsparse.dn.metrics import NODE_METRICS, NodeMetrics, NodeState
from hsparse.dn.server import create_node_app
from hsparse.dn.service import DataService, NodeResources
from hsparse.dn.traced_store import StoreRequests
from hsparse.model.ids import new_root_id
from hsparse.wire.message import InBucket, Routed, message_name
from hsparse.wire.record_message import ChangeObjects, CreateObject, ReadObjects
from hsparse.wire.remote_node import RemoteNode
from tests.testing.memory_store import MemoryStore

STATE = NodeState({"cached_objects": 3, "cached_bytes": 400}, 0.5, 2)


def values(text: bytes) -> dict[str, float]:
    """Return the samples by name and labels."""
    lines = [line for line in text.decode().splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_a_message_counts_by_its_type_with_what_was_done_for_it() -> None:
    metrics = NodeMetrics(lambda: STATE)
    trace = RequestTrace(
        "x",
        work={Work.READS: (2, 0.1), Work.WAITS: (1, 0.3)},
        conflicts=1,
        hits=5,
        loads=2,
        commits=2,
        changes=7,
    )
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
    assert found["hsparse_node_cache_hits_total"] == 5
    assert found["hsparse_node_cache_loads_total"] == 2
    assert found["hsparse_node_commits_total"] == 2
    assert found["hsparse_node_changes_total"] == 7
    assert found["hsparse_node_conflicts_total"] == 1


def test_the_state_is_that_when_it_is_asked_for() -> None:
    found = values(NodeMetrics(lambda: STATE).text())
    assert found["hsparse_node_cached_objects"] == 3
    assert found["hsparse_node_cached_bytes"] == 400
    assert found["hsparse_node_lease_age_seconds"] == 0.5
    assert found["hsparse_node_members"] == 2
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
