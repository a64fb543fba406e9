"""A store with chunks in other buckets: as any store, and against a dict with keys in all places."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.concurrency.request_trace import RequestTrace, begin_trace, end_trace
from hsparse.dn.sweep import Sweep, Waste
from hsparse.errors import Misconfigured, NotFound, PreconditionFailed, StoreFailed
from hsparse.model.stripes import Stripes, placed_key, unplaced_key
from hsparse.storage.object_store import Entry, ObjectStore
from hsparse.storage.s3.s3_store import S3Store
from hsparse.stripes.joining import joined
from tests.testing.manual_clock import ManualClock
from tests.testing.memory_store import MemoryStore
from tests.testing.store_conformance import *  # noqa: F403
from tests.testing.store_conformance import PAGE_SIZE, listed_keys
from tests.testing.store_wrapper import CountingStore, SlowStore

DATASET = "db/0123abcd-0123abcd/d/0123-abcdef-abcdef/"
OTHER = "db/0123abcd-0123abcd/d/1123-abcdef-abcdef/"
PLACES = ("b", "c/deep/7", "b", "home")
STRIPES = Stripes.of(PLACES)
RECORD = b'{"layout":{"class":"H5D_CHUNKED_STRIPED","stripes":["b","c/deep/7","b","home"],"layout":{}}}'


@pytest.fixture
def store() -> ObjectStore:
    return buckets()[0]


def buckets(page_size: int = PAGE_SIZE) -> list[ObjectStore]:
    return joined([MemoryStore(name, page_size=page_size) for name in ("home", "b", "c")])


def chunk(*scaled: int, dataset: str = DATASET) -> str:
    assert STRIPES is not None
    return f"{dataset}{STRIPES.folder(scaled)}{'_'.join(map(str, scaled))}"


async def make(store: ObjectStore, *datasets: str) -> None:
    for dataset in datasets or (DATASET,):
        await store.put_if_absent(f"{dataset}.dataset.json", RECORD)


async def chunk_keys(store: ObjectStore, prefix: str = DATASET, after: str = "") -> list[str]:
    found = [entry.key for entry in (await listed_keys(store, prefix, start_after=after))[0]]
    return [key for key in found if not key.endswith(("~", ".json"))]


async def test_each_chunk_is_in_its_place_alone() -> None:
    stores = [CountingStore(MemoryStore(name)) for name in ("home", "b", "c")]
    home = joined(stores)[0]
    await make(home)
    keys = [chunk(i, j) for i in range(6) for j in range(6)]
    for one in stores:
        one.reset()
    for key in keys:
        etag = await home.put_if_absent(key, key.encode())
        assert (await home.get(key)).etag == etag
        with pytest.raises(PreconditionFailed):
            await home.put_if_absent(key, b"")
        bucket, at = placed_key("home", key)
        assert unplaced_key(bucket, at) == key
        there = {one.name: one for one in stores}[bucket]
        assert (await there.get(at)).data == key.encode() == (await home.get_range(key, 0)).data
    assert sum((one.calls for one in stores), Counter()) == {
        "put_if_absent": 2 * len(keys),
        "get": 2 * len(keys),  # one of them of the place itself
        "get_range": len(keys),
    }
    assert {placed_key("home", key)[0] for key in keys} == {"home", "b", "c"}
    assert at.startswith("db/.stripes/home/0123abcd-0123abcd/d/0123-abcdef-abcdef/")
    inside = [entry.key async for page in stores[2].list("") for entry in page.entries]
    assert {key.partition("db/")[0] for key in inside} == {"deep/7/"}
    assert await chunk_keys(home) == sorted(keys)
    assert await chunk_keys(home, f"{DATASET}.stripe/2/") == sorted(
        key for key in keys if "/.stripe/2/" in key
    )


@given(st.integers(0, 2**32), st.integers(1, 5))
async def test_it_agrees_with_a_dict(seed: int, page_size: int) -> None:
    random, model = Random(seed), dict[str, tuple[bytes, str]]()
    store = buckets(page_size)[0]
    datasets = (DATASET, OTHER)
    await make(store, *datasets)
    plain = [
        f"{DATASET}.map/v1/rows",
        "db/0123abcd-0123abcd/d/0923-abcdef-abcdef/0_0",
        f"db/0123abcd-0123abcd/.history/v1/0123/d/{chunk(1, 1)[23:]}/00001",
        f"{OTHER}.record/v1/a.json",
    ]
    keys = [*plain, *(chunk(i, j, dataset=one) for one in datasets for i in range(5) for j in range(5))]
    for _ in range(40):
        key = random.choice(keys)
        data = random.randbytes(4)
        known = model.get(key)
        match random.randrange(6):
            case 0:
                model[key] = data, await store.put(key, data)
            case 1 if known is not None:
                model[key] = data, await store.put_if_match(key, data, known[1])
            case 1:
                model[key] = data, await store.put_if_absent(key, data)
            case 2:
                await store.delete(key)
                model.pop(key, None)
            case 3:
                some = random.sample(keys, 6)
                stale = {one: random.random() < 0.3 for one in some}
                entries = [
                    Entry(one, 0, "0-0-0" if stale[one] or one not in model else model[one][1], 0.0)
                    for one in some
                ]
                done = await store.delete_all(entries)
                assert done == [one not in model or not stale[one] for one in some]
                for one, gone in zip(some, done, strict=True):
                    if gone:
                        model.pop(one, None)
            case _:
                prefix = random.choice(
                    ("db/", "db/0123abcd-0123abcd/", DATASET, OTHER, f"{DATASET}.stripe/1/")
                )
                after = random.choice(
                    ("", random.choice(keys), f"{random.choice(keys)}x", f"{DATASET}.map/~")
                )
                found = [
                    entry
                    for entry in (await listed_keys(store, prefix, start_after=after))[0]
                    if not entry.key.endswith((".dataset.json", "~")) and "/.stripe" not in entry.key[:12]
                ]
                assert [(entry.key, entry.etag) for entry in found] == [
                    (one, model[one][1]) for one in sorted(model) if one.startswith(prefix) and one > after
                ]
        for one in (key, random.choice(keys)):
            if one in model:
                assert (await store.get(one)).data == model[one][0]
            else:
                with pytest.raises(NotFound):
                    await store.get(one)


async def test_what_is_listed_is_deleted_from_all_places_the_markers_last() -> None:
    stores = [CountingStore(MemoryStore(name, page_size=3)) for name in ("home", "b", "c")]
    home = joined(stores)[0]
    await make(home, DATASET, OTHER)
    for i in range(9):
        await home.put(chunk(i), b"chunk")
    await home.put(chunk(1, dataset=OTHER), b"other")
    keys = [entry.key for entry in (await listed_keys(home, DATASET))[0]]
    assert keys == sorted(keys)
    assert keys[-3:] == [f"{DATASET}.stripe/~/{place}/~" for place in ("b", "c/deep/7", "home")]
    async for page in home.list(DATASET):
        markers = [entry for entry in page.entries if entry.key.endswith("~")]
        assert len(markers) in (0, len(page.entries))
        assert all(await home.delete_all(page.entries))
    left = [entry.key for one in stores async for page in one.list("") for entry in page.entries]
    _, at = placed_key("home", chunk(1, dataset=OTHER))
    assert [key for key in left if not key.startswith((OTHER, "db/.stripe-places/"))] == [at]


async def test_a_listing_asks_other_buckets_only_where_a_dataset_has_chunks_there() -> None:
    stores = [CountingStore(MemoryStore(name)) for name in ("home", "b", "c")]
    home = joined(stores)[0]
    await home.put(f"{DATASET}0_0", b"chunk")
    await listed_keys(home, DATASET)
    await home.get(f"{DATASET}0_0")
    assert not stores[1].calls
    assert not stores[2].calls
    await make(home, OTHER)
    stores[1].reset()
    await listed_keys(home, DATASET)
    assert not stores[1].calls
    await listed_keys(home, OTHER)
    assert stores[1].calls["list"] == stores[2].calls["list"] == 1


async def test_a_bucket_that_is_not_served_is_named() -> None:
    home = joined([MemoryStore("home"), MemoryStore("b")])[0]
    await make(home)
    lost = next(key for key in (chunk(i) for i in range(4)) if "c/deep" in key)
    marker = next(
        entry
        for entry in (await listed_keys(home._store, DATASET))[0]
        if "c/deep" in entry.key  # type: ignore[attr-defined]
    )
    for call in (home.get(lost), home.put(lost, b""), home.delete_all([marker]), listed_keys(home, DATASET)):
        with pytest.raises(Misconfigured, match="bucket 'c', which is not served here"):
            await call


async def test_a_bucket_that_does_not_answer_is_named_within_the_time_of_the_request() -> None:
    async def never(method: str, key: str) -> None:
        await asyncio.Event().wait()

    stores = [MemoryStore("home"), MemoryStore("b"), MemoryStore("c")]
    home = joined([stores[0], SlowStore(stores[1], never), stores[2]])[0]
    await make(home)
    keys = [chunk(i) for i in range(4)]
    trace = RequestTrace("hurry")
    trace.deadline = asyncio.get_running_loop().time() + 0.2
    token = begin_trace(trace)
    try:
        for key in keys:
            if placed_key("home", key)[0] != "b":
                await home.put(key, b"chunk")
                assert (await home.get(key)).data == b"chunk"
                continue
            for call in (home.get(key), home.put_if_absent(key, b""), listed_keys(home, DATASET)):
                with pytest.raises(StoreFailed, match="bucket 'b' gave no answer"):
                    await call
    finally:
        end_trace(token)


async def test_a_server_that_is_stopped_is_named_within_the_time_of_the_request() -> None:
    options = {"endpoint": "http://127.0.0.1:1", "region": "us-east-1", "access_key": "a", "secret_key": "b"}
    trace = RequestTrace("hurry")
    trace.deadline = asyncio.get_running_loop().time() + 0.2
    async with S3Store("b", **options) as stopped:
        home = joined([MemoryStore("home"), stopped])[0]
        key = next(key for key in (chunk(i) for i in range(4)) if "/b/" in key)
        token = begin_trace(trace)
        try:
            with pytest.raises(StoreFailed, match="bucket 'b' gave no answer"):
                await home.get(key)
        finally:
            end_trace(token)


async def test_a_sweep_finds_chunks_that_came_when_their_dataset_was_deleted() -> None:
    clock = ManualClock()
    stores = [MemoryStore(name, clock=clock) for name in ("home", "b", "c")]
    root = "db/0123abcd-0123abcd/.group.json"
    home = joined(stores)[0]
    await home.put(root, b"{}")
    await make(home)
    keys = [chunk(i) for i in range(8)]
    await home.delete_all((await listed_keys(home, DATASET))[0])
    for key in keys:
        await home.put(key, b"late")
    clock.time += 2 * 86400
    await home.put(root, b"{}")
    found = await Sweep(home, clock).run()
    assert [(one.waste, one.objects) for one in found] == [(Waste.CHUNKS, len(keys))]
    left = [entry.key for one in stores async for page in one.list("") for entry in page.entries]
    assert [key for key in left if not key.startswith("db/.stripe-places/")] == [root]
