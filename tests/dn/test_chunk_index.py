"""Chunk queries of a data node: what they ask of the store, and what a chunk map or a listing can make wrong."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.clock import SystemClock
from hsparse.dn import chunk_index
from hsparse.dn.chunk_index import MIN_NEW_ROWS, CachedChunkMap, listed_chunks
from hsparse.dn.data_settings import DataSettings
from hsparse.dn.service import DataService
from hsparse.errors import Corrupt, Gone, StoreFailed
from hsparse.format import chunk_map
from hsparse.format.chunk_map import ChunkMap, decode_map
from hsparse.format.chunk_spec import ChunkSpec, chunk_key
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.format.plan.grid import Grid
from hsparse.format.selections.points import Orthogonal
from hsparse.format.structured.container import MAX_FOOTER
from hsparse.model.ids import chunk_prefix, map_key, storage_key
from hsparse.model.stripes import Stripes
from hsparse.storage.object_store import Entry, Page
from hsparse.wire.chunk_info_message import CountChunks, FindChunk, GetChunkVersion, ListChunks
from hsparse.wire.chunk_message import EraseChunks, FenceDeleted, WriteChunks
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


async def test_footers_of_cached_chunks_are_not_read(node: DataService, store: CountingStore) -> None:
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
    assert (found, store.calls) == ({42: 1, 43: 1, 44: 1}, {"list": 4, "get": 1, "get_range": 3})


async def test_counting_and_dense_chunks_read_no_object(node: DataService, store: CountingStore) -> None:
    assert await node.send(CountChunks(SPARSE, EXTENT)) == COUNT
    assert store.calls == {"list": 4}
    dense = replace(DENSE, dataset=DATASET[:-1] + "2")
    await write(node, range(5), 4, dense)
    store.reset()
    assert (await node.send(ListChunks(dense, EXTENT))).rows.size.tolist() == [16] * 5
    assert store.calls == {"list": 2}


async def test_one_chunk_is_one_range_read(node: DataService, store: CountingStore) -> None:
    found = await node.send(FindChunk(SPARSE, (7,)))
    assert (found.defined.tolist(), store.calls) == ([1], {"get_range": 1})


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
    query = await held.holding(defined(node))
    bury = asyncio.create_task(node.send(FenceDeleted(DATASET)))
    await asyncio.sleep(0)
    assert not bury.done(), "the deletion waits for the put that is under way"
    held.release()
    await bury
    await node.send(DeleteTree(DATASET))
    with pytest.raises(Gone):
        await query
    assert [page async for page in store.list("db/")] == []


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


async def test_a_failed_put_is_repeated(
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


PREFIX = chunk_prefix(DATASET)
GRID = Grid((120, 30), (10, 10))
PLAIN = ChunkSpec(DATASET, "H5T_STD_I32LE", (10, 10), False, b"", ((),))
STRIPED = replace(PLAIN, stripes=Stripes(3))
SIGNED = replace(PLAIN, base=(-3, -1))
NAMES = {
    spec: {spec.key(scaled).removeprefix(PREFIX): scaled for scaled in itertools.product(range(14), range(5))}
    for spec in (PLAIN, STRIPED, SIGNED)
}
OTHERS = ["x", "1", "1_2_3", "01_2", "1_02", "-1_2", "1_2x", "1_", "_", "9" * 30 + "_0", "1_2/3", "²_1"]
OTHERS += [
    ".stripe/3/0_0",
    ".stripe/1/0_1",
    ".stripe/1_2/3",
    ".stripe/1/00_0",
    ".stripe/x",
    ".stripe/2/1/0_1",
]


async def filled(names: set[str], page_size: int) -> MemoryStore:
    store = MemoryStore(page_size=page_size)
    for key in (storage_key(DATASET), map_key(DATASET), PREFIX[:-1] + "2/0_0"):
        await store.put(key, b"{}")
    for name in names:
        await store.put(PREFIX + name, name.encode())
    return store


@pytest.mark.parametrize("spec", [PLAIN, STRIPED, SIGNED], ids=["plain", "striped", "signed"])
@given(
    names=st.sets(st.sampled_from([*NAMES[PLAIN], *NAMES[STRIPED], *NAMES[SIGNED], *OTHERS])),
    page_size=st.integers(1, 9),
    after=st.one_of(st.none(), st.tuples(st.integers(0, 11), st.integers(0, 2))),
)
async def test_chunks_of_the_grid_come_in_order_of_keys_behind_the_marker(
    spec: ChunkSpec, names: set[str], page_size: int, after: tuple[int, int] | None
) -> None:
    store = await filled(names, page_size)
    expected = sorted(name for name in names if GRID.holds(NAMES[spec].get(name, (99, 99))))
    if after is not None:
        expected = [name for name in expected if PREFIX + name > spec.key(after)]
    found = []
    async for rows in listed_chunks(store, spec, GRID, None, after or ()):
        assert 0 < len(rows) <= page_size
        for scaled, size, etag in zip(rows.scaled.tolist(), rows.size.tolist(), rows.etags, strict=True):
            stored = await store.get(spec.key(scaled))
            assert (size, etag) == (stored.size, stored.etag)
            found.append(spec.key(scaled).removeprefix(PREFIX))
    assert found == expected


async def test_a_selection_chooses() -> None:
    store = await filled({*NAMES[PLAIN]}, 7)
    box = Orthogonal.box(GRID.extent, (15, 12), (31, 19))
    found = [
        tuple(scaled)
        async for rows in listed_chunks(store, PLAIN, GRID, box)
        for scaled in rows.scaled.tolist()
    ]
    assert found == [(1, 1), (2, 1), (3, 1)]


async def test_the_chunk_of_a_scalar() -> None:
    store = await filled({"0", "1"}, 5)
    (rows,) = [rows async for rows in listed_chunks(store, replace(PLAIN, dims=()), Grid((), ()), None)]
    assert (rows.scaled.shape, rows.scaled.dtype) == ((1, 0), np.uint64)


LISTING = {"list": 4}
"""Three pages, and the empty one that ends the listing."""


@pytest.fixture
async def warm(store: CountingStore) -> AsyncIterator[DataService]:
    service = DataService(store, SystemClock())
    await write(service, range(COUNT))
    store.reset()
    yield service
    await service.close()


async def version(warm: DataService) -> str:
    return await warm.send(GetChunkVersion(DATASET))


async def count(warm: DataService, extent: tuple[int, ...] = EXTENT) -> int:
    return await warm.send(CountChunks(SPARSE, extent, version=await version(warm)))


async def listed(warm: DataService, message: ListChunks) -> list[int]:
    """Return the chunks of all pages, which name one version."""
    message = replace(message, version=await version(warm))
    found: list[int] = []
    while True:
        page = await warm.send(message)
        found += page.rows.scaled[:, 0].tolist()
        if not page.marker:
            return found
        message = replace(message, after=page.marker)


async def test_chunks_are_listed_once_in_a_version(warm: DataService, store: CountingStore) -> None:
    assert [await count(warm) for _ in range(3)] == [COUNT] * 3
    assert store.calls == LISTING
    in_order = sorted(range(COUNT), key=str)
    assert await listed(warm, ListChunks(SPARSE, EXTENT, limit=70)) == in_order
    assert await listed(warm, ListChunks(SPARSE, EXTENT, by_coords=True, limit=70)) == list(range(COUNT))
    box = Orthogonal.box(EXTENT, (17,), (1000,))
    chosen = [number for number in in_order if 4 <= number < 250]
    assert await listed(warm, ListChunks(SPARSE, EXTENT, box, limit=70)) == chosen
    assert store.calls["list"] == 4


async def test_a_change_is_seen(warm: DataService) -> None:
    extent = (4 * (COUNT + 7),)
    assert await count(warm, extent) == COUNT
    await write(warm, [COUNT + 5])
    assert await count(warm, extent) == COUNT + 1
    assert await count(warm) == COUNT, "the last chunk is outside"
    whole = ChunkSelection((3,), Orthogonal.all(DIMS))
    await warm.send(EraseChunks(SPARSE, (whole,)))
    found = await listed(warm, ListChunks(SPARSE, extent, limit=1000))
    assert COUNT + 5 in found


async def test_who_asks_at_once_shares_a_listing(warm: DataService, store: CountingStore) -> None:
    assert await asyncio.gather(*(count(warm) for _ in range(10))) == [COUNT] * 10
    assert store.calls == LISTING


async def test_a_page_goes_on_after_what_is_remembered_was_replaced(
    warm: DataService, store: CountingStore
) -> None:
    """It lists behind its marker, and does not list all again."""
    message = ListChunks(SPARSE, EXTENT, limit=100, version=await version(warm))
    first = await warm.send(message)
    await write(warm, [7], 2)
    assert await count(warm) == COUNT
    store.reset()
    second = await warm.send(replace(message, after=first.marker))
    assert (len(second.rows), store.calls["list"]) == (100, 2)
    assert not set(first.rows.scaled[:, 0].tolist()) & set(second.rows.scaled[:, 0].tolist())


async def test_too_many_chunks_are_not_remembered(
    warm: DataService, store: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunk_index, "MAX_REMEMBERED", COUNT - 1)
    assert [await count(warm) for _ in range(2)] == [COUNT] * 2
    assert store.calls["list"] > 8
    assert store.calls["list"] == 3 + 4 + 4, "only the first one is listed to be remembered"
    small = DataService(store, SystemClock(), DataSettings(cache_size=1000))
    assert await count(small) == COUNT
    assert small.counters()["cached_bytes"] < 1000
    await small.close()


async def test_a_listing_that_fails_is_tried_again(warm: DataService, faulty: FaultyStore) -> None:
    faulty.fail_before("list", times=1)
    with pytest.raises(StoreFailed):
        await count(warm)
    assert await count(warm) == COUNT


async def test_who_leaves_does_not_end_the_listing_of_others(
    warm: DataService, store: CountingStore, faulty: FaultyStore
) -> None:
    held = faulty.hang("list")
    leaves = await held.holding(count(warm))
    stays = asyncio.create_task(count(warm))
    leaves.cancel()
    await asyncio.wait([leaves])
    held.release()
    assert await stays == COUNT
    assert store.calls == LISTING


async def test_rows_are_of_the_named_state_or_newer(warm: DataService, faulty: FaultyStore) -> None:
    """A change during a listing has another version."""
    held = faulty.hang("list")
    during = await held.holding(count(warm, (4 * (COUNT + 7),)))
    await write(warm, [COUNT + 5])
    after = asyncio.create_task(count(warm, (4 * (COUNT + 7),)))
    held.release()
    assert await during in (COUNT, COUNT + 1)
    assert await after == COUNT + 1
    assert np.isin(COUNT + 5, await listed(warm, ListChunks(SPARSE, (4 * (COUNT + 7),), limit=1000)))
