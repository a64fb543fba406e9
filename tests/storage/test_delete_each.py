from __future__ import annotations

import asyncio

import pytest

from hsparse.errors import StoreFailed
from hsparse.storage.delegating_store import DELETES_AT_ONCE, delete_each
from hsparse.storage.object_store import Entry
from tests.testing.faulty_store import FaultyStore
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore


async def entries(store: MemoryStore, count: int) -> list[Entry]:
    for number in range(count):
        await store.put(f"{number:03}", b"x")
    return [entry async for page in store.list("") for entry in page.entries]


async def test_so_many_at_a_time() -> None:
    memory = MemoryStore()
    listed = await entries(memory, DELETES_AT_ONCE + 5)
    store = FaultyStore(memory)
    hanging = store.hang("delete_if_match", times=DELETES_AT_ONCE)
    counting = CountingStore(store)
    deleting = asyncio.create_task(delete_each(counting, listed))
    await hanging.entered.wait()
    assert counting.calls["delete_if_match"] == DELETES_AT_ONCE
    hanging.release()
    assert await deleting == [True] * len(listed)


async def test_after_a_failure_none_is_begun_and_none_is_left_running() -> None:
    memory = MemoryStore()
    listed = await entries(memory, DELETES_AT_ONCE + 5)
    store = FaultyStore(memory)
    hanging = store.hang("delete_if_match", listed[0].key)
    failing = store.fail_before("delete_if_match", listed[3].key)
    counting = CountingStore(store)
    deleting = asyncio.create_task(delete_each(counting, listed))
    await failing.entered.wait()
    hanging.release()
    with pytest.raises(StoreFailed):
        await deleting
    assert counting.calls["delete_if_match"] == 4
    assert [entry async for page in memory.list("") for entry in page.entries] == listed[3:]
