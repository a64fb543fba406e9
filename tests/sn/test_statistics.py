"""Statistics: exact where they are quick, else the last ones with their time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, TypeVar

import pytest

from hsparse.concurrency.request_trace import RequestTrace, begin_trace, end_trace
from hsparse.dn.service import DataService
from hsparse.format.chunk_spec import chunk_key
from hsparse.model.ids import domain_prefix, storage_key, summary_id
from hsparse.sn import statistics
from hsparse.sn.data_nodes import owners as key_pages
from hsparse.sn.data_nodes.owners import FixedNodes, Owners
from hsparse.sn.statistics import dataset_of_key
from hsparse.wire.message import Message
from hsparse.wire.record_message import ChangeObjects, ListKeys, Outcome, PutRecord, ReadObjects
from tests.sn.conftest import DOMAIN, USERS
from tests.support.memory_node import MemoryNode
from tests.support.rest_client import RestClient
from tests.testing.manual_clock import ManualClock
from tests.testing.memory_store import MemoryStore


async def test_verbose_counts(rest: RestClient, root: str) -> None:
    group = (await rest("POST", "/groups", {"link": {"id": root, "name": "g"}}))["id"]
    body = {"type": "H5T_STD_I32LE", "shape": [4], "link": {"id": group, "name": "d"}}
    dataset = (await rest("POST", "/datasets", body))["id"]
    got = await rest("GET", "/", verbose=1)
    assert (got["num_groups"], got["num_datasets"], got["num_datatypes"], got["num_chunks"]) == (2, 1, 0, 0)
    assert got["num_objects"] == 3
    assert got["scan_info"]["datasets"][dataset]["logical_bytes"] == 16
    assert got["total_size"] == got["metadata_bytes"] > 0


async def test_chunks_are_counted(rest: RestClient) -> None:
    properties = {"layout": {"class": "H5D_STRUCT_CHUNK", "dims": [4], "flags": ["H5D_SPARSE_DATA"]}}
    body = {
        "type": "H5T_STD_I8LE",
        "shape": [100],
        "creationProperties": properties,
        "value": list(range(100)),
    }
    id = (await rest("POST", "/datasets", body))["id"]
    shown = await rest("GET", f"/datasets/{id}", verbose=1)
    assert shown["num_chunks"] == 25
    assert shown["allocated_size"] > 100
    counts = await rest("GET", "/", verbose=1)
    assert (counts["num_chunks"], counts["allocated_bytes"]) == (25, shown["allocated_size"])
    assert counts["scan_info"]["datasets"][id]["num_chunks"] == 25
    await rest("DELETE", f"/datasets/{id}")
    assert (await rest("GET", "/", verbose=1))["num_datasets"] == 0


def test_the_dataset_of_a_key() -> None:
    id = "d-00000000-00000001-0000-000000-000002"
    for key in (storage_key(id), chunk_key(id, (3, 4)), chunk_key(id, ())):
        assert dataset_of_key(key) == id


async def test_a_listing_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_pages, "KEYS_AT_ONCE", 2)
    node = MemoryNode()
    root = "g-00000000-00000001-8888-888888-888889"
    ids = [f"g-00000000-00000001-0000-000000-00000{n}" for n in range(7)]
    await node.create({id: {"id": id} for id in ids})
    owners = Owners(FixedNodes({"dn-001": node}))
    assert (await statistics.scan_domain(owners, root))["num_groups"] == 7
    assert len(node.log) == 4


R = TypeVar("R")
HSDS_KEYS = {
    "lastModified", "num_groups", "num_datatypes", "datasets", "num_chunks", "allocated_bytes",
    "metadata_bytes", "num_linked_chunks", "linked_bytes", "logical_bytes", "bucket", "scan_start",
    "md5_sum", "scan_complete",
}  # fmt: skip


class Gated:
    """A data node whose listings of objects wait while the gate is closed."""

    def __init__(self, clock: ManualClock) -> None:
        self._node = DataService(MemoryStore(clock=clock), clock)
        self.gate = asyncio.Event()
        self.gate.set()
        self.listing = asyncio.Event()
        self.listings = 0
        self.prefixes: set[str] = set()
        self.kept = asyncio.Event()

    async def send(self, message: Message[R]) -> R:
        if isinstance(message, ListKeys) and message.prefix.startswith("db/"):
            self.listings += 1
            self.prefixes.add(message.prefix)
            self.listing.set()
            await self.gate.wait()
        reply = await self._node.send(message)
        if isinstance(message, ChangeObjects) and isinstance(message.changes[0], PutRecord):
            self.kept.set()
        return reply

    async def close(self) -> None:
        await self._node.close()

    async def summary(self, root: str) -> Outcome:
        return (await self._node.send(ReadObjects((summary_id(root),))))[0]


@pytest.fixture
def node() -> Gated:  # type: ignore[override]
    return Gated(ManualClock())


@pytest.fixture
async def rest(node: Gated) -> AsyncIterator[RestClient]:
    async with RestClient(node, ManualClock(), *USERS) as client:
        client.domain = DOMAIN
        assert (await client("PUT", "/", {})).status == 201
        yield client
        node.gate.set()


@pytest.fixture
async def root(rest: RestClient) -> str:
    return str((await rest("GET", "/"))["root"])


async def groups(rest: RestClient, **options: Any) -> int:
    return int((await rest("GET", "/", verbose=1, **options))["num_groups"])


async def test_what_is_counted_is_kept_as_hsds_keeps_it(rest: RestClient, root: str, node: Gated) -> None:
    await rest("POST", "/datasets", {"type": "H5T_STD_I32LE", "shape": [4], "value": [1, 2, 3, 4]})
    assert (await node.summary(root)).failure is not None
    shown = await rest("GET", "/", verbose=1)
    kept = (await node.summary(root)).unwrap()
    assert shown["scan_info"] == kept
    assert set(kept) == HSDS_KEYS | {"num_datasets"}
    assert (kept["num_chunks"], kept["allocated_bytes"], kept["logical_bytes"]) == (1, 16, 16)
    assert shown["num_objects"] == 3
    assert shown["total_size"] == kept["metadata_bytes"] + 16
    assert len(kept["md5_sum"]) == 32
    again = await rest("GET", "/", verbose=1)
    assert again["scan_info"] == kept


async def test_an_answer_does_not_wait_for_a_count(
    rest: RestClient, root: str, node: Gated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statistics, "COUNT_WAIT_SECONDS", 0.0)
    node.gate.clear()
    never = await rest("GET", "/", verbose=1)
    assert (never.status, never["num_groups"]) == (200, 0)
    assert "scan_info" not in never.body
    node.gate.set()
    assert (await rest("PUT", "/", rescan=1)).status == 204
    node.gate.clear()
    await rest("POST", "/groups", {})
    assert await groups(rest) == 1, "as last counted"
    listed = (await rest("GET", "/domains", domain="/home/test_user1/", verbose=1))["domains"]
    assert [one["num_groups"] for one in listed] == [1]


async def test_a_rescan_counts_all_that_was_there_before_it(rest: RestClient, root: str, node: Gated) -> None:
    node.gate.clear()
    first = asyncio.ensure_future(rest("PUT", "/", rescan=1))
    await node.listing.wait()
    await rest("POST", "/groups", {})
    others = [asyncio.ensure_future(rest("PUT", "/", rescan=1)) for _ in range(3)]
    node.gate.set()
    assert [(await one).status for one in (first, *others)] == [204] * 4
    assert (await node.summary(root)).unwrap()["num_groups"] == 2
    assert node.listings <= 3


async def test_a_count_for_a_listing_ends_when_nobody_waits(
    rest: RestClient, root: str, node: Gated, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing = {"domain": "/home/test_user1/", "verbose": 1}
    counts = rest.service.component(statistics.Statistics)
    node.gate.clear()
    monkeypatch.setattr(statistics, "COUNT_WAIT_SECONDS", 0.0)
    assert "scan_info" not in (await rest("GET", "/domains", **listing))["domains"][0]
    node.gate.set()
    await node.kept.wait()  # the first count goes on
    node.gate.clear()
    await rest("POST", "/groups", {})
    assert (await rest("GET", "/domains", **listing))["domains"][0]["num_groups"] == 1
    node.listing.clear()
    other = asyncio.ensure_future(counts.rescan(root))
    await node.listing.wait()
    given_up = asyncio.ensure_future(counts.rescan(root, lasting=False))
    given_up.cancel()
    await asyncio.wait({given_up})
    node.gate.set()
    assert (await other)["num_groups"] == 2, "another one who waits has the count"


async def test_each_user_has_places_to_count_in(node: Gated) -> None:
    counts = statistics.Statistics(Owners(FixedNodes({"dn-001": node})), ManualClock(), "bucket")

    roots = [f"g-0000000{number}-00000001-8888-888888-888889" for number in range(10)]

    def count(user: str, root: str) -> asyncio.Task[Any]:
        token = begin_trace(RequestTrace("", queue_user=user))
        try:
            return asyncio.create_task(counts.rescan(root))
        finally:
            end_trace(token)

    node.gate.clear()
    greedy = [count("greedy", root) for root in roots[:9]]
    modest = count("modest", roots[9])
    while domain_prefix(roots[9]) not in node.prefixes:
        node.listing.clear()
        await node.listing.wait()
    node.gate.set()
    await modest
    await asyncio.gather(*greedy)
    await counts.close()


async def test_a_slow_count_is_good_for_a_while(
    rest: RestClient, root: str, node: Gated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        statistics, "COUNT_WAIT_SECONDS", 1.0
    )  # less than that count took; none is waited for
    now = ManualClock().now()
    slow = {"num_groups": 77, "scan_start": now - 10.0, "scan_complete": now}
    await node.send(summary_change(root, slow))
    before = node.listings
    assert await groups(rest) == 77
    assert node.listings == before
    await node.send(summary_change(root, slow | {"scan_start": now - 60.0, "scan_complete": now - 50.0}))
    assert await groups(rest) == 1


async def test_the_summary_of_a_deleted_domain_is_not_kept(rest: RestClient, root: str, node: Gated) -> None:
    node.gate.clear()
    counting = asyncio.ensure_future(rest("PUT", "/", rescan=1))
    await node.listing.wait()
    assert (await rest("DELETE", "/", wait=60)).status == 200
    node.gate.set()
    assert (await counting).status == 204
    assert (await node.summary(root)).failure is not None


async def test_a_dataset_has_the_last_count_of_its_domain(
    rest: RestClient, root: str, node: Gated, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"type": "H5T_STD_I8LE", "shape": [4], "value": [1, 2, 3, 4]}
    id = (await rest("POST", "/datasets", body))["id"]
    monkeypatch.setattr(statistics, "COUNT_WAIT_SECONDS", 0.0)
    node.gate.clear()
    assert "num_chunks" not in (await rest("GET", f"/datasets/{id}", verbose=1)).body
    node.gate.set()
    await rest("PUT", "/", rescan=1)
    node.gate.clear()
    shown = await rest("GET", f"/datasets/{id}", verbose=1)
    assert (shown["num_chunks"], shown["allocated_size"]) == (1, 4)


async def test_counts_of_each_dataset_are_bounded(
    rest: RestClient, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statistics, "MAX_LISTED", 2)
    monkeypatch.setattr(key_pages, "KEYS_AT_ONCE", 3)
    for _ in range(5):
        await rest("POST", "/datasets", {"type": "H5T_STD_I8LE", "shape": [2], "value": [1, 2]})
    shown = await rest("GET", "/", verbose=1)
    assert (shown["num_datasets"], shown["num_chunks"], shown["allocated_bytes"]) == (5, 5, 10)
    assert len(shown["scan_info"]["datasets"]) == 2


async def test_rescan_needs_a_domain_and_a_right(rest: RestClient) -> None:
    assert (await rest("PUT", "/", rescan=1, domain="/home/test_user1")).status == 400
    assert (await rest("PUT", "/", rescan=1, user="test_user2")).status == 403


def summary_change(root: str, record: dict[str, Any]) -> Any:
    return ChangeObjects((PutRecord(summary_id(root), record),))
