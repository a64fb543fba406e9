"""Tests of `CountingStore` and `SlowStore`."""

from __future__ import annotations

import asyncio

import pytest

from hsparse.errors import NotFound
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore, SlowStore


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
    assert store.keys["get", "b"] == 1
    assert store.keys["list", ""] == 2
    assert (store.gets, store.puts) == (3, 3)
    assert (store.bytes_in, store.bytes_out) == (18, 7)
    assert store.name == "bucket"


async def test_reset() -> None:
    store = CountingStore(MemoryStore())
    await store.put("a", b"data")
    await store.get("a")
    store.reset()
    assert (store.gets, store.puts, store.bytes_in, store.bytes_out) == (0, 0, 0, 0)
    assert not store.keys


async def test_every_call_waits_before_and_after() -> None:
    seen: list[tuple[str, str]] = []

    async def wait(method: str, key: str) -> None:
        seen.append((method, key))

    store = SlowStore(MemoryStore(), wait)
    await store.put("a", b"data")
    await store.get("a")
    assert seen == [("put", "a")] * 2 + [("get", "a")] * 2
    seen.clear()
    store = SlowStore(store.store, wait, after=False)
    assert [page.entries[0].key async for page in store.list("")] == ["a"]
    assert seen == [("list", "")] * 2


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
