from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.clock import SystemClock
from hsparse.dn.traced_store import DOUBT_SECONDS, MAX_CHANGED, ChunkVersions, TracedStore
from hsparse.errors import PreconditionFailed, StoreFailed
from hsparse.format.chunk_spec import chunk_key
from hsparse.model.stripes import Stripes
from tests.testing.faulty_store import FaultyStore
from tests.testing.manual_clock import ManualClock
from tests.testing.memory_store import MemoryStore

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
