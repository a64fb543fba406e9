"""Stores for tests, that fail, crash, count and wait."""

from __future__ import annotations

import asyncio

import pytest

from hsparse.errors import Busy, NotFound, StoreFailed
from tests.testing.faulty_store import CrashingStore, CrashPoint, FaultyStore
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore, SlowStore


@pytest.fixture
def memory() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def store(memory: MemoryStore) -> FaultyStore:
    return FaultyStore(memory)


async def test_fail_before_applies_nothing(store: FaultyStore, memory: MemoryStore) -> None:
    fault = store.fail_before("put", times=2)
    for key in ("a", "b"):
        with pytest.raises(StoreFailed):
            await store.put(key, b"data")
        with pytest.raises(NotFound):
            await memory.get(key)
    assert fault.entered.is_set()
    await store.put("a", b"data")


async def test_fail_after_is_a_lost_reply(store: FaultyStore, memory: MemoryStore) -> None:
    store.fail_after("puts", "a", error=Busy("scripted"))
    await store.put("b", b"data")
    with pytest.raises(Busy):
        await store.put_if_absent("a", b"data")
    assert (await memory.get("a")).data == b"data"


async def test_hang_holds_a_call_until_released(store: FaultyStore, memory: MemoryStore) -> None:
    for applied in (False, True):
        fault = store.hang("put", "a", applied=applied)
        put = await fault.holding(store.put("a", str(applied).encode()))
        await asyncio.sleep(0)
        assert not put.done()
        assert bool([page async for page in memory.list("a")]) == applied
        fault.release()
        await put
        await memory.delete("a")


async def test_flip_and_truncate_what_is_read(store: FaultyStore) -> None:
    await store.put("a", b"\0\1\2\3")
    store.flip("a", offset=1, mask=0x80)
    store.flip(offset=-1)
    store.truncate("a", keep=2)
    assert (await store.get("a")).data == b"\0\x81\2\3"
    assert (await store.get_range("a", 2)).data == b"\2\2"
    assert (await store.get("a")).data == b"\0\1"
    assert (await store.get("a")).data == b"\0\1\2\3"


async def test_tear_stores_a_part(store: FaultyStore) -> None:
    store.tear("a", keep=2)
    with pytest.raises(StoreFailed):
        await store.put("a", memoryview(b"data"))
    assert (await store.get("a")).data == b"da"


@pytest.mark.parametrize("applied", [False, True])
async def test_a_fault_comes_once_at_its_call(applied: bool) -> None:
    inner = MemoryStore()
    store = CrashingStore(inner)
    store.arm(CrashPoint(1, applied, fatal=False))
    await store.put("a", b"1")
    with pytest.raises(StoreFailed):
        await store.put("b", b"2")
    await store.put("c", b"3")
    keys = [entry.key async for page in inner.list("") for entry in page.entries]
    assert keys == (["a", "b", "c"] if applied else ["a", "c"])


@pytest.mark.parametrize("applied", [False, True])
async def test_the_dead_are_never_answered(applied: bool) -> None:
    inner = MemoryStore()
    store = CrashingStore(inner)
    store.arm(CrashPoint(0, applied, fatal=True))
    tasks = [asyncio.create_task(store.put("a", b"1"))]
    await store.died.wait()
    tasks.append(asyncio.create_task(store.put("b", b"2")))
    await asyncio.wait(tasks, timeout=0)
    await store.settle()
    assert not any(task.done() for task in tasks)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    with pytest.raises(NotFound):
        await inner.get("b")
    assert ("a" in inner._objects) == applied


async def test_what_was_sent_before_death_is_applied() -> None:
    faulty = FaultyStore(MemoryStore())
    store = CrashingStore(faulty)
    fault = faulty.hang("put")
    task = await fault.holding(store.put("a", b"1"))
    store.died.set()
    task.cancel()
    fault.release()
    await store.settle()
    assert (await faulty.get("a")).data == b"1"
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_counts_calls_keys_and_bytes() -> None:
    store = CountingStore(MemoryStore("bucket"))
    etag = await store.put_if_absent("a", b"0123456789")
    await store.put_if_match("a", bytearray(5), etag)
    await store.put("b", memoryview(b"xyz"))
    await store.get("a")
    await store.get_range("b", 1)
    await store.delete("b")
    with pytest.raises(NotFound):
        await store.get("b")
    assert [page async for page in store.list("")]
    assert store.calls == {
        "put_if_absent": 1,
        "put_if_match": 1,
        "put": 1,
        "get": 2,
        "get_range": 1,
        "delete": 1,
        "list": 2,
    }
    assert (store.keys["get", "b"], store.keys["list", ""], store.gets, store.puts) == (1, 2, 3, 3)
    assert (store.bytes_in, store.bytes_out, store.name) == (18, 7, "bucket")


async def test_a_call_is_not_applied_while_it_waits() -> None:
    gate = asyncio.Event()
    memory = MemoryStore()
    store = SlowStore(memory, lambda method, key: gate.wait())
    put = asyncio.create_task(store.put("a", b"data"))
    await asyncio.sleep(0)
    assert [page async for page in memory.list("")] == []
    gate.set()
    await put
    assert (await memory.get("a")).data == b"data"
