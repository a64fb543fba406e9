"""Chunks as answers have them, with URLs, and what is remembered of them between reads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import numpy as np
import pytest
from aiohttp import ClientSession
from yarl import URL

from hsparse.clock import SystemClock
from hsparse.dn.service import DataService
from hsparse.errors import StoreFailed
from hsparse.format.plan.grid import Grid
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.records import dataset as dataset_module
from hsparse.sn.records import known_chunks
from hsparse.sn.records.stored_chunks import CHUNK_PAGE, ChunkOrder, chunk_place, map_query, sections_json
from hsparse.sn.service_settings import ServiceSettings
from hsparse.sn.values import chunk_fanout, element_query
from hsparse.wire.message import Message
from tests.conftest import MakeStore
from tests.sn.conftest import USERS
from tests.sn.dataset_kinds import I32, chunked, sparse
from tests.sn.in_place.file_backed.test_elements import PLAIN, URI, link, make_table
from tests.sn.value_client import BINARY, SETTINGS, create, put, read, value_client
from tests.support.endurance import repeats
from tests.support.rest_client import RestClient, answered
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore


def test_a_place_has_scaled_coordinates_and_those_of_the_first_element() -> None:
    assert chunk_place(Grid((100, 90), (30, 20)), (2, 4)) == {"scaled": [2, 4], "offset": [60, 80]}
    assert chunk_place(Grid((), ()), ()) == {"scaled": [], "offset": []}


def test_sections_follow_each_other() -> None:
    shown = sections_json([[40, 100, 1], [8, 16, 0]])
    assert [one["type"] for one in shown] == ["H5_SECTION_SELECTION", "H5_SECTION_FIXED"]
    assert [one["offset"] for one in shown] == [0, 40]
    sizes = {"offset": 40, "size": 8, "unfiltered_size": 16, "filter_mask": 0}
    assert shown[1] == {"type": "H5_SECTION_FIXED"} | sizes
    assert sections_json([]) == []


def test_maps_go_on_in_the_order_that_costs_least() -> None:
    wanted = map_query((3, 4))
    found = (wanted.order, wanted.after, wanted.skip, wanted.limit)
    assert found == (ChunkOrder.NATIVE, (3, 4), 0, CHUNK_PAGE)


@pytest.fixture
async def client(make_store: MakeStore) -> AsyncIterator[RestClient]:
    async with value_client(await make_store("s3")) as client:
        yield client


async def fetched(url: str) -> bytes:
    async with ClientSession() as session, session.get(URL(url, encoded=True)) as reply:
        assert reply.status == 200
        return await reply.read()


async def test_objects_are_read_by_their_urls(client: RestClient) -> None:
    path = await create(client, [40], I32, layout=sparse(10), filters=["none"])
    await put(client, path, {"select": "[0:25]", "value": 7})
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
    path = await create(client, [300], I32, layout=chunked(256))
    values = np.arange(300, dtype="<i4")
    await put(client, path, values.tobytes())
    refs = (await client("GET", f"{path}/map", format="kerchunk", urls=60))["refs"]
    url, offset, size = refs["0"]
    assert (offset, size) == (0, 1024)
    assert await fetched(url) == values[:256].tobytes()


@pytest.mark.parametrize("seconds", ["0", "604801", "x", "-1"])
async def test_how_long_a_url_may_be_good(client: RestClient, seconds: str) -> None:
    path = await create(client, [40], I32, layout=sparse(10))
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
    await client("PUT", "/acls/default", {"read": False}, domain="/home/test_user1/closed")
    await store.put("home/test_user1/closed/raw", bytes(160))
    layout = {
        "class": "H5D_CONTIGUOUS_REF",
        "file_uri": "home/test_user1/closed/raw",
        "offset": 0,
        "size": 160,
    }
    body = {"type": I32, "shape": [40], "h5path": "/d", "creationProperties": {"layout": layout}}
    made = await answered(client("POST", "/datasets", body, implicit=1), 201)
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
        path = await create(client, [40], I32, layout=sparse(10))
        await put(client, path, {"select": "[0:25]", "value": 7})
        for place in (f"{path}/chunks", f"{path}/chunks/0", f"{path}/map"):
            reply = await client("GET", place, urls=60)
            assert (reply.status, reply["error"]["kind"]) == (400, "unsupported")
            assert "S3" in reply["error"]["message"]


CHUNK, COUNT = 4, 300
SMALL_CHUNKS = ServiceSettings(min_chunk_size=1)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few chunks are many."""
    monkeypatch.setattr(chunk_fanout, "MANY_CHUNKS", 8)
    monkeypatch.setattr(element_query, "MANY_CHUNKS", 8)
    monkeypatch.setattr(dataset_module, "KEYS_AT_ONCE", 99)


@asynccontextmanager
async def counted(
    nodes: int, layout: dict[str, object]
) -> AsyncIterator[tuple[RestClient, CountingStore, str]]:
    """Yield a client, its store, and the path of a dataset whose even chunks are stored."""
    store = CountingStore(MemoryStore(page_size=100))
    async with value_client(store, SMALL_CHUNKS, nodes) as client:
        path = await create(client, [CHUNK * COUNT], I32, layout=layout, maxdims=[0])
        for number in range(0, COUNT, 2):
            await put_chunk(client, path, number, number + 1)
        store.reset()
        yield client, store, path


async def put_chunk(client: RestClient, path: str, chunk: int, value: int) -> None:
    body = {"start": [CHUNK * chunk], "stop": [CHUNK * (chunk + 1)], "value": [value] * CHUNK}
    await put(client, path, body)


async def first_values(client: RestClient, path: str, first: int = 0, stop: int = COUNT) -> list[int]:
    """Return the values of the first elements of some chunks."""
    select = f"[{CHUNK * first}:{CHUNK * stop}]"
    values = await read(client, path, "<i4", ((stop - first) * CHUNK,), select=select)
    assert (values.reshape(-1, CHUNK) == values[::CHUNK, None]).all()
    return values[::CHUNK].tolist()


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("nodes", [1, 3])
@pytest.mark.parametrize("layout", [chunked(CHUNK), sparse(CHUNK)], ids=["dense", "sparse"])
async def test_chunks_are_listed_once(nodes: int, layout: dict[str, object]) -> None:
    async with counted(nodes, layout) as (client, store, path):
        model = [number + 1 if number % 2 == 0 else 0 for number in range(COUNT)]
        assert await first_values(client, path) == model
        first = store.calls["list"]
        assert first
        for number in (1, 2, 299, 3):
            await put_chunk(client, path, number, -number)
            model[number] = -number
            assert await first_values(client, path) == model
            assert await first_values(client, path, 100, 120) == model[100:120]
        assert store.calls["list"] == first, "keys that were put are added to what was listed"
        found = await client("GET", f"{path}/value", query="_ < 0")
        assert len(found["index"]) == 4 * CHUNK
        assert layout != chunked(CHUNK) or store.calls["list"] == first, (
            "sparse chunks are pruned by their footers"
        )


@pytest.mark.usefixtures("few")
async def test_only_the_selection_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    planned = []
    plan = chunk_fanout.plan
    monkeypatch.setattr(chunk_fanout, "plan", lambda *args: planned.append(args) or plan(*args))  # type: ignore[func-returns-value]
    async with counted(1, chunked(CHUNK)) as (client, _, path):
        await first_values(client, path, 100, 120)
        assert sum(len(args[2]) for args in planned if len(args) == 3) == 10


@pytest.mark.usefixtures("few")
async def test_concurrent_reads_share_a_listing() -> None:
    async with counted(1, chunked(CHUNK)) as (client, store, path):
        await asyncio.gather(*(first_values(client, path) for _ in range(8)))
        assert store.calls["list"] <= 4


@pytest.mark.usefixtures("few")
async def test_a_node_that_does_not_answer_leaves_nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    async with counted(2, chunked(CHUNK)) as (client, store, path):
        await first_values(client, path)
        before = store.calls["list"]

        async def fail(self: Owners, message: Message[object]) -> None:
            raise StoreFailed("away")

        with monkeypatch.context() as patched:
            patched.setattr(known_chunks.Owners, "ask_all", fail)
            assert (await first_values(client, path))[4] == 5
        assert store.calls["list"] > before


@pytest.mark.usefixtures("few")
@pytest.mark.endurance
@pytest.mark.parametrize("seed", range(repeats(40, short=3)))
@pytest.mark.parametrize("nodes", [1, 3])
async def test_no_read_is_older_than_an_answer(seed: int, nodes: int) -> None:
    """Random writes, erasures, shrinks, growths, and nodes that do not know what they have changed."""
    random = Random(seed)
    async with counted(nodes, sparse(CHUNK)) as (client, _, path):
        model = np.array([number + 1 if number % 2 == 0 else 0 for number in range(COUNT)])
        for step in range(40):
            number = random.randrange(len(model))
            match random.choice(["put", "put", "erase", "shape", "forget", "read", "many"]):
                case "put":
                    await put_chunk(client, path, number, -step)
                    model[number] = -step
                case "many":
                    some = random.sample(range(len(model)), 5)
                    await asyncio.gather(*(put_chunk(client, path, one, step) for one in some))
                    model[some] = step
                case "erase":
                    select = f"[{CHUNK * number}:{CHUNK * (number + 1)}]"
                    assert (await client("DELETE", f"{path}/value", select=select)).status == 200
                    model[number] = 0
                case "shape":
                    length = random.randrange(COUNT // 2, COUNT)
                    reply = await client("PUT", f"{path}/shape", {"shape": [CHUNK * length], "shrink": 1})
                    assert reply.status in (200, 201), reply.body
                    model = (
                        np.r_[model, np.zeros(COUNT, int)][:length] if length > len(model) else model[:length]
                    )
                case "forget":
                    random.choice(list(client.nodes.values())).forget_fences()
                case _:
                    assert await first_values(client, path, 0, len(model)) == model.tolist()
        assert await first_values(client, path, 0, len(model)) == model.tolist()
        assert (await client("GET", f"{path}/value", accept=BINARY)).status == 200
