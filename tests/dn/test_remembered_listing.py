"""Listings that a data node remembers for a version of the chunks: what they cost, and that they are never older."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import numpy as np
import pytest

from hsparse.clock import SystemClock
from hsparse.dn import chunk_index
from hsparse.dn.data_settings import DataSettings
from hsparse.dn.service import DataService
from hsparse.errors import StoreFailed
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.format.selections.points import Orthogonal
from hsparse.wire.chunk_info_message import CountChunks, GetChunkVersion, ListChunks
from hsparse.wire.chunk_message import EraseChunks
from tests.dn.test_chunk_index import COUNT, DATASET, DIMS, EXTENT, SPARSE, write
from tests.testing.faulty_store import FaultyStore
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore

LISTING = {"list": 4}
"""Three pages, and the empty one that ends the listing."""


@pytest.fixture
def faulty() -> FaultyStore:
    return FaultyStore(MemoryStore(page_size=100))


@pytest.fixture
async def node(store: CountingStore) -> AsyncIterator[DataService]:
    service = DataService(store, SystemClock())
    await write(service, range(COUNT))
    store.reset()
    yield service
    await service.close()


async def version(node: DataService) -> str:
    return await node.send(GetChunkVersion(DATASET))


async def count(node: DataService, extent: tuple[int, ...] = EXTENT) -> int:
    return await node.send(CountChunks(SPARSE, extent, version=await version(node)))


async def listed(node: DataService, message: ListChunks) -> list[int]:
    """Return the chunks of all pages, which name one version."""
    message = replace(message, version=await version(node))
    found: list[int] = []
    while True:
        page = await node.send(message)
        found += page.rows.scaled[:, 0].tolist()
        if not page.marker:
            return found
        message = replace(message, after=page.marker)


async def test_chunks_are_listed_once_in_a_version(node: DataService, store: CountingStore) -> None:
    assert [await count(node) for _ in range(3)] == [COUNT] * 3
    assert store.calls == LISTING
    in_order = sorted(range(COUNT), key=str)
    assert await listed(node, ListChunks(SPARSE, EXTENT, limit=70)) == in_order
    assert await listed(node, ListChunks(SPARSE, EXTENT, by_coords=True, limit=70)) == list(range(COUNT))
    box = Orthogonal.box(EXTENT, (17,), (1000,))
    chosen = [number for number in in_order if 4 <= number < 250]
    assert await listed(node, ListChunks(SPARSE, EXTENT, box, limit=70)) == chosen
    assert store.calls["list"] == 4


async def test_a_change_is_seen(node: DataService) -> None:
    extent = (4 * (COUNT + 7),)
    assert await count(node, extent) == COUNT
    await write(node, [COUNT + 5])
    assert await count(node, extent) == COUNT + 1
    assert await count(node) == COUNT, "the last chunk is outside"
    whole = ChunkSelection((3,), Orthogonal.all(DIMS))
    await node.send(EraseChunks(SPARSE, (whole,)))
    found = await listed(node, ListChunks(SPARSE, extent, limit=1000))
    assert COUNT + 5 in found


async def test_who_asks_at_once_shares_a_listing(node: DataService, store: CountingStore) -> None:
    assert await asyncio.gather(*(count(node) for _ in range(10))) == [COUNT] * 10
    assert store.calls == LISTING


async def test_a_page_goes_on_after_what_is_remembered_was_replaced(
    node: DataService, store: CountingStore
) -> None:
    """It lists behind its marker, and does not list all again."""
    message = ListChunks(SPARSE, EXTENT, limit=100, version=await version(node))
    first = await node.send(message)
    await write(node, [7], 2)
    assert await count(node) == COUNT
    store.reset()
    second = await node.send(replace(message, after=first.marker))
    assert len(second.rows) == 100
    assert store.calls["list"] == 2
    assert not set(first.rows.scaled[:, 0].tolist()) & set(second.rows.scaled[:, 0].tolist())


async def test_too_many_chunks_are_not_remembered(
    node: DataService, store: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunk_index, "MAX_REMEMBERED", COUNT - 1)
    assert [await count(node) for _ in range(2)] == [COUNT] * 2
    assert store.calls["list"] > 8
    assert store.calls["list"] == 3 + 4 + 4, "only the first one is listed to be remembered"
    small = DataService(store, SystemClock(), DataSettings(cache_size=1000))
    assert await count(small) == COUNT
    assert small.counters()["cached_bytes"] < 1000
    await small.close()


async def test_a_listing_that_fails_is_tried_again(node: DataService, faulty: FaultyStore) -> None:
    faulty.fail_before("list", times=1)
    with pytest.raises(StoreFailed):
        await count(node)
    assert await count(node) == COUNT


async def test_who_leaves_does_not_end_the_listing_of_others(
    node: DataService, store: CountingStore, faulty: FaultyStore
) -> None:
    held = faulty.hang("list")
    leaves = asyncio.create_task(count(node))
    await held.entered.wait()
    stays = asyncio.create_task(count(node))
    leaves.cancel()
    await asyncio.wait([leaves])
    held.release()
    assert await stays == COUNT
    assert store.calls == LISTING


async def test_rows_are_of_the_state_that_is_named_or_a_newer_one(
    node: DataService, faulty: FaultyStore
) -> None:
    """A change during a listing has another version."""
    held = faulty.hang("list")
    during = asyncio.create_task(count(node, (4 * (COUNT + 7),)))
    await held.entered.wait()
    await write(node, [COUNT + 5])
    after = asyncio.create_task(count(node, (4 * (COUNT + 7),)))
    held.release()
    assert await during in (COUNT, COUNT + 1)
    assert await after == COUNT + 1
    assert np.isin(COUNT + 5, await listed(node, ListChunks(SPARSE, (4 * (COUNT + 7),), limit=1000)))
