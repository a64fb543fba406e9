"""Striped datasets over REST beside datasets without stripes: everything is the same but the keys."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from hsparse.clock import SystemClock
from hsparse.dn.buckets import BucketRouter
from hsparse.dn.data_settings import DataSettings
from hsparse.dn.service import DataService, NodeResources
from hsparse.errors import BadRequest
from hsparse.format.chunk_spec import chunk_key
from hsparse.model.acl import Principal
from hsparse.model.ids import chunk_prefix, storage_key
from hsparse.model.stripes import MAX_STRIPES, Stripes, parse_stripes, placed_key
from hsparse.stripes.joining import joined
from tests.sn.value_client import SETTINGS, create, read, sparse, value_client
from tests.support.rest_client import RestClient
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore

INT = "<i4"
EXTENT = (40, 30)
DENSE = {"class": "H5D_CHUNKED", "dims": [16, 16]}
BUCKETS = ("a", "b", "c")
PLACES = ["c", "b/some/prefix", "a"]
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


KINDS: dict[str, tuple[Any, Any]] = {"prefixes": (3, one_bucket), "buckets": (PLACES, placed_client)}


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
            assert f"The stripe '{name}' must be in one of several buckets" in str(reply.body)


@pytest.mark.parametrize("place", ["b/home/ann", "b/db", "b/.x", "b/..", "b/"])
def test_a_place_is_not_among_domains(place: str) -> None:
    """Its chunks would keep a folder from being deleted that shows nothing."""
    with pytest.raises(BadRequest):
        parse_stripes([place])
