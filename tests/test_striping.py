"""Striped datasets over REST beside datasets without stripes: everything is the same but the keys."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from hsparse.format.chunk_spec import chunk_key
from hsparse.model.ids import chunk_prefix, storage_key
from hsparse.model.stripes import MAX_STRIPES, Stripes
from hsparse.testing.memory_store import MemoryStore
from hsparse.testing.store_wrapper import CountingStore
from tests.sn.value_client import create, read, sparse, value_client
from tests.support.rest_client import RestClient

INT = "<i4"
EXTENT = (40, 30)
DENSE = {"class": "H5D_CHUNKED", "dims": [16, 16]}
LAYOUTS = {"dense": DENSE, "sparse": sparse(8, 8)}


@dataclass(slots=True)
class Twins:
    """Two datasets with the same elements, the second one with three stripes."""

    client: RestClient
    store: CountingStore
    plain: str
    striped: str

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
        return {entry.key async for page in self.store.list(prefix) for entry in page.entries}


@pytest.fixture(params=LAYOUTS)
async def twins(request: pytest.FixtureRequest) -> AsyncIterator[Twins]:
    layout, store = LAYOUTS[request.param], CountingStore(MemoryStore(page_size=4))
    async with value_client(store) as client:
        options = {"maxdims": [0, 0], "fillValue": -1}
        plain = await create(client, EXTENT, "H5T_STD_I32LE", layout=layout, **options)
        striped = await create(client, EXTENT, "H5T_STD_I32LE", layout=layout | {"stripes": 3}, **options)
        twins = Twins(client, store, plain, striped)
        body = {"select": "[3:39,2:30]", "value": np.arange(36 * 28).reshape(36, 28).tolist()}
        await twins.both("PUT", "/value", body)
        yield twins


async def test_chunks_are_in_stripes_below_the_dataset(twins: Twins) -> None:
    rows = (await twins.client("GET", f"{twins.striped}/chunks"))["chunks"]
    id = twins.striped.rpartition("/")[2]
    keys = {chunk_key(id, row["scaled"], Stripes(3)) for row in rows}
    assert {row["key"] for row in rows} == keys == await twins.keys(twins.striped) - {storage_key(id)}
    assert {key.split("/")[-2] for key in keys} == {"1", "2", "3"}


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
        return {key: value for key, value in row.items() if key not in ("key", "etag")}

    counts = []
    for twin in (twins.plain, twins.striped):
        twins.store.reset()
        rows = (await twins.client("GET", f"{twin}/chunks", order="coord"))["chunks"]
        counts.append((twins.store.calls["list"], list(map(place, rows))))
    assert counts[0] == counts[1]
    assert len(rows) > 4

    some, marker = [], None
    while marker != "":
        reply = await twins.client(
            "GET", f"{twins.striped}/chunks", limit=2, **({"marker": marker} if marker else {})
        )
        some += reply["chunks"]
        marker = reply.body.get("marker", "")
    assert [row["key"] for row in some] == sorted(row["key"] for row in rows)

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
    assert found["layout"]["stripes"] == 3
    for row in found["chunks"]:
        assert (await twins.store.get(row["key"])).etag == row["etag"]
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
    assert record["schema"] == {"version": 1, "readFeatures": ["stripes", *others], "writeFeatures": []}
    assert "stripes" not in others
    assert "stripe" not in json.dumps(plain)
    first, second = await twins.both("GET", "")
    assert second["creationProperties"].pop("layout") == first["creationProperties"].pop("layout") | {
        "stripes": 3
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
