"""Striped stores as any store and against a dict, and striped datasets beside others over REST."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.clock import SystemClock
from hsparse.concurrency.request_trace import RequestTrace, begin_trace, end_trace
from hsparse.dn.buckets import BucketRouter
from hsparse.dn.data_settings import DataSettings
from hsparse.dn.service import DataService, NodeResources
from hsparse.dn.sweep import Sweep, Waste
from hsparse.errors import BadRequest, Misconfigured, NotFound, PreconditionFailed, StoreFailed
from hsparse.format.chunk_spec import chunk_key
from hsparse.model.acl import Principal
from hsparse.model.ids import chunk_prefix, storage_key
from hsparse.model.stripes import MAX_STRIPES, Stripes, parse_stripes, placed_key, unplaced_key
from hsparse.storage.object_store import Entry, ObjectStore
from hsparse.storage.s3.s3_store import S3Store
from hsparse.stripes.joining import joined
from tests.sn.value_client import SETTINGS, create, read, sparse, value_client
from tests.support.rest_client import RestClient
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


INT = "<i4"
EXTENT = (40, 30)
DENSE = {"class": "H5D_CHUNKED", "dims": [16, 16]}
BUCKETS = ("a", "b", "c")
DATASET_PLACES = ["c", "b/some/prefix", "a"]
LAYOUTS = {"dense": DENSE, "sparse": sparse(8, 8)}


@dataclass(slots=True)
class Twins:
    """Two datasets with the same elements, the second one with three stripes."""

    client: RestClient
    store: CountingStore
    plain: str
    striped: str
    stripes: int | list[str]

    async def both(self, method: str, path: str, body: Any = None, **options: Any) -> tuple[Any, Any]:
        """Send a request about each; return the bodies of the answers."""
        found = []
        for twin in (self.plain, self.striped):
            reply = await self.client(method, f"{twin}{path}", body, **options)
            assert reply.status in (200, 201), reply.body
            found.append(reply.body)
        return found[0], found[1]

    async def keys(self, twin: str) -> set[str]:
        """Return the keys below a dataset."""
        prefix = chunk_prefix(twin.rpartition("/")[2])
        return {
            entry.key
            async for page in self.store.list(prefix)
            for entry in page.entries
            if "/~" not in entry.key
        }


@asynccontextmanager
async def placed_client() -> AsyncIterator[tuple[RestClient, CountingStore]]:
    """A client of a server of three buckets, and the store of the first, with what its datasets have in the others."""
    stores = joined([MemoryStore(name, page_size=4) for name in BUCKETS])
    shared, clock = NodeResources.of(DataSettings()), SystemClock()
    counting = CountingStore(stores[0])
    services = [
        DataService(store, clock, resources=shared.of_bucket(name))
        for name, store in zip(BUCKETS, (counting, *stores[1:]), strict=True)
    ]
    node, settings = BucketRouter(services), replace(SETTINGS, bucket="a", other_buckets=("b", "c"))
    client = RestClient({"dn-001": node}, clock, Principal("admin", admin=True), settings=settings)
    await client.open()
    client.domain = "/home/admin/values.h5"
    try:
        assert (await client("PUT", "/", {})).status == 201
        yield client, counting
    finally:
        await client.close()
        await node.close()


@asynccontextmanager
async def one_bucket() -> AsyncIterator[tuple[RestClient, CountingStore]]:
    """A client of a server of one bucket, and its store."""
    store = CountingStore(MemoryStore(page_size=4))
    async with value_client(store) as client:
        yield client, store


KINDS: dict[str, tuple[Any, Any]] = {"prefixes": (3, one_bucket), "buckets": (DATASET_PLACES, placed_client)}


@pytest.fixture(params=[f"{layout}-{kind}" for layout in LAYOUTS for kind in KINDS])
async def twins(request: pytest.FixtureRequest) -> AsyncIterator[Twins]:
    layout, kind = request.param.split("-")
    stripes, opened = KINDS[kind]
    async with opened() as (client, store):
        options, layout = {"maxdims": [0, 0], "fillValue": -1}, LAYOUTS[layout]
        plain = await create(client, EXTENT, "H5T_STD_I32LE", layout=layout, **options)
        striped = await create(
            client, EXTENT, "H5T_STD_I32LE", layout=layout | {"stripes": stripes}, **options
        )
        twins = Twins(client, store, plain, striped, stripes)
        body = {"select": "[3:39,2:30]", "value": np.arange(36 * 28).reshape(36, 28).tolist()}
        await twins.both("PUT", "/value", body)
        yield twins


async def test_chunks_are_in_stripes_below_the_dataset(twins: Twins) -> None:
    rows = (await twins.client("GET", f"{twins.striped}/chunks"))["chunks"]
    id = twins.striped.rpartition("/")[2]
    keys = {chunk_key(id, row["scaled"], Stripes.of(twins.stripes)) for row in rows}
    assert keys == await twins.keys(twins.striped) - {storage_key(id)}
    places = [placed_key("hsparse" if twins.stripes == 3 else "a", key) for key in keys]
    assert {(row["bucket"], row["key"]) for row in rows} == set(places)
    assert {key.split("/")[-2] for _, key in places} == {"1", "2", "3"}


async def test_elements_are_the_same(twins: Twins) -> None:
    await twins.both("PUT", "/value", {"select": "[10:30:3,5]", "value": 7})
    await twins.both("PUT", "/shape", {"shape": [37, 27]})
    found = [await read(twins.client, twin, INT, (37, 27)) for twin in (twins.plain, twins.striped)]
    np.testing.assert_array_equal(*found)
    assert found[0][13, 5] == 7
    one, other = await twins.both("GET", "/value", query="_ > 900")
    assert one["value"] == other["value"]
    assert len(one["value"]) > 3
    assert len(await twins.keys(twins.plain)) == len(await twins.keys(twins.striped))


async def test_chunks_are_listed_as_one_dataset_by_the_same_requests(twins: Twins) -> None:
    def place(row: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in row.items() if key not in ("bucket", "key", "etag")}

    counts = []
    for twin in (twins.plain, twins.striped):
        twins.store.reset()
        rows = (await twins.client("GET", f"{twin}/chunks", order="coord"))["chunks"]
        counts.append((twins.store.calls["list"], list(map(place, rows))))
    assert counts[0][1] == counts[1][1]
    assert counts[1][0] - counts[0][0] <= (0 if twins.stripes == 3 else 2)  # pages of three listings, not one
    assert len(rows) > 4

    some, marker = [], None
    while marker != "":
        reply = await twins.client(
            "GET", f"{twins.striped}/chunks", limit=2, **({"marker": marker} if marker else {})
        )
        some += reply["chunks"]
        marker = reply.body.get("marker", "")

    def in_order(row: dict[str, Any]) -> str:
        return chunk_key(twins.striped.rpartition("/")[2], row["scaled"], Stripes.of(twins.stripes))

    assert [row["scaled"] for row in some] == [row["scaled"] for row in sorted(rows, key=in_order)]

    first, second = await twins.both("GET", "/chunks", select="[0:9,20:21]", count_only=1)
    assert first == second
    first, second = await twins.both("GET", "/chunks/1_1")
    assert place(first) == place(second)
    first, second = await twins.both("GET", "", verbose=1)
    assert [first[name] for name in ("num_chunks", "allocated_size")] == [
        second[name] for name in ("num_chunks", "allocated_size")
    ]
    summary = (await twins.client("GET", "/", verbose=1)).body
    assert (summary["num_chunks"], summary["num_datasets"]) == (2 * len(rows), 2)


async def test_maps_have_the_keys(twins: Twins) -> None:
    _, found = await twins.both("GET", "/map")
    assert found["layout"]["stripes"] == twins.stripes
    id = twins.striped.rpartition("/")[2]
    for row in found["chunks"]:
        key = chunk_key(id, row["scaled"], Stripes.of(twins.stripes))
        assert (await twins.store.get(key)).etag == row["etag"]
    if "flags" not in found["layout"]:
        refs = (await twins.client("GET", f"{twins.striped}/map", format="kerchunk"))["refs"]
        urls = {ref[0] for ref in refs.values() if isinstance(ref, list)}
        assert urls == {f"s3://{row['bucket']}/{row['key']}" for row in found["chunks"]}


async def test_chunks_are_read_and_written_directly(twins: Twins) -> None:
    reply = await twins.client("GET", f"{twins.plain}/chunks/0_0/value", accept="application/octet-stream")
    sizes = {
        name.removeprefix("X-Hdf-").replace("-", "_"): value
        for name, value in reply.headers.items()
        if name.startswith("X-Hdf-section")
    }
    wrote = await twins.client("PUT", f"{twins.striped}/chunks/1_0/value", reply.body, **sizes)
    assert wrote.status in (200, 201), wrote.body
    back = await twins.client("GET", f"{twins.striped}/chunks/1_0/value", accept="application/octet-stream")
    assert back.body == reply.body


async def test_the_record_says_what_it_needs_and_others_have_no_mark(twins: Twins) -> None:
    keys = [storage_key(twin.rpartition("/")[2]) for twin in (twins.plain, twins.striped)]
    plain, record = [json.loads((await twins.store.get(key)).data) for key in keys]
    others = plain.get("schema", {"readFeatures": []})["readFeatures"]
    features = ["stripes", "stripes in c", "stripes in b", "stripes in a", "home a"][
        : 1 if twins.stripes == 3 else None
    ]
    assert record["schema"] == {"version": 1, "readFeatures": [*features, *others], "writeFeatures": []}
    assert "stripes" not in others
    assert "stripe" not in json.dumps(plain)
    first, second = await twins.both("GET", "")
    assert second["creationProperties"].pop("layout") == first["creationProperties"].pop("layout") | {
        "stripes": twins.stripes
    }
    assert first["layout"] == second["layout"]


async def test_nothing_is_left_of_a_deleted_dataset(twins: Twins) -> None:
    await twins.both("DELETE", "")
    assert await twins.keys(twins.striped) == set()


async def test_bad_stripes_are_refused() -> None:
    async with value_client() as client:
        body = {"type": "H5T_STD_I32LE", "shape": [40, 30]}
        for stripes in (0, MAX_STRIPES + 1, "many"):
            asked = body | {"creationProperties": {"layout": DENSE | {"stripes": stripes}}}
            reply = await client("POST", "/datasets", asked)
            assert reply.status == 400
            assert f"from 1 to {MAX_STRIPES}" in str(reply.body)


async def test_a_bucket_that_is_not_served_is_refused_by_name() -> None:
    asked = {
        "type": "H5T_STD_I32LE",
        "shape": [40, 30],
        "creationProperties": {"layout": DENSE | {"stripes": ["a", "d/x"]}},
    }
    async with placed_client() as (client, _), value_client() as alone:
        for one in (client, alone):
            reply = await one("POST", "/datasets", asked)
            assert reply.status == 400, reply.body
            name = "a" if one is alone else "d/x"
            assert f"The stripe '{name}' must be in a bucket of this server" in str(reply.body)


@pytest.mark.parametrize("place", ["b/home/ann", "b/db", "b/.x", "b/..", "b/"])
def test_a_place_is_not_among_domains(place: str) -> None:
    """Its chunks would keep a folder from being deleted that shows nothing."""
    with pytest.raises(BadRequest):
        parse_stripes([place])
