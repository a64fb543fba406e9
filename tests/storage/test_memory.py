from __future__ import annotations

from hypothesis import given

from tests.testing.manual_clock import ManualClock
from tests.testing.memory_store import MemoryStore
from tests.testing.store_model import Move, check_moves, moves


@given(moves())
async def test_agrees_with_a_dict(moves: list[Move]) -> None:
    await check_moves(MemoryStore(), moves)


async def test_time_is_the_clocks() -> None:
    store = MemoryStore("bucket", clock=ManualClock(1234.5))
    await store.put("a", b"data")
    assert [entry.modified async for page in store.list("") for entry in page.entries] == [1234.5]
    assert store.name == "bucket"


async def test_what_was_put_does_not_change_with_the_buffer() -> None:
    store = MemoryStore()
    buffer = bytearray(b"data")
    await store.put("a", buffer)
    buffer[:] = b"else"
    assert (await store.get("a")).data == b"data"


async def test_objects_outlive_close() -> None:
    store = MemoryStore()
    await store.put("a", b"data")
    await store.close()
    assert (await store.get("a")).data == b"data"
