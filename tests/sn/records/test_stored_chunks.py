"""Chunks as answers have them, with URLs; which chunks there are is in `tests/sn/chunks/test_handlers.py`."""

from __future__ import annotations

from collections.abc import AsyncIterator

import numpy as np
import pytest
from aiohttp import ClientSession
from yarl import URL

from hsparse.clock import SystemClock
from hsparse.dn.service import DataService
from hsparse.format.plan.grid import Grid
from hsparse.sn.records.stored_chunks import CHUNK_PAGE, ChunkOrder, chunk_place, map_query, sections_json
from tests.conftest import MakeStore
from tests.sn.conftest import USERS
from tests.sn.in_place.file_backed.test_elements import PLAIN, URI, link, make_table
from tests.sn.value_client import SETTINGS, create, sparse, value_client
from tests.support.rest_client import RestClient


def test_a_place_has_scaled_coordinates_and_those_of_the_first_element() -> None:
    assert chunk_place(Grid((100, 90), (30, 20)), (2, 4)) == {"scaled": [2, 4], "offset": [60, 80]}
    assert chunk_place(Grid((), ()), ()) == {"scaled": [], "offset": []}


def test_sections_follow_each_other() -> None:
    shown = sections_json([[40, 100, 1], [8, 16, 0]])
    assert [one["type"] for one in shown] == ["H5_SECTION_SELECTION", "H5_SECTION_FIXED"]
    assert [one["offset"] for one in shown] == [0, 40]
    assert shown[1] == {
        "type": "H5_SECTION_FIXED",
        "offset": 40,
        "size": 8,
        "unfiltered_size": 16,
        "filter_mask": 0,
    }
    assert sections_json([]) == []


def test_maps_go_on_in_the_order_that_costs_least() -> None:
    wanted = map_query((3, 4))
    assert (wanted.order, wanted.after, wanted.skip, wanted.limit) == (
        ChunkOrder.NATIVE,
        (3, 4),
        0,
        CHUNK_PAGE,
    )


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


async def test_a_file_is_read_by_its_url(make_store: MakeStore) -> None:
    store = await make_store("s3")
    async with value_client(store) as client:
        values = np.arange(40, dtype="<i4")
        await store.put("raw", b"head" + values.tobytes())
        await store.put("other", b"headache" + values.tobytes())
        item = PLAIN | {"fields": [*PLAIN["fields"], URI]}
        rows = np.array(
            [(4, 80, "raw"), (88, 80, "other")], [("offset", "<i8"), ("size", "<i4"), ("file_uri", "S40")]
        )
        table = await make_table(client, item, rows)
        for layout, count in (
            ({"class": "H5D_CONTIGUOUS_REF", "file_uri": "raw", "offset": 4, "size": 160}, 1),
            (
                {
                    "class": "H5D_CHUNKED_REF",
                    "file_uri": "raw",
                    "dims": [20],
                    "chunks": {"0": [4, 80], "1": [84, 80]},
                },
                2,
            ),
            ({"class": "H5D_CHUNKED_REF_INDIRECT", "dims": [20], "chunk_table": table}, 2),
        ):
            path = await link(client, (40,), layout)
            found = (await client("GET", f"{path}/map", urls=60))["chunks"]
            assert len(found) == count
            data = [(await fetched(row["url"]))[row["address"] :][: row["size"]] for row in found]
            assert b"".join(data) == values.tobytes()
            refs = (await client("GET", f"{path}/map", format="kerchunk", urls=60))["refs"]
            assert await fetched(refs["0"][0]) == b"head" + values.tobytes()
            plain = (await client("GET", f"{path}/chunks/0/value", urls=60)).body
            assert plain == data[0]


async def test_a_url_needs_the_right_to_the_file(make_store: MakeStore) -> None:
    """Whoever may read the domain may read what is linked, but not the rest of the file."""
    store, clock = await make_store("s3"), SystemClock()
    node = DataService(store, clock)
    client = await RestClient(node, clock, *USERS, settings=SETTINGS).open()
    for path in ("/home/test_user1/open", "/home/test_user1/closed"):
        assert (await client("PUT", "/", {"folder": 1}, domain=path)).status == 201
    client.domain = "/home/test_user1/open/file.h5"
    assert (await client("PUT", "/", {})).status == 201
    assert (await client("PUT", "/acls/default", {"read": True})).status == 201
    closed = {"read": False}
    await client("PUT", "/acls/default", closed, domain="/home/test_user1/closed")
    await store.put("home/test_user1/closed/raw", bytes(160))
    layout = {
        "class": "H5D_CONTIGUOUS_REF",
        "file_uri": "home/test_user1/closed/raw",
        "offset": 0,
        "size": 160,
    }
    made = await client(
        "POST",
        "/datasets",
        {"type": INT, "shape": [40], "h5path": "/d", "creationProperties": {"layout": layout}},
        implicit=1,
    )
    assert made.status == 201, made.body
    path = f"/datasets/{made['id']}"
    assert (await client("GET", f"{path}/map", urls=60)).status == 200
    assert (await client("GET", f"{path}/value", user="test_user2")).status == 200
    for place in (f"{path}/map", f"{path}/chunks", f"{path}/chunks/0"):
        assert (await client("GET", place, urls=60, user="test_user2")).status == 403
        assert (await client("GET", place, user="test_user2")).status == 200
    told = (await client("GET", "/map", urls=60, user="test_user2"))["datasets"]["/d"]
    assert told["error"]["kind"] == "forbidden"
    await client.close()
    await node.close()


@pytest.mark.parametrize("kind", ["memory", "posix"])
async def test_other_stores_have_none(make_store: MakeStore, kind: str) -> None:
    async with value_client(await make_store(kind)) as client:
        path = await create(client, [40], INT, layout=sparse(10))
        await client("PUT", f"{path}/value", {"select": "[0:25]", "value": 7})
        for place in (f"{path}/chunks", f"{path}/chunks/0", f"{path}/map"):
            reply = await client("GET", place, urls=60)
            assert (reply.status, reply["error"]["kind"]) == (400, "unsupported")
            assert "S3" in reply["error"]["message"]
