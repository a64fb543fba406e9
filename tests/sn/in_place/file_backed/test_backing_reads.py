"""Who reads which states of a file that a dataset is linked to, by each way to its bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from hsparse.dn.service import DataService
from hsparse.model.acl import Principal, Right
from tests.support.rest_client import BINARY, RestClient
from tests.testing.manual_clock import ManualClock
from tests.testing.memory_store import MemoryStore

FOLDER = "/home/ann/lab"
FILE = "home/ann/lab/run.h5"
OWN = "/home/bob/own.h5"
CLOSED = {right.value: False for right in Right}
HEAD = b"H" * 4096
OLD, NEW = HEAD + b"old" * 20, HEAD + b"new" * 20
LAYOUTS: dict[str, dict[str, Any]] = {
    "contiguous": {"class": "H5D_CONTIGUOUS_REF", "file_uri": FILE, "offset": 4096, "size": 60},
    "chunked": {"class": "H5D_CHUNKED_REF", "file_uri": FILE, "dims": [60], "chunks": {"0": [4096, 60]}},
}
WAYS = ("value", "chunks/0/value", "reduce")


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(clock=ManualClock())


@pytest.fixture
async def rest(store: MemoryStore) -> AsyncIterator[RestClient]:
    """A client of bob in his own domain; ann has an open folder."""
    node = DataService(store, ManualClock())
    rest = await RestClient(node, ManualClock(), Principal("ann"), Principal("bob")).open()
    assert (await rest("PUT", "/", {"folder": 1}, domain=FOLDER)).status == 201
    rest.domain, rest.user = OWN, "bob"
    assert (await rest("PUT", "/", {})).status == 201
    yield rest
    await rest.close()
    await node.close()


async def link(rest: RestClient, layout: str) -> str:
    """Return the path of a new dataset that is linked to the file."""
    root = (await rest("GET", "/"))["root"]
    body = {"type": "H5T_STD_U8LE", "shape": [60], "creationProperties": {"layout": LAYOUTS[layout]}}
    reply = await rest("POST", "/datasets", body)
    assert reply.status == 201, reply.body
    target = {"id": reply["id"]}
    assert (await rest("PUT", f"/groups/{root}/links/{reply['id']}", target)).status == 201
    return f"/datasets/{reply['id']}"


async def close(rest: RestClient) -> None:
    assert (await rest("PUT", "/acls/default", CLOSED, domain=FOLDER, user="ann")).status == 201


async def read(rest: RestClient, path: str, way: str, **options: Any) -> tuple[int, Any]:
    params = {"op": "sum"} if way == "reduce" else {}
    accept = {} if way == "reduce" else {"accept": BINARY}
    reply = await rest("GET", f"{path}/{way}", **params, **accept, **options)
    return reply.status, reply.body


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("layout", LAYOUTS)
async def test_a_file_that_came_later_is_for_those_with_the_right(
    rest: RestClient, store: MemoryStore, layout: str, way: str
) -> None:
    path = await link(rest, layout)
    await store.put(FILE, OLD)
    status, before = await read(rest, path, way)
    assert status == 200
    await close(rest)
    assert (await read(rest, path, way))[0] == 403
    assert (await rest("PUT", "/acls/ann", {"read": True})).status == 201
    assert await read(rest, path, way, user="ann") == (200, before)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("layout", LAYOUTS)
async def test_what_a_file_was_changed_to_is_for_those_with_the_right(
    rest: RestClient, store: MemoryStore, layout: str, way: str
) -> None:
    await store.put(FILE, OLD)
    path, other = await link(rest, layout), await link(rest, layout)
    assert (await rest("PUT", "/acls/ann", {"read": True})).status == 201
    await close(rest)
    status, before = await read(rest, other, way)
    assert status == 200, "it is as it was when bob linked it"
    await store.put(FILE, NEW)
    for _ in range(2):
        status, refused = await read(rest, path, way)
        assert (status, "was changed after" in refused["error"]["message"]) == (409, True)
        status, after = await read(rest, path, way, user="ann")
        assert (status, after != before) == (200, True)


async def test_a_domains_file_has_the_changed_file_for_those_with_the_right(
    rest: RestClient, store: MemoryStore
) -> None:
    await store.put(FILE, OLD)
    await link(rest, "contiguous")
    assert (await rest("PUT", "/acls/ann", {"read": True})).status == 201
    await close(rest)

    async def statuses() -> list[int]:
        path = f"/files{OWN}"
        return [(await rest("GET", path, domain=None, user=user)).status for user in ("ann", "bob")]

    assert await statuses() == [200, 200]
    await store.put(FILE, NEW)
    assert (await rest("HEAD", f"/files{OWN}", domain=None, user="ann")).status == 200
    assert await statuses() == [200, 403]
