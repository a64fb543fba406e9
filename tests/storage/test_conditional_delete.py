"""Which stores honour the condition of a delete is found out; the others are looked at first."""

from __future__ import annotations

import pytest

from hsparse.errors import PreconditionFailed, StoreFailed, Unsupported
from hsparse.storage.conditional_put import (
    MAX_PROBES,
    PROBE_SECONDS,
    LookBeforeDelete,
    with_conditional_delete,
)
from hsparse.storage.object_store import ObjectStore, OutcomeUnknown
from hsparse.storage.s3.s3_store import S3Store
from tests.conftest import MakeStore
from tests.testing.faulty_store import FaultyStore
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore


class IgnoresCondition(MemoryStore):
    async def delete_if_match(self, key: str, etag: str) -> None:
        await self.delete(key)


class RefusesAll(MemoryStore):
    async def delete_if_match(self, key: str, etag: str) -> None:
        raise PreconditionFailed("never")


class DeletesNothing(MemoryStore):
    async def delete_if_match(self, key: str, etag: str) -> None:
        if (await self.get(key)).etag != etag:
            raise PreconditionFailed("another etag")


class HasNoCondition(MemoryStore):
    async def delete_if_match(self, key: str, etag: str) -> None:
        raise Unsupported("not implemented")


async def keys(store: ObjectStore) -> list[str]:
    return [entry.key async for page in store.list("") for entry in page.entries]


@pytest.mark.parametrize("kind", ["memory", "posix", "s3"])
async def test_a_store_that_honours_it_is_used_as_it_is(make_store: MakeStore, kind: str) -> None:
    store = await make_store(kind, 10)
    assert await with_conditional_delete(store) is store
    assert await keys(store) == []


@pytest.mark.parametrize("kind", [IgnoresCondition, RefusesAll, DeletesNothing, HasNoCondition])
async def test_others_are_looked_at_first(kind: type[MemoryStore]) -> None:
    memory = kind()
    store = await with_conditional_delete(memory)
    assert isinstance(store, LookBeforeDelete)
    assert await keys(memory) == []
    first = await store.put("a", b"first")
    second = await store.put("a", b"second")
    with pytest.raises(PreconditionFailed):
        await store.delete_if_match("a", first)
    await store.delete_if_match("a", second)
    assert await keys(memory) == []


async def test_rclone_is_looked_at_first(rclone_store: S3Store) -> None:
    assert isinstance(await with_conditional_delete(rclone_store), LookBeforeDelete)
    assert await keys(rclone_store) == []


async def test_the_look_costs_one_read() -> None:
    counting = CountingStore(MemoryStore())
    store = LookBeforeDelete(counting)
    await store.delete_if_match("a", await store.put("a", b""))
    await store.delete_if_match("a", await store.put("a", b"1"))
    assert counting.calls == {"put": 2, "get_range": 2, "get": 1, "delete": 2}
    await store.put("b", b"1")
    [entry] = [entry async for page in store.list("") for entry in page.entries]
    await store.put("b", b"2")
    counting.reset()
    assert await store.delete_all([entry]) == [False]
    assert counting.calls == {"get_range": 1}


async def test_removes_its_key_when_the_store_fails() -> None:
    memory = MemoryStore()
    store = FaultyStore(memory)
    store.fail_before("delete_if_match")
    with pytest.raises(StoreFailed):
        await with_conditional_delete(store)
    assert await keys(memory) == []


@pytest.mark.parametrize("lost", [1, MAX_PROBES - 1, MAX_PROBES])
async def test_a_lost_reply_tells_nothing(lost: int) -> None:
    memory = MemoryStore()
    store = FaultyStore(memory)
    store.fail_before("delete_if_match", times=lost, error=OutcomeUnknown("lost"))
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    if lost < MAX_PROBES:
        assert await with_conditional_delete(store, sleep=sleep) is store
    else:
        with pytest.raises(OutcomeUnknown, match="check the network to the bucket, then start again"):
            await with_conditional_delete(store, sleep=sleep)
    assert pauses == [PROBE_SECONDS] * min(lost, MAX_PROBES - 1)
    assert await keys(memory) == []
