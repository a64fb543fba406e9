"""Chunk queries of a data node: what is asked of the store, and what a chunk map can and cannot make wrong."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from hsparse.clock import SystemClock
from hsparse.dn import chunk_index
from hsparse.dn.chunk_index import MIN_NEW_ROWS
from hsparse.dn.data_settings import DataSettings
from hsparse.dn.service import DataService
from hsparse.errors import Corrupt, Gone, StoreFailed
from hsparse.format import chunk_map
from hsparse.format.chunk_spec import ChunkSpec, chunk_key
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.format.selections.points import Orthogonal
from hsparse.format.structured.container import MAX_FOOTER
from hsparse.model.ids import map_key
from hsparse.storage.object_store import Entry, Page
from hsparse.wire.chunk_info_message import CountChunks, FindChunk, ListChunks
from hsparse.wire.chunk_message import FenceDeleted, WriteChunks
from hsparse.wire.record_message import DeleteTree
from tests.conftest import MakeStore
from tests.testing.faulty_store import FaultyStore
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore, StoreWrapper

DATASET = "d-00000000-00000001-0000-000000-000001"
DIMS = (4,)
COUNT = 300
EXTENT = (4 * COUNT,)
SPARSE = ChunkSpec(DATASET, "H5T_STD_I32LE", DIMS, True, b"", ((), ()))
DENSE = ChunkSpec(DATASET, "H5T_STD_I32LE", DIMS, False, b"", ((),))
MAP = map_key(DATASET)
ALL = ListChunks(SPARSE, EXTENT, limit=1000)


@pytest.fixture
def faulty() -> FaultyStore:
    return FaultyStore(MemoryStore(page_size=100))


@pytest.fixture
async def node(store: CountingStore) -> AsyncIterator[DataService]:
    """A node that has none of the chunks in memory: another one wrote them."""
    writer = DataService(store, SystemClock())
    await write(writer, range(COUNT))
    await writer.close()
    service = await restarted(store)
    yield service
    await service.close()


async def write(node: DataService, numbers: Sequence[int], count: int = 1, spec: ChunkSpec = SPARSE) -> None:
    """Write the first `count` elements of some chunks."""
    box = Orthogonal.box(DIMS, (0,), (count,))
    parts = tuple(ChunkSelection((number,), box) for number in numbers)
    await node.send(WriteChunks(spec, parts, (np.full(count, 7, "<i4"),) * len(parts)))


async def defined(node: DataService, message: ListChunks = ALL) -> dict[int, int]:
    rows = (await node.send(message)).rows
    return dict(zip(rows.scaled[:, 0].tolist(), rows.defined.tolist(), strict=True))


async def restarted(store: CountingStore, **settings: int) -> DataService:
    store.reset()
    return DataService(store, SystemClock(), DataSettings(**settings))


# --- requests -------------------------------------------------------------------------------------


async def test_footers_are_read_once_and_kept(node: DataService, store: CountingStore) -> None:
    """Four calls: three pages, and the empty one that ends the listing."""
    assert await defined(node) == dict.fromkeys(range(COUNT), 1)
    assert store.calls == {"list": 4, "get": 1, "get_range": COUNT, "put_if_absent": 1}
    assert store.bytes_out <= MAX_FOOTER * COUNT
    store.reset()
    assert await defined(node) == dict.fromkeys(range(COUNT), 1)
    assert store.calls == {"list": 4}


async def test_a_node_that_starts_reads_the_map(node: DataService, store: CountingStore) -> None:
    await defined(node)
    other = await restarted(store)
    assert await defined(other) == dict.fromkeys(range(COUNT), 1)
    assert store.calls == {"list": 4, "get": 1}
    await other.close()


async def test_only_footers_of_changed_chunks_are_read(node: DataService, store: CountingStore) -> None:
    await defined(node)
    await write(node, [3, 70, 299], 2)
    other = await restarted(store)
    expected = dict.fromkeys(range(COUNT), 1) | dict.fromkeys((3, 70, 299), 2)
    assert await defined(other) == expected
    assert store.calls == {"list": 4, "get": 1, "get_range": 3}, "so few are not worth a put"
    store.reset()
    assert await defined(other) == expected
    assert store.calls == {"list": 4}
    await write(node, range(MIN_NEW_ROWS + 1), 3)
    store.reset()
    assert (await defined(other))[MIN_NEW_ROWS] == 3
    assert store.calls == {"list": 4, "get_range": MIN_NEW_ROWS + 1, "put_if_match": 1}
    await other.close()


async def test_footers_of_chunks_in_memory_are_not_read(node: DataService, store: CountingStore) -> None:
    await write(node, range(COUNT), 2)
    store.reset()
    assert await defined(node) == dict.fromkeys(range(COUNT), 2)
    assert store.calls == {"list": 4, "get": 1, "put_if_absent": 1}
    other = await restarted(store)
    await write(other, [5], 3)
    await write(node, [7], 3)  # it has another state of 5 in memory than the store
    store.reset()
    expected = dict.fromkeys(range(COUNT), 2) | {5: 3, 7: 3}
    assert await defined(node) == expected
    assert store.calls == {"list": 4, "get_range": 1}
    await other.close()


async def test_a_page_in_order_of_keys_lists_no_further(node: DataService, store: CountingStore) -> None:
    page = replace(ALL, limit=10)
    assert len(await defined(node, page)) == 10
    assert store.calls == {"list": 1, "get": 1, "get_range": 10}
    store.reset()
    assert len(await defined(node, replace(page, after=(250,)))) == 10
    assert store.calls == {"list": 1, "get_range": 10}


async def test_a_page_by_coordinates_reads_its_own_footers_only(
    node: DataService, store: CountingStore
) -> None:
    found = await defined(node, replace(ALL, by_coords=True, after=(41,), limit=3))
    assert found == {42: 1, 43: 1, 44: 1}
    assert store.calls == {"list": 4, "get": 1, "get_range": 3}


async def test_counting_and_dense_chunks_read_no_object(node: DataService, store: CountingStore) -> None:
    assert await node.send(CountChunks(SPARSE, EXTENT)) == COUNT
    assert store.calls == {"list": 4}
    dense = replace(DENSE, dataset=DATASET[:-1] + "2")
    await write(node, range(5), 4, dense)
    store.reset()
    page = await node.send(ListChunks(dense, EXTENT))
    assert page.rows.size.tolist() == [16] * 5
    assert store.calls == {"list": 2}


async def test_one_chunk_is_one_range_read(node: DataService, store: CountingStore) -> None:
    found = await node.send(FindChunk(SPARSE, (7,)))
    assert (found.defined.tolist(), store.calls) == ([1], {"get_range": 1})


# --- what is there beside chunks ------------------------------------------------------------------


@pytest.mark.parametrize("name", ["x", "00", "1_1", "300", "99999999999999999999999", "5/6", ".map/v1/other"])
async def test_what_is_no_chunk_of_the_grid_is_passed_over(
    node: DataService, store: CountingStore, name: str
) -> None:
    await store.put(chunk_key(DATASET, (0,))[:-1] + name, b"something")
    assert await node.send(CountChunks(SPARSE, EXTENT)) == COUNT
    assert len(await defined(node)) == COUNT


async def test_a_map_that_is_damaged_is_made_again(
    node: DataService, store: CountingStore, caplog: pytest.LogCaptureFixture
) -> None:
    await defined(node)
    good = (await store.get(MAP)).data
    await store.put(MAP, good[:-1] + b"?")
    other = await restarted(store)
    with caplog.at_level(logging.WARNING):
        assert await defined(other) == dict.fromkeys(range(COUNT), 1)
    assert MAP in caplog.text
    assert store.calls == {"list": 4, "get": 1, "get_range": COUNT, "put_if_match": 1}
    assert (await store.get(MAP)).data == good
    await other.close()


async def test_two_nodes_that_keep_one_map(node: DataService, store: CountingStore) -> None:
    """Each knows what it has read; the second put finds another's map, and what it says is taken then."""
    other = await restarted(store)
    assert len(await defined(other, replace(ALL, limit=5))) == 5
    await defined(node)
    await write(node, range(100), 2)
    assert await defined(other) == dict.fromkeys(range(COUNT), 1) | dict.fromkeys(range(100), 2)
    assert (await defined(node))[99] == 2
    for _ in range(2):
        await defined(other)
    again = await restarted(store)
    assert (await defined(again))[99] == 2
    assert store.calls["get_range"] <= 100
    await again.close()
    await other.close()


async def test_a_put_that_fails_fails_no_query(
    node: DataService, store: CountingStore, faulty: FaultyStore
) -> None:
    faulty.fail_before("put_if_absent", MAP)
    assert len(await defined(node)) == COUNT
    assert store.calls["put_if_absent"] == 1
    await write(node, [0], 2)
    assert (await defined(node))[0] == 2
    assert store.calls["put_if_absent"] == 2
    other = await restarted(store)
    await write(other, [1], 2)
    await other.close()
    faulty.fail_before("get_range")
    with pytest.raises(StoreFailed):
        await defined(node)


async def test_a_corrupt_footer_is_told(node: DataService, store: CountingStore) -> None:
    key = chunk_key(DATASET, (5,))
    await store.put(key, (await store.get(key)).data[:-1] + b"?")
    for message in (ALL, FindChunk(SPARSE, (5,))):
        with pytest.raises(Corrupt, match=key):
            await node.send(message)
    await store.put(key, b"")
    for message in (ALL, FindChunk(SPARSE, (5,))):
        with pytest.raises(Corrupt, match=key):
            await node.send(message)


# --- chunks that change meanwhile -----------------------------------------------------------------


class Stale(StoreWrapper):
    """Lists what was there before: an entry more for a chunk that is gone, an old etag for another."""

    gone = Entry(chunk_key(DATASET, (77,)), 100, "gone", 0.0)
    old = chunk_key(DATASET, (5,))

    async def list(
        self, prefix: str, *, delimiter: bool = False, start_after: str = ""
    ) -> AsyncIterator[Page]:
        async for page in self.store.list(prefix, delimiter=delimiter, start_after=start_after):
            entries = [
                replace(entry, etag="old") if entry.key == self.old else entry for entry in page.entries
            ]
            gone = [self.gone] if self.gone.key > start_after else []
            yield Page(tuple(sorted([*entries, *gone], key=lambda entry: entry.key)))


async def test_rows_are_of_the_state_whose_footer_was_read() -> None:
    store = Stale(MemoryStore())
    node = DataService(store, SystemClock())
    await write(node, range(10))
    page = await node.send(ALL)
    assert page.rows.scaled[:, 0].tolist() == list(range(10))
    assert page.rows.etags[5] == (await store.get(Stale.old)).etag
    empty = await node.send(replace(ALL, limit=1, after=(7,)))
    assert (len(empty.rows), empty.marker) == (0, (77,)), "there is more behind a chunk that is gone"
    assert (await node.send(replace(ALL, limit=1, after=empty.marker))).rows.scaled.tolist() == [[8]]
    await node.close()


async def test_a_map_is_not_put_behind_a_deletion(
    node: DataService, store: CountingStore, faulty: FaultyStore
) -> None:
    held = faulty.hang("put_if_absent", MAP)
    query = asyncio.create_task(defined(node))
    await held.entered.wait()
    bury = asyncio.create_task(node.send(FenceDeleted(DATASET)))
    await asyncio.sleep(0)
    assert not bury.done(), "the deletion waits for the put that is under way"
    held.release()
    await bury
    await node.send(DeleteTree(DATASET))
    with pytest.raises(Gone):
        await query
    assert [page async for page in store.list("db/")] == []


# --- bounds ---------------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches and maps so small that bounds are reached."""
    monkeypatch.setattr(chunk_index, "SORT_BATCH", 20)
    monkeypatch.setattr(chunk_map, "MAX_ROWS", 100)


@pytest.mark.usefixtures("small")
async def test_a_small_batch_and_a_small_map_change_no_answer(
    node: DataService, store: CountingStore
) -> None:
    found: list[int] = []
    while True:
        page = await node.send(replace(ALL, by_coords=True, limit=37, after=(found[-1],) if found else ()))
        found += page.rows.scaled[:, 0].tolist()
        assert set(page.rows.defined.tolist()) == {1}
        if not page.marker:
            break
    assert found == list(range(COUNT))
    skipped = await node.send(replace(ALL, by_coords=True, limit=1, skip=250))
    assert skipped.rows.scaled.tolist() == [[250]]
    await defined(node)
    store.reset()
    await defined(node)
    assert store.calls["get_range"] == COUNT - 100


async def test_a_cache_of_no_room_changes_no_answer(node: DataService, store: CountingStore) -> None:
    other = await restarted(store, cache_size=1)
    for _ in range(2):
        assert await defined(other) == dict.fromkeys(range(COUNT), 1)
    assert store.calls["get_range"] == COUNT
    await other.close()


# --- every store ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["memory", "posix", "s3"])
async def test_etags_of_listings_are_those_of_reads(make_store: MakeStore, kind: str) -> None:
    """What a map knows is found again in the listing of any store, and what was changed is not."""
    store = CountingStore(await make_store(kind, 40))
    node = DataService(store, SystemClock())
    await write(node, range(100))
    expected = dict.fromkeys(range(100), 1)
    assert await defined(node) == expected
    await write(node, [7], 2)
    other = await restarted(store)
    assert await defined(other) == expected | {7: 2}
    assert store.calls["get_range"] == 1
    assert (await other.send(FindChunk(SPARSE, (7,)))).etags == (
        (await store.get(chunk_key(DATASET, (7,)))).etag,
    )
    await other.close()
