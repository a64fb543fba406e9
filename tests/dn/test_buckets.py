"""Several buckets in one data node: apart in what they hold, together in what they take."""

from __future__ import annotations

import pytest

from hsparse.clock import SystemClock
from hsparse.dn.buckets import BucketRouter
from hsparse.dn.cache import BucketCache
from hsparse.dn.data_settings import DataSettings
from hsparse.dn.service import DataService, NodeResources
from hsparse.errors import NotFound
from hsparse.model.ids import new_root_id
from hsparse.wire.message import GetInfo, InBucket
from hsparse.wire.record_message import ChangeObjects, CreateObject, Forget, ReadObjects
from tests.testing.memory_store import MemoryStore

CLOCK = SystemClock()


def router(*names: str, cache: int = 1 << 20) -> tuple[BucketRouter, NodeResources, list[MemoryStore]]:
    shared, stores = NodeResources.of(DataSettings(cache_size=cache)), [MemoryStore(name) for name in names]
    services = [DataService(store, CLOCK, resources=shared.of_bucket(store.name)) for store in stores]
    return BucketRouter(services), shared, stores


async def test_the_same_id_is_another_object_in_each_bucket() -> None:
    node, _, stores = router("a", "b")
    root = new_root_id(CLOCK)
    for bucket in ("a", "b"):
        create = CreateObject(root, {"id": root, "in": bucket})
        (outcome,) = await node.send(InBucket(bucket, ChangeObjects((create,))))
        assert outcome.created
    for bucket in ("a", "b"):
        (outcome,) = await node.send(InBucket(bucket, ReadObjects((root,))))
        assert outcome.unwrap()["in"] == bucket
    (first,) = await node.send(ReadObjects((root,)))
    assert first.unwrap()["in"] == "a"
    await node.send(InBucket("b", Forget(root)))
    await stores[1].delete(f"db/{root[2:19]}/.group.json")
    assert (await node.send(InBucket("b", ReadObjects((root,)))))[0].failure is not None
    assert (await node.send(ReadObjects((root,))))[0].failure is None
    await node.close()


async def test_one_budget_bounds_the_memory_of_all_buckets() -> None:
    node, shared, _ = router("a", "b", cache=1 << 20)
    for number in range(300):
        root = new_root_id(CLOCK)
        create = CreateObject(root, {"id": root, "text": "x" * 2000})
        await node.send(InBucket("ab"[number % 2], ChangeObjects((create,))))
    assert 0 < shared.cache.nbytes <= 1 << 20
    each = [len(BucketCache(shared.cache, bucket)) for bucket in "ab"]
    assert sum(each) == len(shared.cache)
    assert min(each) > 0
    await node.close()


async def test_a_node_tells_its_buckets_and_knows_no_other() -> None:
    node, _, _ = router("a", "b")
    info = await node.send(GetInfo())
    assert (info.bucket, info.buckets) == ("a", ("a", "b"))
    with pytest.raises(NotFound, match="'c'"):
        await node.send(InBucket("c", GetInfo()))
    await node.close()
