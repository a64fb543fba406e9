"""Objects of chunks: opened behind fences, in versions, written by clients, and the guess whether one is new."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.clock import SystemClock
from hsparse.concurrency.memory_budget import MemoryBudget
from hsparse.dn.cache import Cache
from hsparse.dn.cached_object import Base
from hsparse.dn.chunks import MAX_DATASETS, NEW_CHUNKS_STREAK, ChunkObjects, NewChunkStreaks
from hsparse.dn.fences import Fences
from hsparse.dn.records import HsdsSummaries
from hsparse.dn.redo_log import RedoLog
from hsparse.dn.service import DataService
from hsparse.dn.traced_store import DOUBT_SECONDS, MAX_CHANGED, ChunkVersions, TracedStore
from hsparse.errors import BadRequest, Corrupt, Gone, Moved, PreconditionFailed, StoreFailed
from hsparse.format.chunk_spec import ChunkSpec, chunk_key
from hsparse.format.filters.definition import Filter
from hsparse.format.kinds.registry import kind_of
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.format.selections.points import Orthogonal
from hsparse.model.stripes import Stripes
from hsparse.wire.chunk_info_message import ReadDirect, WriteDirect
from hsparse.wire.chunk_message import FenceDeleted, ReadChunks, WriteChunks
from tests.testing.faulty_store import FaultyStore
from tests.testing.manual_clock import ManualClock
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore

ITEM = {"class": "H5T_INTEGER", "base": "H5T_STD_I32LE"}
SPEC = ChunkSpec("d-3c448a8a-6c0b2447-9594-1269a1-049963", ITEM, (10,), False, b"", ((),))


@pytest.fixture
def cache() -> Cache:
    return Cache(1 << 20)


@pytest.fixture
def chunks(store: CountingStore, cache: Cache) -> ChunkObjects:
    async def generation(_: str) -> int:
        return 3

    fences, log = Fences(generation), RedoLog(ManualClock())
    summaries, memory = HsdsSummaries(store), MemoryBudget(1 << 20)
    return ChunkObjects(store, cache, fences, summaries, redo_log=log, memory=memory)


async def write(chunks: ChunkObjects, spec: ChunkSpec) -> None:
    value = np.arange(10, dtype="<i4")
    await chunks.apply(kind_of(spec), (0,), lambda _: (value, None), 40, Base.IGNORED, None)


async def test_what_was_planned_before_a_shrink_is_refused_once_that_is_learnt(chunks: ChunkObjects) -> None:
    await chunks.begin(SPEC)
    with pytest.raises(Moved):
        chunks.fences.check(SPEC)
    with pytest.raises(Moved):
        await write(chunks, SPEC)
    await write(chunks, replace(SPEC, generation=3))


async def test_a_buried_dataset_is_settled_and_forgotten(chunks: ChunkObjects, cache: Cache) -> None:
    await write(chunks, SPEC)
    assert len(cache) == 1
    await chunks.fence_deleted(SPEC.dataset)
    assert len(cache) == 0
    with pytest.raises(Gone):
        await write(chunks, SPEC)


ONE, OTHER, THIRD = (f"d-0123456{i}-89abcdef-0123-456789-abcdef" for i in range(3))


@pytest.mark.parametrize("stripes", [None, Stripes(7)])
def test_a_change_is_one_of_its_dataset_alone(stripes: Stripes | None) -> None:
    versions = ChunkVersions(SystemClock())
    one, other = versions.of(ONE), versions.of(OTHER)
    versions.note([chunk_key(ONE, (3, 4), stripes)])
    assert versions.of(ONE) != one
    assert versions.of(OTHER) == other


def test_runs_have_no_version_in_common() -> None:
    assert ChunkVersions(SystemClock()).of(ONE) != ChunkVersions(SystemClock()).of(ONE)


def test_no_change_of_a_forgotten_dataset_is_missed() -> None:
    versions = ChunkVersions(ManualClock(), limit=2)
    versions.note([chunk_key(ONE, (0,))])
    seen = {versions.of(ONE)}
    for dataset in (OTHER, THIRD, ONE, OTHER, THIRD):
        versions.note([chunk_key(dataset, (0,))])
        if dataset == ONE:
            assert versions.of(ONE) not in seen
        seen.add(versions.of(ONE))
    assert versions.of(ONE) == versions.of("d-99999999-89abcdef-0123-456789-abcdef")


async def test_a_store_notes_what_may_have_changed() -> None:
    versions = ChunkVersions(SystemClock())
    store = TracedStore(MemoryStore(), versions=versions)
    key = chunk_key(ONE, (0, 0))
    seen = [versions.of(ONE)]
    etag = await store.put_if_absent(key, b"1")
    seen.append(versions.of(ONE))
    for change in (
        lambda: store.put_if_match(key, b"2", etag),
        lambda: store.put_if_absent(key, b"3"),
        lambda: store.put(key, b"4"),
        lambda: store.delete(key),
        lambda: store.put(key, b"5"),
    ):
        with suppress(PreconditionFailed):  # of the second one
            await change()
        seen.append(versions.of(ONE))
    [page] = [page async for page in store.list("")]
    assert await store.delete_all(page.entries) == [True]
    seen.append(versions.of(ONE))
    assert len(set(seen)) == len(seen)
    assert not [page async for page in store.list("")]
    assert versions.of(ONE) == seen[-1]


def test_versions_that_begin_again_are_new() -> None:
    versions = ChunkVersions(SystemClock())
    seen = versions.of(ONE)
    versions.reset()
    assert versions.of(ONE) != seen
    assert versions.of(ONE) == versions.of(ONE)


async def test_no_version_stands_while_a_change_may_still_be_carried_out() -> None:
    clock = ManualClock()
    versions = ChunkVersions(clock)
    faulty = FaultyStore(MemoryStore())
    store = TracedStore(faulty, versions=versions)
    other = versions.of(OTHER)
    with pytest.raises(PreconditionFailed):
        await store.put_if_match(chunk_key(ONE, (0,)), b"1", "none")
    assert versions.of(ONE) == versions.of(ONE)
    faulty.fail_before("put")
    with pytest.raises(StoreFailed):
        await store.put(chunk_key(ONE, (0,)), b"1")
    assert (len({versions.of(ONE) for _ in range(5)}), versions.of(OTHER)) == (5, other)
    clock.time += DOUBT_SECONDS + 1
    assert versions.of(ONE) == versions.of(ONE)


KEYS = [chunk_key(ONE, (number,)) for number in range(4)]
STEPS = st.lists(st.sampled_from([*range(4), "delete", "reset", "ask", "flood"]), max_size=40)


@given(STEPS)
def test_keys_that_were_put_since_a_version_are_told_or_unknown(steps: list[int | str]) -> None:
    versions = ChunkVersions(SystemClock())
    asked: list[tuple[str, set[str] | None]] = []
    for step in steps:
        if isinstance(step, int):
            versions.note([KEYS[step]])
            put = {KEYS[step]}
        elif step == "delete":
            versions.note([KEYS[0]])
            versions.unwatch([KEYS[0]])
            put = None
        elif step == "reset":
            versions.reset()
            put = None
        elif step == "flood":
            versions.note(chunk_key(ONE, (9, number)) for number in range(MAX_CHANGED + 1))
            put = None
        else:
            for version, since in asked:
                told = versions.changed(ONE, ["other-7", version])
                assert (None if told is None else set(told)) == since
            asked.append((versions.of(ONE), set()))
            versions.changed(ONE, [])
            continue
        asked = [(version, None if since is None or put is None else since | put) for version, since in asked]


async def test_keys_are_unknown_while_a_change_may_still_be_carried_out() -> None:
    clock = ManualClock()
    versions = ChunkVersions(clock)
    faulty = FaultyStore(MemoryStore())
    store = TracedStore(faulty, versions=versions)
    versions.changed(ONE, [])
    seen = versions.of(ONE)
    faulty.fail_before("put")
    with pytest.raises(StoreFailed):
        await store.put(KEYS[0], b"1")
    assert versions.changed(ONE, [seen]) is None
    clock.time += DOUBT_SECONDS + 1
    seen = versions.of(ONE)
    await store.put(KEYS[1], b"1")
    assert versions.changed(ONE, [seen]) == (KEYS[1],)
    await store.delete(KEYS[1])
    assert versions.changed(ONE, [seen]) is None


DATASET = "d-00000000-00000001-0000-000000-000001"
DIMS, EXTENT = (6,), (600,)
SPARSE = ChunkSpec(DATASET, "H5T_STD_I32LE", DIMS, True, b"", ((), (Filter(1, (4,)),)))
DENSE = ChunkSpec(DATASET, "H5T_STD_I32LE", DIMS, False, b"", ((Filter(1, (4,)),),))
WHOLE = Orthogonal.all(DIMS)
KEY = chunk_key(DATASET, (3,))


@pytest.fixture
async def node(store: CountingStore) -> AsyncIterator[DataService]:
    service = DataService(store, SystemClock())
    yield service
    await service.close()


async def direct_write(node: DataService, spec: ChunkSpec, value: int, scaled: int = 3) -> None:
    await node.send(
        WriteChunks(spec, (ChunkSelection((scaled,), WHOLE, True),), (np.full(DIMS, value, "<i4"),))
    )


async def read(node: DataService, spec: ChunkSpec) -> list[int]:
    (values,) = await node.send(ReadChunks(spec, (ChunkSelection((3,), WHOLE),)))
    assert values is not None
    found: list[int] = values.tolist()
    return found


async def direct_given(node: DataService, spec: ChunkSpec, value: int) -> WriteDirect:
    """Return the message that stores a chunk of `value`, as this node would have stored it."""
    await direct_write(node, spec, value, scaled=50)
    found = await node.send(ReadDirect(spec, (50,)))
    assert found is not None
    table = found.row.sections[0] if spec.sparse else np.array([[len(found.data), 0, 0]], np.uint64)
    return WriteDirect(spec, EXTENT, (3,), found.data, table)


BOTH = pytest.mark.parametrize("spec", [SPARSE, DENSE], ids=["sparse", "dense"])


@BOTH
async def test_reads_see_what_was_written_and_later_writes_build_on_it(
    node: DataService, store: CountingStore, spec: ChunkSpec
) -> None:
    await direct_write(node, spec, 1)
    message = await direct_given(node, spec, 8)
    store.reset()
    await node.send(message)
    assert store.calls == {"put_if_match": 1}
    assert (await store.store.get(KEY)).data.startswith(message.data.tobytes())
    store.reset()
    assert await read(node, spec) == [8] * 6
    assert store.calls == {}
    part = ChunkSelection((3,), Orthogonal.box(DIMS, (2,), (4,)))
    await node.send(WriteChunks(spec, (part,), (np.array([5, 6], "<i4"),)))
    assert await read(node, spec) == [8, 8, 5, 6, 8, 8]
    again = DataService(store, SystemClock())
    assert await read(again, spec) == [8, 8, 5, 6, 8, 8]
    await again.close()


@BOTH
async def test_two_nodes_write_one_chunk(node: DataService, store: CountingStore, spec: ChunkSpec) -> None:
    """The second's etag is an old one: its put is refused, and made again over what is there."""
    other = DataService(store, SystemClock())
    message = await direct_given(node, spec, 8)
    await direct_write(other, spec, 1)
    await node.send(message)
    await other.send(message)
    assert (await store.store.get(KEY)).data.startswith(message.data.tobytes())
    await direct_write(node, spec, 2)
    assert await read(node, spec) == [2] * 6
    await other.send(message)
    again = DataService(store, SystemClock())
    assert await read(again, spec) == [8] * 6
    await again.close()
    await other.close()


@BOTH
async def test_direct_and_other_writes_share_a_put(
    node: DataService, store: CountingStore, faulty: FaultyStore, spec: ChunkSpec
) -> None:
    message = await direct_given(node, spec, 8)
    store.reset()
    hang = faulty.hang("puts", KEY)
    first = await hang.holding(direct_write(node, spec, 1))
    part = ChunkSelection((3,), Orthogonal.box(DIMS, (0,), (1,)))
    direct = asyncio.create_task(node.send(message))
    await asyncio.sleep(0)
    later = asyncio.create_task(node.send(WriteChunks(spec, (part,), (np.array([7], "<i4"),))))
    await asyncio.sleep(0)
    hang.release()
    await asyncio.gather(first, direct, later)
    assert store.puts == 2
    assert await read(node, spec) == [7, 8, 8, 8, 8, 8]


@BOTH
async def test_a_refusal_changes_nothing(node: DataService, store: CountingStore, spec: ChunkSpec) -> None:
    message = await direct_given(node, spec, 8)
    await direct_write(node, spec, 1)
    store.reset()
    bad = [message.data[:-1], message.data ^ np.uint8(1)]
    if spec.sparse:  # what follows a deflate stream is nothing to deflate, nor to HDF5
        bad.append(np.append(message.data, np.uint8(0)))
    for data in bad:
        with pytest.raises(BadRequest):
            await node.send(WriteDirect(spec, EXTENT, (3,), data, message.sections))
    assert store.calls == {}
    assert await read(node, spec) == [1] * 6


async def test_a_corrupt_structured_chunk_is_not_served(node: DataService, store: CountingStore) -> None:
    await direct_write(node, SPARSE, 1)
    data = bytearray((await store.get(KEY)).data)
    data[70] ^= 1
    await store.put(KEY, data)
    with pytest.raises(Corrupt, match=KEY):
        await node.send(ReadDirect(SPARSE, (3,)))


@BOTH
async def test_a_deleted_dataset_takes_none(node: DataService, store: CountingStore, spec: ChunkSpec) -> None:
    message = await direct_given(node, spec, 8)
    await node.send(FenceDeleted(DATASET))
    store.reset()
    with pytest.raises(Gone):
        await node.send(message)
    assert store.puts == 0


def test_a_streak_of_new_chunks_lets_expect_more_until_one_was_there() -> None:
    new = NewChunkStreaks()
    for number in range(NEW_CHUNKS_STREAK + 3):
        assert new.expects("d-1") == (number >= NEW_CHUNKS_STREAK)
        new.note("d-1", True)
    assert not new.expects("d-2")
    new.note("d-1", False)
    assert not new.expects("d-1")


def test_datasets_that_were_not_written_to_for_long_are_forgotten() -> None:
    new = NewChunkStreaks()
    for _ in range(NEW_CHUNKS_STREAK):
        new.note("old", True)
    for number in range(MAX_DATASETS - 1):
        new.note(f"d-{number}", True)
    assert new.expects("old")
    new.note("one more", True)
    assert not new.expects("old")
