"""Maps of datasets and domains: all that one needs to read them, whatever their number of chunks."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from hsparse.clock import SystemClock
from hsparse.dn.service import DataService
from hsparse.model.acl import Principal
from hsparse.model.link import left_out_link
from hsparse.sn.records import stored_chunks
from tests.sn.chunks.test_handlers import listed
from tests.sn.in_place.file_backed.test_elements import PLAIN, URI
from tests.sn.value_client import SETTINGS, create, sparse, value_client
from tests.support.rest_client import RestClient
from tests.testing.memory_store import MemoryStore

INT = "H5T_STD_I32LE"
TEXT = {"class": "H5T_STRING", "charSet": "H5T_CSET_UTF8", "length": "H5T_VARIABLE"}


@pytest.fixture
async def client() -> AsyncIterator[RestClient]:
    async with value_client() as client:
        yield client


async def placed(client: RestClient, h5path: str, kind: Any, shape: Any, **properties: Any) -> str:
    """Create a dataset at a path; return its own path in the API."""
    body = {"type": kind, "shape": shape, "h5path": h5path, "creationProperties": properties}
    made = await client("POST", "/datasets", body, implicit=1)
    assert made.status == 201, made.body
    return f"/datasets/{made['id']}"


async def test_a_sparse_dataset_is_described_whole(client: RestClient) -> None:
    filters = [
        {"id": 2, "section": "H5_SECTION_FIXED"},
        {"id": 1, "level": 5, "section": "H5_SECTION_FIXED"},
        {"id": 1, "level": 2, "section": "H5_SECTION_SELECTION"},
    ]
    path = await create(
        client, [40, 30], "H5T_STD_I16BE", layout=sparse(16, 8), filters=filters, fillValue=-2
    )
    await client("PUT", f"{path}/value", {"select": "[3:20,5]", "value": 7})
    found = (await client("GET", f"{path}/map")).body
    assert found["version"] == 1
    assert found["id"] == path.rpartition("/")[2]
    assert found["type"] == {"class": "H5T_INTEGER", "base": "H5T_STD_I16BE"}
    assert found["shape"]["dims"] == [40, 30]
    assert found["layout"] == {"class": "H5D_STRUCT_CHUNK", "flags": ["H5D_SPARSE_DATA"], "dims": [16, 8]}
    assert found["dtype"] == ">i2"
    assert np.frombuffer(base64.b64decode(found["fillValue"]), ">i2").tolist() == [-2]
    assert found["fillValue_encoding"] == "base64"
    assert found["pipelines"] == [
        {"section": "H5_SECTION_SELECTION", "filters": [{"id": 1, "name": "deflate", "values": [2]}]},
        {
            "section": "H5_SECTION_FIXED",
            "filters": [
                {"id": 2, "name": "shuffle", "values": [2]},
                {"id": 1, "name": "deflate", "values": [5]},
            ],
        },
    ]
    assert found["chunks"] == await listed(client, path)
    assert len(found["chunks"]) == 2


async def test_a_dense_dataset(client: RestClient) -> None:
    layout = {"class": "H5D_CHUNKED", "dims": [16, 16]}
    path = await create(client, [40, 30], INT, layout=layout, filters=["lz4", "fletcher32"])
    await client("PUT", f"{path}/value", {"select": "[0:40,0:30]", "value": 7})
    found = (await client("GET", f"{path}/map")).body
    assert found["layout"] == {"class": "H5D_CHUNKED", "dims": [16, 16]}
    (pipeline,) = found["pipelines"]
    assert [one["name"] for one in pipeline["filters"]] == ["blosc", "fletcher32"]
    assert found["chunks"] == await listed(client, path)


async def test_dense_structured_chunks(client: RestClient) -> None:
    """Of elements of variable length; the sections are told by each object's footer."""
    layout = {"class": "H5D_STRUCT_CHUNK", "dims": [16], "flags": ["H5D_VL_DATA"]}
    path = await create(client, [40], TEXT, layout=layout)
    await client("PUT", f"{path}/value", {"select": "[0:1]", "value": ["a"]})
    found = (await client("GET", f"{path}/map")).body
    assert found["layout"] == layout | {"dims": found["layout"]["dims"]}
    assert [one["section"] for one in found["pipelines"]] == [
        "H5_SECTION_SELECTION",
        "H5_SECTION_FIXED",
        "H5_SECTION_VL",
    ]
    assert found["chunks"] == await listed(client, path)


async def test_types_that_are_told_as_numpy_has_them(client: RestClient) -> None:
    item = {
        "class": "H5T_COMPOUND",
        "fields": [
            {"name": "a", "type": "H5T_STD_I32BE"},
            {"name": "b", "type": {"class": "H5T_ARRAY", "base": "H5T_IEEE_F32LE", "dims": [2, 3]}},
        ],
    }
    array = {"class": "H5T_ARRAY", "base": INT, "dims": [4]}
    for kind, dtype, size in ((item, [["a", ">i4"], ["b", "<f4", [2, 3]]], 28), (array, ["<i4", [4]], 16)):
        path = await create(client, [3], kind)
        found = (await client("GET", f"{path}/map")).body
        assert found["dtype"] == dtype
        assert len(base64.b64decode(found["fillValue"])) == size
    path = await create(client, [3], TEXT)
    found = (await client("GET", f"{path}/map")).body
    assert not {"dtype", "fillValue"} & set(found)
    assert found["chunks"] == []


async def test_a_map_of_many_chunks_is_whole(client: RestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a page, and more than is sent in one piece."""
    monkeypatch.setattr(stored_chunks, "CHUNK_PAGE", 700)
    path = await create(client, [5000], INT, layout=sparse(1))
    await client("PUT", f"{path}/value", {"select": "[0:5000]", "value": 1})
    reply = await client("GET", f"{path}/map", headers={"Accept-Encoding": "identity"})
    assert "Content-Length" not in reply.headers
    rows = reply["chunks"]
    assert sorted(row["scaled"][0] for row in rows) == list(range(5000))
    assert {row["defined"] for row in rows} == {1}


async def test_a_domain_has_all_its_datasets_by_path(client: RestClient) -> None:
    one = await placed(client, "/deep/down/one", INT, [40], layout=sparse(10))
    two = await placed(client, "/two", INT, [4])
    await placed(client, "/nothing", INT, "H5S_NULL")
    await client("PUT", f"{one}/value", {"select": "[5:25]", "value": 1})
    await client("PUT", f"{two}/value", {"value": [1, 2, 3, 4]})
    root = (await client("GET", "/"))["root"]
    await client("PUT", f"/groups/{root}/links/again", {"id": two.rpartition("/")[2]})
    await client("PUT", f"/groups/{root}/links/soft", {"h5path": "/two"})
    found = (await client("GET", "/map")).body
    assert (found["version"], found["domain"], found["root"]) == (1, client.domain, root)
    assert set(found["datasets"]) == {"/again", "/soft", "/two", "/nothing", "/deep/down/one"}
    assert found["datasets"]["/deep/down/one"] == (await client("GET", f"{one}/map")).body
    assert found["datasets"]["/again"] == (await client("GET", f"{two}/map")).body
    for alias in ("/soft", "/two"):
        assert found["datasets"][alias] == {"id": two.rpartition("/")[2], "alias": "/again"}
    assert found["datasets"]["/nothing"]["error"]["kind"] == "bad_request"


async def test_what_is_wrong_with_one_dataset_is_told_in_its_place(client: RestClient) -> None:
    item = PLAIN | {"fields": [*PLAIN["fields"], URI]}
    table = await placed(client, "/table", item, [4])
    layout = {"class": "H5D_CHUNKED_REF_INDIRECT", "dims": [10], "chunk_table": table.rpartition("/")[2]}
    await placed(client, "/linked", INT, [40], layout=layout)
    assert (await client("GET", "/map"))["datasets"]["/linked"]["chunks"] == []
    assert (await client("DELETE", table)).status == 200
    found = (await client("GET", "/map"))["datasets"]
    assert list(found) == ["/linked"]
    assert found["/linked"]["error"]["kind"] == "gone"
    assert table.rpartition("/")[2] in found["/linked"]["error"]["message"]


async def test_an_empty_domain_and_a_folder(client: RestClient) -> None:
    assert (await client("GET", "/map"))["datasets"] == {}
    assert (await client("GET", "/map", domain="/home/admin")).status == 400


async def test_two_data_nodes_make_one_map() -> None:
    clock, store = SystemClock(), MemoryStore()
    nodes: dict[str, Any] = {name: DataService(store, clock, id=name) for name in ("dn-001", "dn-002")}
    client = await RestClient(nodes, clock, Principal("admin", admin=True), settings=SETTINGS).open()
    client.domain = "/two"
    assert (await client("PUT", "/", {})).status == 201
    path = await create(client, [300], INT, layout=sparse(1))
    await client("PUT", f"{path}/value", {"select": "[0:300]", "value": 1})
    rows = (await client("GET", f"{path}/map"))["chunks"]
    assert len(rows) == 300
    for row in rows[:20]:
        name = str(row["scaled"][0])
        assert (await client("GET", f"{path}/chunks/{name}")).body == row
        assert len((await client("GET", f"{path}/chunks/{name}/value")).body) == row["size"]
    await client("DELETE", path)
    assert not [page async for page in store.list(row["key"].rpartition("/")[0])]
    await client.close()
    for node in nodes.values():
        await node.close()


@pytest.mark.parametrize("form", ["json", "kerchunk"])
@pytest.mark.parametrize("addresses", ["objects", "file"])
async def test_what_the_domain_leaves_out_is_named(client: RestClient, form: str, addresses: str) -> None:
    made = await client("POST", "/groups", {"h5path": "/g"})
    assert made.status == 201, made.body
    why = "The filter scaleoffset (id 6) is not available."
    reply = await client("PUT", f"/groups/{made['id']}/links/x", left_out_link(why))
    assert reply.status == 201, reply.body
    found = await client("GET", "/map", format=form, addresses=addresses)
    assert found.status == 200, found.body
    if form == "kerchunk":
        assert found["skipped"] == {"/g/x": why}
    else:
        assert found["datasets"] == {"/g/x": {"error": {"kind": "left_out", "message": why}}}
