from __future__ import annotations

import pytest

from hsparse.errors import NotFound
from hsparse.storage.memory import MemoryStore
from hsparse.testing.counting_store import CountingStore


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
