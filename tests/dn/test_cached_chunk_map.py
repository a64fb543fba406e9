"""A chunk map in a data node's memory: loaded once, added to by many, put by one at a time."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from hsparse.dn.chunk_index import MIN_NEW_ROWS, CachedChunkMap
from hsparse.errors import Gone, StoreFailed
from hsparse.format.chunk_map import ChunkMap, decode_map
from tests.testing.faulty_store import FaultyStore
from tests.testing.store_wrapper import CountingStore

KEY = "db/map"


def rows(first: int, count: int, digest: int = 1) -> ChunkMap:
    scaled = np.arange(first, first + count, dtype=np.uint64).reshape(-1, 1)
    return ChunkMap(
        scaled,
        np.full(count, digest, np.uint64),
        np.ones((count, 2, 3), np.uint64),
        np.full(count, digest, np.uint64),
        np.zeros((count, 0, 5), np.uint64),
    )


def fine() -> None:
    """Nothing is deleted."""


@pytest.fixture
def held(store: CountingStore) -> CachedChunkMap:
    return CachedChunkMap(KEY, 1, 2, store)


async def stored(store: CountingStore) -> list[int]:
    found = decode_map((await store.get(KEY)).data, 1, 2)
    return [int(one) for one in found.scaled[:, 0]]


async def test_many_who_ask_share_one_load(held: CachedChunkMap, store: CountingStore) -> None:
    assert [len(one) for one in await asyncio.gather(*(held.rows() for _ in range(20)))] == [0] * 20
    assert store.calls == {"get": 1}
    assert not held.busy


async def test_few_rows_are_kept_in_memory_alone(held: CachedChunkMap, store: CountingStore) -> None:
    await held.add(rows(0, MIN_NEW_ROWS), (10**6,), fine)
    assert store.puts == 0
    await held.add(rows(MIN_NEW_ROWS, 1), (10**6,), fine)
    assert store.puts == 1
    assert await stored(store) == list(range(MIN_NEW_ROWS + 1))
    assert held.nbytes > 8 * MIN_NEW_ROWS


async def test_rows_added_at_once_all_stay(held: CachedChunkMap, store: CountingStore) -> None:
    await asyncio.gather(*(held.add(rows(1000 * i, 1000), (10**6,), fine) for i in range(8)))
    assert len(await held.rows()) == 8000
    await held.drain()
    assert not held.busy


async def test_what_lies_outside_the_grid_is_not_put(held: CachedChunkMap, store: CountingStore) -> None:
    await held.add(rows(0, 200), (150,), fine)
    assert await stored(store) == list(range(150))


async def test_anothers_map_is_taken_and_added_to(held: CachedChunkMap, store: CountingStore) -> None:
    other = CachedChunkMap(KEY, 1, 2, store)
    await other.rows()
    await held.add(rows(0, 100), (10**6,), fine)
    await other.add(rows(100, 100), (10**6,), fine)
    assert await stored(store) == list(range(100)), "the put was refused"
    assert len(await other.rows()) == 100
    await other.add(rows(100, 100), (10**6,), fine)
    assert await stored(store) == list(range(200))


async def test_a_put_that_failed_is_made_up_for(
    held: CachedChunkMap, store: CountingStore, faulty: FaultyStore
) -> None:
    faulty.fail_before("puts")
    await held.add(rows(0, 100), (10**6,), fine)
    assert store.puts == 1
    await held.add(rows(100, 1), (10**6,), fine)
    assert await stored(store) == list(range(101))


async def test_nothing_is_put_when_it_is_not_to_be(held: CachedChunkMap, store: CountingStore) -> None:
    def gone() -> None:
        raise Gone("deleted")

    with pytest.raises(Gone):
        await held.add(rows(0, 100), (10**6,), gone)
    assert store.puts == 0
    await held.settle()


async def test_a_load_that_fails_is_tried_again(
    held: CachedChunkMap, store: CountingStore, faulty: FaultyStore
) -> None:
    faulty.fail_before("get")
    with pytest.raises(StoreFailed):
        await held.rows()
    assert len(await held.rows()) == 0
