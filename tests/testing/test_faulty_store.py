"""Tests of `FaultyStore` and `CrashingStore`."""

from __future__ import annotations

import asyncio

import pytest

from hsparse.errors import Busy, NotFound, StoreFailed
from tests.testing.crashing_store import CrashingStore, CrashPoint
from tests.testing.faulty_store import FaultyStore
from tests.testing.memory_store import MemoryStore


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
        put = asyncio.create_task(store.put("a", str(applied).encode()))
        await fault.entered.wait()
        await asyncio.sleep(0)
        assert not put.done()
        assert bool([page async for page in memory.list("a")]) == applied
        fault.release()
        await put
        await memory.delete("a")


async def test_clear_releases_what_hangs(store: FaultyStore) -> None:
    fault = store.hang("all")
    store.fail_before("all")
    put = asyncio.create_task(store.put("a", b"data"))
    await fault.entered.wait()
    store.clear()
    await put
    assert (await store.get("a")).data == b"data"


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


async def test_the_script_is_followed_in_order(store: FaultyStore) -> None:
    store.fail_before("get", error=Busy("first"))
    store.fail_before("gets", error=StoreFailed("second"))
    for kind in (Busy, StoreFailed, NotFound):
        with pytest.raises(kind):
            await store.get("a")


async def test_a_listing_can_fail(store: FaultyStore) -> None:
    await store.put("a", b"data")
    store.fail_before("list", "a")
    with pytest.raises(StoreFailed):
        await anext(store.list("a"))
    assert [page.entries[0].key async for page in store.list("")] == ["a"]


def test_a_misspelt_method_is_found(store: FaultyStore) -> None:
    with pytest.raises(AssertionError, match="'puts_if_absent' is no method"):
        store.fail_before("puts_if_absent")


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
    task = asyncio.create_task(store.put("a", b"1"))
    await fault.entered.wait()
    store.died.set()
    task.cancel()
    fault.release()
    await store.settle()
    assert (await faulty.get("a")).data == b"1"
    with pytest.raises(asyncio.CancelledError):
        await task
