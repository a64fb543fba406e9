from __future__ import annotations

import asyncio

from hsparse.storage.memory import MemoryStore
from hsparse.testing.slow_store import SlowStore


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
