"""The conformance suite of data nodes, called directly and over HTTP, and what they remember of domains."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

import numpy as np
import pytest
from aiohttp.test_utils import TestServer

from hsparse.clock import SystemClock
from hsparse.concurrency.request_trace import RequestTrace, begin_trace
from hsparse.dn import records as recent_changes
from hsparse.dn.buckets import BucketRouter
from hsparse.dn.data_settings import DataSettings
from hsparse.dn.records import HSDS_SUMMARY, HsdsSummaries, RecentChanges
from hsparse.dn.server import create_node_app
from hsparse.dn.service import DataService, NodeResources
from hsparse.errors import StoreFailed, Unanswered
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.format.selections.points import Orthogonal
from hsparse.model.ids import domain_prefix, new_id, new_root_id, storage_key, summary_id
from hsparse.storage.object_store import Buffer
from hsparse.wire.chunk_message import TrimChunks, WriteChunks
from hsparse.wire.message import DataNode, GetInfo, InBucket, Message
from hsparse.wire.record_message import (
    ChangeObjects,
    CreateObject,
    DeleteObject,
    DeleteTree,
    ListKeys,
    PutLinks,
    PutRecord,
    RecordChange,
)
from hsparse.wire.remote_node import RemoteNode
from tests.testing.chunk_conformance import *  # noqa: F403
from tests.testing.extent_conformance import *  # noqa: F403
from tests.testing.faulty_store import FaultyStore
from tests.testing.manual_clock import ManualClock
from tests.testing.memory_store import MemoryStore
from tests.testing.query_conformance import *  # noqa: F403
from tests.testing.record_conformance import *  # noqa: F403
from tests.testing.reduction_conformance import *  # noqa: F403
from tests.testing.store_wrapper import CountingStore
from tests.testing.vlen_conformance import *  # noqa: F403

R = TypeVar("R")


class BucketNode:
    """`DataNode` of another bucket than a node's first."""

    def __init__(self, node: DataNode, bucket: str) -> None:
        self._node = node
        self._bucket = bucket

    async def send(self, message: Message[R], /) -> R:
        return await self._node.send(InBucket(self._bucket, message))

    async def close(self) -> None:
        await self._node.close()


@pytest.fixture(params=["direct", "direct with a cache of one byte", "http", "another bucket over http"])
async def node(request: pytest.FixtureRequest) -> AsyncIterator[DataNode]:
    cache = 1 if "cache" in request.param else 2**27
    settings = DataSettings(cache_size=cache)
    service: DataService | BucketRouter = DataService(MemoryStore(), SystemClock(), settings)
    if "http" not in request.param:
        yield service
        await service.close()
        return
    if "bucket" in request.param:
        shared, clock = NodeResources.of(settings), SystemClock()
        stores = MemoryStore("first"), MemoryStore("other")
        service = BucketRouter(
            [DataService(store, clock, resources=shared.of_bucket(store.name)) for store in stores]
        )
    async with TestServer(create_node_app(service, "secret")) as server:
        remote = RemoteNode(str(server.make_url("/")), "secret")
        yield BucketNode(remote, "other") if "bucket" in request.param else remote
        await remote.close()
    await service.close()


async def test_a_node_that_is_not_there_is_named() -> None:
    remote = RemoteNode("http://127.0.0.1:1", "")
    with pytest.raises(Unanswered, match=r"127\.0\.0\.1:1"):
        await remote.send(GetInfo())
    await remote.close()


async def test_a_deletion_that_stops_leaves_the_root_group() -> None:
    """Whoever creates a domain with that root is refused as long as anything of the old one is there."""
    store = FaultyStore(MemoryStore())
    service = DataService(store, SystemClock())
    root = new_root_id(SystemClock())
    ids = [new_id("groups", root, SystemClock()) for _ in range(3)]
    for id in (root, *ids):
        [outcome] = await service.send(ChangeObjects((CreateObject(id, {"id": id}),)))
        outcome.unwrap()
    store.fail_before("delete_if_match")
    with pytest.raises(StoreFailed):
        await service.send(DeleteTree(root))
    assert storage_key(root) in (await service.send(ListKeys("db/"))).keys
    assert await service.send(DeleteTree(root)) >= 1
    assert not (await service.send(ListKeys("db/"))).keys
    await service.close()


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


class BusyStore(MemoryStore):
    """A store whose puts take some turns of the event loop, so that others arrive meanwhile."""

    async def put_if_match(self, key: str, data: Buffer, etag: str) -> str:
        await turns(10)
        return await super().put_if_match(key, data, etag)


async def test_a_fence_does_not_wait_for_later_writes() -> None:
    """Chunks that are written all the time must not keep a shrink from its end."""
    node = DataService(BusyStore(), SystemClock())
    item = {"class": "H5T_INTEGER", "base": "H5T_STD_I32LE"}
    spec = ChunkSpec("d-3c448a8a-6c0b2447-9594-1269a1-049963", item, (10,), False, b"", ((),))
    part = ChunkSelection((0,), Orthogonal.all((10,)), True)
    started, fenced = asyncio.Event(), asyncio.Event()
    written = 0

    async def write(after: int) -> None:
        nonlocal written
        await turns(after)
        while not fenced.is_set() and written < 2000:
            written += 1
            if written == 20:
                started.set()
            await node.send(WriteChunks(spec, (part,), (np.full(10, written, "<i4"),)))

    async def fence() -> None:
        await started.wait()
        await node.send(TrimChunks(spec, (50,), ()))
        fenced.set()

    await asyncio.gather(fence(), *(write(after) for after in range(8)))
    assert written < 2000
    await node.close()


async def test_records_are_looked_for_in_memory_once(monkeypatch: pytest.MonkeyPatch) -> None:
    node = DataService(MemoryStore(), SystemClock())
    ids = tuple(new_root_id(SystemClock()) for _ in range(4))
    await node.send(ChangeObjects(tuple(CreateObject(id, {"id": id}) for id in ids[:3])))
    looked: list[str] = []
    get = node._cache.get

    def counted(key: str) -> object:
        looked.append(key)
        return get(key)

    monkeypatch.setattr(node._cache, "get", counted)
    begin_trace(trace := RequestTrace("read"))
    found = await node._records.read(ids)
    assert [outcome.failure is None for outcome in found] == [True, True, True, False]
    assert (sorted(looked), trace.hits, trace.loads) == (sorted(map(storage_key, ids)), 3, 1)
    await node.close()


RECENT_CLOCK = ManualClock()


def test_a_change_is_recent_until_its_time_is_over_or_it_is_settled() -> None:
    clock = ManualClock()
    changes, root, other = RecentChanges(clock), new_root_id(RECENT_CLOCK), new_root_id(RECENT_CLOCK)
    assert not changes.within(root, 10)
    changes.note(new_id("datasets", root, RECENT_CLOCK))
    clock.time += 9
    assert changes.within(root, 10)
    assert not changes.within(other, 10)
    clock.time += 1
    assert not changes.within(root, 10)
    changes.note(root)
    changes.settle(root)
    assert not changes.within(root, 10)


def test_the_domains_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_changes, "MAX_DOMAINS", 2)
    changes, roots = RecentChanges(RECENT_CLOCK), [new_root_id(RECENT_CLOCK) for _ in range(3)]
    for root in (*roots[:2], roots[0], roots[2]):
        changes.note(root)
    assert [changes.within(root, 10) for root in roots] == [True, False, True]


CLOCK = SystemClock()
ROOT = new_root_id(CLOCK)
GROUP = new_id("groups", ROOT, CLOCK)
KEY = domain_prefix(ROOT) + HSDS_SUMMARY


@pytest.fixture
def store() -> CountingStore:
    return CountingStore(MemoryStore())


async def gone(store: CountingStore, key: str) -> bool:
    return key not in [entry.key async for page in store.list("") for entry in page.entries]


async def test_the_summary_of_one_domain_is_removed(store: CountingStore) -> None:
    other = domain_prefix(new_root_id(CLOCK)) + HSDS_SUMMARY
    for key in (KEY, other):
        await store.put_if_absent(key, b"{}")
    await HsdsSummaries(store).remove(GROUP)
    assert await gone(store, KEY)
    assert not await gone(store, other)


async def test_what_has_none_is_not_asked_again(store: CountingStore) -> None:
    summaries = HsdsSummaries(store)
    for id in (GROUP, ROOT, new_id("datasets", ROOT, CLOCK)):
        await summaries.remove(id)
    assert store.keys == {("delete", KEY): 1}


async def test_only_so_many_are_remembered(store: CountingStore) -> None:
    summaries = HsdsSummaries(store, limit=1)
    for id in (GROUP, new_id("groups", new_root_id(CLOCK), CLOCK), GROUP):
        await summaries.remove(id)
    assert store.keys[("delete", KEY)] == 2


async def test_a_change_of_values_alone_removes_it(store: CountingStore) -> None:
    await store.put_if_absent(KEY, b"{}")
    item = {"class": "H5T_INTEGER", "base": "H5T_STD_I32LE"}
    spec = ChunkSpec(new_id("datasets", ROOT, CLOCK), item, (10,), False, b"", ((),))
    part = ChunkSelection((0,), Orthogonal.all((10,)), True)
    await DataService(store, CLOCK).send(WriteChunks(spec, (part,), (np.zeros(10, "<i4"),)))
    assert await gone(store, KEY)


@pytest.mark.parametrize(
    ("change", "removes"),
    [
        (PutLinks(GROUP, {}), True),
        (DeleteObject(GROUP), True),
        (CreateObject(GROUP, {}), True),
        (CreateObject(ROOT, {}), False),  # a new domain has none
        (PutRecord("/home/a.h5", {}), False),
        (PutRecord(summary_id(ROOT), {}), False),
    ],
)
async def test_changes_of_objects_drop_it(store: CountingStore, change: RecordChange, removes: bool) -> None:
    await store.put_if_absent(KEY, b"{}")
    await DataService(store, CLOCK).send(ChangeObjects((change,)))
    assert await gone(store, KEY) is removes
