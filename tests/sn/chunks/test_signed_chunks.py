"""URLs of chunks' objects: anybody's on S3, nobody's elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator

import numpy as np
import pytest
from aiohttp import ClientSession
from yarl import URL

from hsparse.testing.rest_client import RestClient
from tests.conftest import MakeStore
from tests.sn.linked.test_linked_read import link
from tests.sn.value_client import create, sparse, value_client

INT = "H5T_STD_I32LE"


@pytest.fixture
async def client(make_store: MakeStore) -> AsyncIterator[RestClient]:
    async with value_client(await make_store("s3")) as client:
        yield client


async def fetched(url: str) -> bytes:
    async with ClientSession() as session, session.get(URL(url, encoded=True)) as reply:
        assert reply.status == 200
        return await reply.read()


async def test_objects_are_read_by_their_urls(client: RestClient) -> None:
    path = await create(client, [40], INT, layout=sparse(10), filters=["none"])
    await client("PUT", f"{path}/value", {"select": "[0:25]", "value": 7})
    rows = (await client("GET", f"{path}/chunks", urls=60))["chunks"]
    assert len(rows) == 3
    for row in rows:
        stored = (await client("GET", f"{path}/chunks/{row['scaled'][0]}/value")).body
        assert (await fetched(row["url"]))[: row["size"]] == stored
    one = (await client("GET", f"{path}/chunks/1", urls=60)).body
    assert await fetched(one["url"]) == await fetched(rows[1]["url"])
    assert {key: value for key, value in one.items() if key != "url"} == (
        await client("GET", f"{path}/chunks/1")
    ).body
    assert (await client("GET", f"{path}/chunks/3", urls=60)).body["address"] is None
    assert (await client("GET", f"{path}/chunks", urls=60, count_only=1))["count"] == 3
    found = (await client("GET", f"{path}/map", urls=60))["chunks"]
    assert [len(await fetched(row["url"])) > row["size"] for row in found] == [True] * 3


async def test_references_by_url(client: RestClient) -> None:
    path = await create(client, [300], INT, layout={"class": "H5D_CHUNKED", "dims": [256]})
    values = np.arange(300, dtype="<i4")
    await client("PUT", f"{path}/value", values.tobytes())
    refs = (await client("GET", f"{path}/map", format="kerchunk", urls=60))["refs"]
    url, offset, size = refs["0"]
    assert (offset, size) == (0, 1024)
    assert await fetched(url) == values[:256].tobytes()


@pytest.mark.parametrize("seconds", ["0", "604801", "x", "-1"])
async def test_how_long_a_url_may_be_good(client: RestClient, seconds: str) -> None:
    path = await create(client, [40], INT, layout=sparse(10))
    for place in (f"{path}/chunks", f"{path}/chunks/0", f"{path}/map", "/map"):
        assert (await client("GET", place, urls=seconds)).status == 400


async def test_files_have_no_urls(make_store: MakeStore) -> None:
    store = await make_store("memory")
    async with value_client(store) as other:
        await store.put("raw", bytes(160))
        layout = {"class": "H5D_CONTIGUOUS_REF", "file_uri": "raw", "offset": 0, "size": 160}
        path = await link(other, (40,), layout)
        reply = await other("GET", f"{path}/chunks", urls=60)
        assert (reply.status, reply["error"]["kind"]) == (400, "unsupported")
        assert "files" in reply["error"]["message"]


@pytest.mark.parametrize("kind", ["memory", "posix"])
async def test_other_stores_have_none(make_store: MakeStore, kind: str) -> None:
    async with value_client(await make_store(kind)) as client:
        path = await create(client, [40], INT, layout=sparse(10))
        await client("PUT", f"{path}/value", {"select": "[0:25]", "value": 7})
        for place in (f"{path}/chunks", f"{path}/chunks/0", f"{path}/map"):
            reply = await client("GET", place, urls=60)
            assert (reply.status, reply["error"]["kind"]) == (400, "unsupported")
            assert "S3" in reply["error"]["message"]
