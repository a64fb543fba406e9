"""The cache: bytes bounded, never two of one key, nothing in use dropped."""

from __future__ import annotations

import asyncio

from hsparse.dn.cache import Cache
from hsparse.dn.cached_object import CachedObject
from hsparse.dn.record_form import OBJECT_BYTES, memory_of_json
from hsparse.dn.record_objects import RecordValue, WholeRecord
from hsparse.dn.stored_form import SingleObject
from tests.testing.faulty_store import FaultyStore
from tests.testing.memory_store import MemoryStore

RECORD_BYTES = OBJECT_BYTES + memory_of_json(b'{"key":"a"}')


def make(key: str, store: MemoryStore | FaultyStore) -> CachedObject[RecordValue]:
    return CachedObject(SingleObject(key, store, WholeRecord(key)))


async def fill(cache: Cache, store: MemoryStore | FaultyStore, key: str) -> None:
    with cache.use(key, lambda: make(key, store)) as owned:
        await owned.apply(lambda value: (RecordValue({"key": key}), None))


async def test_the_least_recently_used_goes_first() -> None:
    store = MemoryStore()
    cache = Cache(3 * (RECORD_BYTES + 10))
    for key in ("a", "b", "c"):
        await fill(cache, store, key)
    with cache.use("a", lambda: make("a", store)):
        pass
    await fill(cache, store, "d")
    assert [owned.key for owned in cache] == ["c", "a", "d"]
    assert cache.nbytes <= 3 * (RECORD_BYTES + 10)


async def test_what_is_in_use_stays_and_is_the_same() -> None:
    store = MemoryStore()
    cache = Cache(1)
    with cache.use("a", lambda: make("a", store)) as one:
        await one.apply(lambda value: (RecordValue({"n": 1}), None))
        await fill(cache, store, "b")
        with cache.use("a", lambda: make("a", store)) as two:
            assert one is two
    assert len(cache) == 0
    assert cache.nbytes == 0


async def test_what_is_being_committed_stays() -> None:
    store = FaultyStore(MemoryStore())
    cache = Cache(1)
    fault = store.hang("puts")
    change = asyncio.create_task(fill(cache, store, "a"))
    await fault.entered.wait()
    change.cancel()
    await asyncio.wait([change])
    cache.drop("")
    assert [owned.key for owned in cache] == ["a"]
    fault.release()
    for owned in cache:
        await owned.drain()
    cache.drop("")
    assert len(cache) == 0


async def test_what_an_abandoned_change_left_is_counted_when_it_ends() -> None:
    store, cache = FaultyStore(MemoryStore()), Cache(RECORD_BYTES + 10)
    fault = store.hang("puts", "a")
    change = asyncio.create_task(fill(cache, store, "a"))
    await fault.entered.wait()
    change.cancel()
    await asyncio.wait([change])
    fault.release()
    for owned in cache:
        await owned.drain()
    await fill(cache, store, "b")
    assert [owned.key for owned in cache] == ["b"]
    assert cache.nbytes <= RECORD_BYTES + 10


async def test_drop_forgets_a_prefix() -> None:
    store = MemoryStore()
    cache = Cache(10**6)
    for key in ("db/1/a", "db/1/b", "db/2/a"):
        await fill(cache, store, key)
    cache.drop("db/1/")
    assert [owned.key for owned in cache] == ["db/2/a"]
    assert cache.nbytes == OBJECT_BYTES + memory_of_json(b'{"key":"db/2/a"}') + len("db/2/a")
