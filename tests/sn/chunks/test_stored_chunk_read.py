"""The objects of many chunks in one answer: in order, by etag, within limits, and never corrupt."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.clock import SystemClock
from hsparse.dn.service import DataService
from hsparse.model.acl import Principal
from hsparse.sn.chunks import stored_chunk_read
from hsparse.sn.chunks.stored_chunk_read import PAGE_BYTES, NamedChunks
from hsparse.sn.http import stream
from hsparse.wire.chunk_info_message import ReadObjectBytes
from tests.sn.value_client import create, sparse, value_client
from tests.support.rest_client import RestClient
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore

INT = "H5T_STD_I32LE"
DENSE = {"class": "H5D_CHUNKED", "dims": [256]}
CHANGED = 2**64 - 1


@pytest.fixture
def store() -> CountingStore:
    return CountingStore(MemoryStore())


@pytest.fixture
async def client(store: CountingStore) -> AsyncIterator[RestClient]:
    async with value_client(store) as client:
        yield client


@pytest.fixture(params=["sparse", "dense"])
async def path(client: RestClient, request: pytest.FixtureRequest) -> str:
    """A dataset of five chunks."""
    layout = sparse(256) if request.param == "sparse" else DENSE
    path = await create(client, [1280], INT, layout=layout, maxdims=[0])
    assert (await client("PUT", f"{path}/value", {"value": list(range(1, 1281))})).status == 200
    return path


async def mapped(client: RestClient, path: str, *order: int) -> dict[str, Any]:
    """Return the body about some chunks of the map, by their numbers there."""
    rows = (await client("GET", f"{path}/map"))["chunks"]
    some = [rows[number] for number in order]
    return {
        "chunks": ["_".join(map(str, row["scaled"])) for row in some],
        "etags": [row["etag"] for row in some],
        "sizes": [row["size"] for row in some],
    }


async def objects(client: RestClient, path: str, store: CountingStore, *order: int) -> list[bytes]:
    rows = (await client("GET", f"{path}/map"))["chunks"]
    return [(await store.store.get(rows[number]["key"])).data for number in order]


def frames(body: bytes) -> list[bytes | None]:
    """Return the objects of an answer, None for one that has changed."""
    found: list[bytes | None] = []
    while body:
        length = int.from_bytes(body[:8], "little")
        size = 0 if length == CHANGED else length
        found.append(None if length == CHANGED else body[8 : 8 + size])
        body = body[8 + size :]
    return found


@pytest.mark.parametrize("page", [1, 1500, PAGE_BYTES])
async def test_objects_in_the_order_of_the_request(
    client: RestClient, store: CountingStore, path: str, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    monkeypatch.setattr(stored_chunk_read, "PAGE_BYTES", page)
    monkeypatch.setattr(stored_chunk_read, "MIN_PIECE_BYTES", 100)
    order = (3, 0, 4, 3)
    body, expected = await mapped(client, path, *order), await objects(client, path, store, *order)
    store.reset()
    reply = await client("POST", f"{path}/chunks/values", body)
    assert (reply.status, reply.headers["Content-Type"]) == (200, "application/octet-stream")
    assert frames(reply.body) == expected
    assert store.calls["get_range"] in (3, 4)  # twice if both are read at the same time
    await client("POST", f"{path}/chunks/values", body)
    assert store.calls["get_range"] in (3, 4)


class NotedNode:
    """A data node that notes the messages about objects."""

    def __init__(self, store: CountingStore, id: str) -> None:
        self.node = DataService(store, SystemClock(), id=id)
        self.messages: list[ReadObjectBytes] = []

    async def send(self, message: Any) -> Any:
        if isinstance(message, ReadObjectBytes):
            self.messages.append(message)
        return await self.node.send(message)

    async def close(self) -> None:
        await self.node.close()


async def test_one_message_to_each_owner(store: CountingStore) -> None:
    nodes = {f"dn-{number}": NotedNode(store, f"dn-{number}") for number in range(3)}
    client = await RestClient(dict(nodes), SystemClock(), Principal("admin", admin=True)).open()
    client.domain = "/home/admin/three.h5"
    await client("PUT", "/", {})
    path = await create(client, [300], INT, layout=sparse(10))
    await client("PUT", f"{path}/value", {"value": list(range(1, 301))})
    body = await mapped(client, path, *range(30))
    expected = await objects(client, path, store, *range(30))
    assert frames((await client("POST", f"{path}/chunks/values", body)).body) == expected
    assert [len(node.messages) for node in nodes.values()] == [1, 1, 1]
    assert sum(len(node.messages[0].etags) for node in nodes.values()) == 30
    await client.close()
    for node in nodes.values():
        await node.close()


async def test_chunks_in_another_state_say_so(client: RestClient, store: CountingStore, path: str) -> None:
    body = await mapped(client, path, 0, 1, 2)
    await client("PUT", f"{path}/value", {"value": 7}, select="[300:301]")
    expected = await objects(client, path, store, 0, 1, 2)
    body["chunks"].append("5")  # not stored
    body["etags"].append("none")
    body["sizes"].append(100)
    reply = await client("POST", f"{path}/chunks/values", body)
    assert frames(reply.body) == [expected[0], None, expected[2], None]
    none = await client("POST", f"{path}/chunks/values", {"chunks": [], "etags": [], "sizes": []})
    assert (none.status, none.body) == (200, b"")


async def test_a_shrink_meanwhile(
    client: RestClient, store: CountingStore, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first dataset is one of before; the answer has the chunks that are left."""
    body, real, loaded = await mapped(client, path, 0, 4), stored_chunk_read.load_dataset, []

    async def load(context: Any) -> Any:
        loaded.append(await real(context))
        return loaded[0] if len(loaded) == 2 else loaded[-1]

    monkeypatch.setattr(stored_chunk_read, "load_dataset", load)
    await client("POST", f"{path}/chunks/values", body)
    expected = await objects(client, path, store, 0)
    assert (await client("PUT", f"{path}/shape", {"shape": [700]})).status == 201
    reply = await client("POST", f"{path}/chunks/values", body)
    assert frames(reply.body) == [*expected, None]
    assert len(loaded) == 3


async def test_a_corrupt_object_is_an_error(client: RestClient, store: CountingStore) -> None:
    path = await create(client, [1280], INT, layout=sparse(256))
    await client("PUT", f"{path}/value", {"value": list(range(1, 1281))})
    row = (await client("GET", f"{path}/map"))["chunks"][4]
    data = bytearray((await store.get(row["key"])).data)
    data[5] ^= 1
    etag = await store.put(row["key"], data)
    body = await mapped(client, path, 0, 1)
    body["chunks"].append("4")
    body["etags"].append(etag)
    body["sizes"].append(row["size"])
    reply = await client("POST", f"{path}/chunks/values", body)
    assert (reply.status, reply["error"]["kind"]) == (500, "corrupt")
    assert row["key"] in reply["error"]["message"]


async def test_a_failure_after_the_first_bytes_aborts(
    client: RestClient, store: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_chunk_read, "PAGE_BYTES", 1)
    monkeypatch.setattr(stream, "MAX_WHOLE_BYTES", 0)
    monkeypatch.setattr(stored_chunk_read, "MIN_PIECE_BYTES", 1)
    path = await create(client, [1280], INT, layout=sparse(256))
    await client("PUT", f"{path}/value", {"value": list(range(1, 1281))})
    body = await mapped(client, path, 0, 1)
    key = (await client("GET", f"{path}/map"))["chunks"][1]["key"]
    data = bytearray((await store.get(key)).data)
    data[5] ^= 1
    body["etags"][1] = await store.put(key, data)
    with pytest.raises(aiohttp.ClientError):
        await client("POST", f"{path}/chunks/values", body)


GOOD = {"chunks": ["0"], "etags": ["a"], "sizes": [5]}


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        ({"chunks": None}, 400),
        ({"etags": None}, 400),
        ({"sizes": 5}, 400),
        ({"sizes": []}, 400),
        ({"sizes": [0]}, 400),
        ({"sizes": [-1]}, 400),
        ({"sizes": [True]}, 400),
        ({"sizes": [1.5]}, 400),
        ({"sizes": ["5"]}, 400),
        ({"sizes": [2**63]}, 413),
        ({"sizes": [200_001]}, 413),
        ({"chunks": ["0_0"]}, 400),
        ({"chunks": ["../0"]}, 400),
        ({"chunks": ["-1"]}, 400),
        ({"chunks": [str(2**63)]}, 400),
        ({"chunks": [0]}, 400),
        ({"etags": ["x" * 2000]}, 400),
        ({name: [*GOOD[name]] * 10_001 for name in GOOD}, 413),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_what_is_refused(client: RestClient, path: str, wrong: dict[str, Any], status: int) -> None:
    reply = await client("POST", f"{path}/chunks/values", GOOD | wrong)
    assert reply.status == status, reply.body
    assert reply["error"]["kind"] == ("bad_request" if status == 400 else "too_large")


async def test_who_may_not_read(client: RestClient, path: str) -> None:
    body = await mapped(client, path, 0)
    assert (await client("POST", f"{path}/chunks/values", body, user=None)).status in (401, 403)


@given(st.lists(st.integers(1, 3 * PAGE_BYTES), max_size=20))
def test_pages_are_small_and_complete(sizes: list[int]) -> None:
    count = len(sizes)
    named = NamedChunks(
        np.arange(count, dtype=np.uint64).reshape(-1, 1), ("",) * count, np.array(sizes, np.uint64)
    )
    pages = list(named.pages())
    assert [size for page in pages for size in page.sizes.tolist()] == sizes
    assert all(len(page.sizes) == 1 or page.sizes.sum() <= PAGE_BYTES for page in pages)
    assert all(int(page.sizes.sum()) <= max(named.memory // 2, 0) for page in pages)
