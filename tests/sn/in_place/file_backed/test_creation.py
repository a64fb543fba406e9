"""Linking datasets to files: what must be there, who may, and what is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from hsparse.clock import SystemClock
from hsparse.dn.service import DataService
from hsparse.model.acl import Principal
from hsparse.sn.service_settings import ServiceSettings
from tests.support.rest_client import RestClient
from tests.testing.memory_store import MemoryStore

CONTIGUOUS: dict[str, Any] = {"class": "H5D_CONTIGUOUS_REF", "file_uri": "free/a.h5", "offset": 0, "size": 40}
INDIRECT: dict[str, Any] = {"class": "H5D_CHUNKED_REF_INDIRECT", "file_uri": "free/a.h5", "dims": [5]}
TABLE = {
    "class": "H5T_COMPOUND",
    "fields": [{"name": "offset", "type": "H5T_STD_I64LE"}, {"name": "size", "type": "H5T_STD_I32LE"}],
}


@pytest.fixture
async def store() -> MemoryStore:
    store = MemoryStore()
    for key in ("free/a.h5", "home/alice/a.h5", "home/alice/open/a.h5", "top.h5"):
        await store.put(key, bytes(100))
    return store


@pytest.fixture
async def client(store: MemoryStore) -> AsyncIterator[RestClient]:
    node = DataService(store, SystemClock())
    users = (Principal("alice"), Principal("bob"), Principal("admin", admin=True))
    settings = ServiceSettings(bucket=store.name)
    client = await RestClient(node, SystemClock(), *users, settings=settings).open()
    for user in ("alice", "bob"):
        assert (await client("PUT", "/", {}, user=user, domain=f"/home/{user}/x.h5")).status == 201
    client.domain = "/home/bob/x.h5"
    client.user = "bob"
    yield client
    await client.close()
    await node.close()


async def link(client: RestClient, layout: dict[str, Any], **options: Any) -> tuple[int, Any]:
    body = {"type": "H5T_STD_I32LE", "shape": [10], "creationProperties": {"layout": layout}}
    reply = await client("POST", "/datasets", body | options.pop("body", {}), **options)
    return reply.status, reply.body


async def test_the_layout_is_shown_as_it_was_asked_for(client: RestClient) -> None:
    status, made = await link(client, CONTIGUOUS)
    assert status == 201
    assert made["creationProperties"]["layout"] == CONTIGUOUS
    assert made["layout"] == {"class": "H5D_CHUNKED", "dims": [10]}
    assert "linkedFile" not in made
    assert (await client("GET", f"/datasets/{made['id']}")).body["creationProperties"]["layout"] == CONTIGUOUS


async def test_0_9_gives_the_layout_beside_the_properties(client: RestClient) -> None:
    body = {"type": "H5T_STD_I32LE", "shape": [10], "layout": CONTIGUOUS}
    reply = await client("POST", "/datasets", body)
    assert (reply.status, reply["creationProperties"]["layout"]) == (201, CONTIGUOUS)


@pytest.mark.parametrize(
    ("uri", "status"),
    [
        ("free/a.h5", 201),
        ("top.h5", 201),
        ("s3://memory/free/a.h5", 201),
        ("memory/free/a.h5", 201),
        ("free/b.h5", 201),
        ("free", 201),
        ("s3://other/free/a.h5", 201),
        ("s3://other/../a.h5", 400),
        ("s3://other/db/a.h5", 400),
        ("s3://ot her/a.h5", 400),
        ("s3://other", 400),
        ("/free/a.h5", 400),
        ("../free/a.h5", 400),
        ("free/../free/a.h5", 400),
        ("file:///etc/passwd", 400),
        ("http://localhost/free/a.h5", 400),
        ("home/alice/x.h5/.domain.json", 400),
        ("x" * 300, 400),
        ("free/\n.h5", 400),
    ],
)
async def test_a_reference_must_be_well_formed(client: RestClient, uri: str, status: int) -> None:
    found, answer = await link(client, CONTIGUOUS | {"file_uri": uri})
    assert (found, answer) == (status, answer)
    if status != 201:
        assert answer["error"]["message"].endswith(".")


async def test_objects_of_domains_are_no_files(client: RestClient, store: MemoryStore) -> None:
    keys = [entry.key async for page in store.list("db/") for entry in page.entries]
    assert keys
    for key in keys:
        assert (await link(client, CONTIGUOUS | {"file_uri": key}))[0] == 400


async def test_the_folder_above_a_file_decides(client: RestClient) -> None:
    alices = CONTIGUOUS | {"file_uri": "home/alice/a.h5"}
    acl = {"read": False}
    assert (await client("PUT", "/acls/default", acl, user="alice", domain="/home/alice")).status in (
        200,
        201,
    )
    status, answer = await link(client, alices)
    assert status == 403
    assert "/home/alice" in answer["error"]["message"]
    assert (await link(client, alices, user="admin"))[0] == 201
    assert (await link(client, alices, user="alice", domain="/home/alice/x.h5"))[0] == 201
    below = CONTIGUOUS | {"file_uri": "home/alice/open/a.h5"}
    assert (await link(client, below))[0] == 403, "the nearest folder with a record is alice's"
    assert (await client("PUT", "/", {"folder": 1}, user="alice", domain="/home/alice/open/")).status == 201
    opened = await client("PUT", "/acls/default", {"read": True}, user="alice", domain="/home/alice/open")
    assert opened.status in (200, 201)
    assert (await link(client, below))[0] == 201


async def test_nothing_is_written(client: RestClient) -> None:
    _, made = await link(client, CONTIGUOUS)
    path = f"/datasets/{made['id']}"
    for reply in (
        await client("PUT", f"{path}/value", {"value": list(range(10))}),
        await client("PUT", f"{path}/value", {"value": 1, "points": [1]}),
        await client("PUT", f"{path}/value", bytes(40)),
        await client("DELETE", f"{path}/value", select="[0:1]"),
    ):
        assert reply.status == 400, reply
    assert (await link(client, CONTIGUOUS, body={"value": [1] * 10}))[0] == 400


async def test_a_linked_dataset_grows_and_does_not_shrink(client: RestClient) -> None:
    layout = {"class": "H5D_CHUNKED_REF", "file_uri": "free/a.h5", "dims": [5], "chunks": {"0": [0, 20]}}
    _, made = await link(client, layout, body={"maxdims": [0]})
    path = f"/datasets/{made['id']}"
    assert (await client("PUT", f"{path}/value", {"append": 2, "value": [1, 2]})).status == 400
    assert (await client("GET", f"{path}/shape"))["shape"]["dims"] == [10]
    assert (await client("PUT", f"{path}/shape", {"shape": [20]})).status == 201
    assert (await client("PUT", f"{path}/shape", {"shape": [9]})).status == 400
    assert (await client("GET", f"{path}/value"))["value"] == [0] * 20


async def test_deleting_leaves_the_file(client: RestClient, store: MemoryStore) -> None:
    _, made = await link(client, CONTIGUOUS)
    assert (await client("DELETE", f"/datasets/{made['id']}")).status == 200
    assert (await client("GET", f"/datasets/{made['id']}/value")).status == 410
    await link(client, CONTIGUOUS)
    assert (await client("DELETE", "/")).status == 200
    assert (await store.get("free/a.h5")).data == bytes(100)


async def test_a_chunk_table_is_checked_when_it_is_there(client: RestClient) -> None:
    async def table(kind: Any, shape: list[int], **body: Any) -> str:
        made = await client("POST", "/datasets", {"type": kind, "shape": shape, **body})
        assert made.status == 201, made
        return str(made["id"])

    good = await table(TABLE, [2])
    assert (await link(client, INDIRECT | {"chunk_table": good}))[0] == 201
    flat = await table("H5T_STD_I64LE", [2])
    other_rank = await table(TABLE, [2, 2])
    sparse = {"layout": {"class": "H5D_STRUCT_CHUNK", "dims": [2], "flags": ["H5D_SPARSE_DATA"]}}
    scattered = await table(TABLE, [2], creationProperties=sparse)
    _, linked = await link(client, CONTIGUOUS)
    for wrong in (flat, other_rank, scattered, linked["id"], "d-1", good.replace("d-", "g-")):
        status, answer = await link(client, INDIRECT | {"chunk_table": wrong})
        assert status == 400, (wrong, answer)
    without = {key: value for key, value in INDIRECT.items() if key != "file_uri"}
    assert (await link(client, without | {"chunk_table": good}))[0] == 400, "nobody names a file"
    later = good[:-6] + "123456"
    status, made = await link(client, INDIRECT | {"chunk_table": later})
    assert status == 201
    assert (await client("GET", f"/datasets/{made['id']}/value")).status == 404


async def test_what_a_file_does_not_have_is_fill_value(client: RestClient) -> None:
    properties = {"layout": CONTIGUOUS, "initializer": ["arange"]}
    status, answer = await link(client, CONTIGUOUS, body={"creationProperties": properties})
    assert status == 400
    assert "initializer" in answer["error"]["message"]


async def test_a_file_that_is_not_there_yet(client: RestClient, store: MemoryStore) -> None:
    _, made = await link(client, CONTIGUOUS | {"file_uri": "home/alice/later.h5"})
    path = f"/datasets/{made['id']}/value"
    reply = await client("GET", path)
    assert (reply.status, "home/alice/later.h5" in reply["error"]["message"]) == (404, True)
    await store.put("home/alice/later.h5", bytes(4) * 9 + b"\1\0\0\0")
    assert (await client("GET", path))["value"] == [0] * 9 + [1]
    await client("PUT", "/acls/default", {"read": False}, user="alice", domain="/home/alice")
    assert (await client("GET", path)).status == 403, "nobody had the right to it when it was linked"
    assert (await client("GET", path, user="admin")).status == 200
    root = (await client("GET", "/"))["root"]
    assert (await client("PUT", f"/groups/{root}/links/d", {"id": made["id"]})).status == 201
    file = await client("GET", "/files/home/bob/x.h5", domain=None)
    assert (file.status, file["error"]["kind"]) == (400, "unsupported")


async def test_a_file_of_another_bucket_is_not_read(client: RestClient) -> None:
    big = {"shape": [50000, 8000000], "type": "H5T_IEEE_F32LE"}
    uri = {"file_uri": "s3://a-storage-bucket/some-file.h5"}
    contiguous = CONTIGUOUS | uri | {"offset": 1234, "size": 1600000000000}
    status, made = await link(client, contiguous, body=big)
    assert (status, made["creationProperties"]["layout"]) == (201, contiguous)
    reply = await client("GET", f"/datasets/{made['id']}/value", select="[0:1,0:1]")
    assert (reply.status, "a-storage-bucket" in reply["error"]["message"]) == (403, True)
    chunked = {"class": "H5D_CHUNKED_REF", "dims": [5], "chunks": {"1": [0, 20]}} | uri
    status, made = await link(client, chunked)
    assert (status, made["creationProperties"]["layout"]) == (201, chunked)
    path = f"/datasets/{made['id']}/value"
    assert (await client("GET", path, select="[0:5]"))["value"] == [0] * 5, "no entry, no file"
    assert (await client("GET", path, select="[0:6]")).status == 403
    assert (await link(client, CONTIGUOUS | uri | {"size": 0}, body={"shape": [0, 10]}))[0] == 201
