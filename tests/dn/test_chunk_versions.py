from __future__ import annotations

import pytest

from hsparse.clock import ManualClock, SystemClock
from hsparse.dn.traced_store import DOUBT, ChunkVersions, TracedStore
from hsparse.errors import PreconditionFailed, StoreFailed
from hsparse.format.chunk_spec import chunk_key
from hsparse.model.stripes import Stripes
from hsparse.testing.faulty_store import FaultyStore
from hsparse.testing.memory_store import MemoryStore

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
    etag = await store.put_if_match(key, b"2", etag)
    seen.append(versions.of(ONE))
    with pytest.raises(PreconditionFailed):
        await store.put_if_absent(key, b"3")
    seen.append(versions.of(ONE))
    await store.put(key, b"4")
    seen.append(versions.of(ONE))
    await store.delete(key)
    seen.append(versions.of(ONE))
    await store.put(key, b"5")
    [page] = [page async for page in store.list("")]
    seen.append(versions.of(ONE))
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
    assert len({versions.of(ONE) for _ in range(5)}) == 5
    assert versions.of(OTHER) == other
    clock.time += DOUBT + 1
    assert versions.of(ONE) == versions.of(ONE)
