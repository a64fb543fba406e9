"""A process's view of a store: it dies or fails at the chosen call, before or after it is applied."""

from __future__ import annotations

import asyncio

import pytest

from hsparse.errors import NotFound, StoreFailed
from hsparse.storage.memory import MemoryStore
from hsparse.testing.faulty_store import FaultyStore
from hsparse.testing.mortal_store import Moment, MortalStore


@pytest.mark.parametrize("applied", [False, True])
async def test_a_fault_comes_once_at_its_call(applied: bool) -> None:
    inner = MemoryStore()
    store = MortalStore(inner)
    store.arm(Moment(1, applied, fatal=False))
    await store.put("a", b"1")
    with pytest.raises(StoreFailed):
        await store.put("b", b"2")
    await store.put("c", b"3")
    keys = [entry.key async for page in inner.list("") for entry in page.entries]
    assert keys == (["a", "b", "c"] if applied else ["a", "c"])


@pytest.mark.parametrize("applied", [False, True])
async def test_the_dead_are_never_answered(applied: bool) -> None:
    inner = MemoryStore()
    store = MortalStore(inner)
    store.arm(Moment(0, applied, fatal=True))
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
    store = MortalStore(faulty)
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
