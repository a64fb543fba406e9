"""Maps of datasets and domains, what they go through, and their etags."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest

from hsparse.clock import SystemClock
from hsparse.dn.service import DataService
from hsparse.model.acl import Principal
from hsparse.model.link import left_out_link
from hsparse.sn.chunks.mapped_objects import mapped_objects
from hsparse.sn.records import stored_chunks
from tests.sn.chunks.test_handlers import listed
from tests.sn.dataset_kinds import F32, I16, I32, TEXT, array_of, chunked, compound, sparse
from tests.sn.in_place.file_backed.test_elements import PLAIN, URI
from tests.sn.value_client import SETTINGS, create, put
from tests.support.rest_client import RestClient, answered
from tests.testing.memory_store import MemoryStore


async def placed(client: RestClient, h5path: str, kind: Any, shape: Any, **properties: Any) -> str:
    """Create a dataset at a path; return its own path in the API."""
    body = {"type": kind, "shape": shape, "h5path": h5path, "creationProperties": properties}
    made = await answered(client("POST", "/datasets", body, implicit=1), 201)
    return f"/datasets/{made['id']}"


async def test_a_sparse_dataset_is_described_whole(client: RestClient) -> None:
    filters = [one | {"section": "H5_SECTION_FIXED"} for one in ({"id": 2}, {"id": 1, "level": 5})]
    filters.append({"id": 1, "level": 2, "section": "H5_SECTION_SELECTION"})
    path = await create(
        client, [40, 30], "H5T_STD_I16BE", layout=sparse(16, 8), filters=filters, fillValue=-2
    )
    await put(client, path, {"select": "[3:20,5]", "value": 7})
    found = (await client("GET", f"{path}/map")).body
    assert (found["version"], found["id"]) == (1, path.rpartition("/")[2])
    assert found["type"] == {"class": "H5T_INTEGER", "base": "H5T_STD_I16BE"}
    assert found["shape"]["dims"] == [40, 30]
    assert found["layout"] == {"class": "H5D_STRUCT_CHUNK", "flags": ["H5D_SPARSE_DATA"], "dims": [16, 8]}
    assert found["dtype"] == ">i2"
    assert np.frombuffer(base64.b64decode(found["fillValue"]), ">i2").tolist() == [-2]
    assert found["fillValue_encoding"] == "base64"
    first, second = [{"id": 1, "name": "deflate", "values": [level]} for level in (2, 5)]
    shuffle = {"id": 2, "name": "shuffle", "values": [2]}
    assert found["pipelines"] == [
        {"section": "H5_SECTION_SELECTION", "filters": [first]},
        {"section": "H5_SECTION_FIXED", "filters": [shuffle, second]},
    ]
    assert found["chunks"] == await listed(client, path)
    assert len(found["chunks"]) == 2


async def test_a_dense_dataset(client: RestClient) -> None:
    layout = chunked(16, 16)
    path = await create(client, [40, 30], I32, layout=layout, filters=["lz4", "fletcher32"])
    await put(client, path, {"select": "[0:40,0:30]", "value": 7})
    found = (await client("GET", f"{path}/map")).body
    assert found["layout"] == chunked(16, 16)
    (pipeline,) = found["pipelines"]
    assert [one["name"] for one in pipeline["filters"]] == ["blosc", "fletcher32"]
    assert found["chunks"] == await listed(client, path)


async def test_dense_structured_chunks(client: RestClient) -> None:
    """Of elements of variable length; the sections are told by each object's footer."""
    layout = {"class": "H5D_STRUCT_CHUNK", "dims": [16], "flags": ["H5D_VL_DATA"]}
    path = await create(client, [40], TEXT, layout=layout)
    await put(client, path, {"select": "[0:1]", "value": ["a"]})
    found = (await client("GET", f"{path}/map")).body
    assert found["layout"] == layout | {"dims": found["layout"]["dims"]}
    sections = [one["section"].removeprefix("H5_SECTION_") for one in found["pipelines"]]
    assert sections == ["SELECTION", "FIXED", "VL"]
    assert found["chunks"] == await listed(client, path)


async def test_types_that_are_told_as_numpy_has_them(client: RestClient) -> None:
    item = compound(a="H5T_STD_I32BE", b=array_of(F32, 2, 3))
    array = array_of(I32, 4)
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
    path = await create(client, [5000], I32, layout=sparse(1))
    await put(client, path, {"select": "[0:5000]", "value": 1})
    reply = await client("GET", f"{path}/map", headers={"Accept-Encoding": "identity"})
    assert "Content-Length" not in reply.headers
    rows = reply["chunks"]
    assert sorted(row["scaled"][0] for row in rows) == list(range(5000))
    assert {row["defined"] for row in rows} == {1}


async def test_a_domain_has_all_its_datasets_by_path(client: RestClient) -> None:
    one = await placed(client, "/deep/down/one", I32, [40], layout=sparse(10))
    two = await placed(client, "/two", I32, [4])
    await placed(client, "/nothing", I32, "H5S_NULL")
    await put(client, one, {"select": "[5:25]", "value": 1})
    await put(client, two, {"value": [1, 2, 3, 4]})
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
    table = await placed(client, "/table", PLAIN | {"fields": [*PLAIN["fields"], URI]}, [4])
    layout = {"class": "H5D_CHUNKED_REF_INDIRECT", "dims": [10], "chunk_table": table.rpartition("/")[2]}
    await placed(client, "/linked", I32, [40], layout=layout)
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
    path = await create(client, [300], I32, layout=sparse(1))
    await put(client, path, {"select": "[0:300]", "value": 1})
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
    made = await answered(client("POST", "/groups", {"h5path": "/g"}), 201)
    why = "The filter scaleoffset (id 6) is not available."
    await answered(client("PUT", f"/groups/{made['id']}/links/x", left_out_link(why)), 201)
    found = await answered(client("GET", "/map", format=form, addresses=addresses))
    if form == "kerchunk":
        assert found["skipped"] == {"/g/x": why}
    else:
        assert found["datasets"] == {"/g/x": {"error": {"kind": "left_out", "message": why}}}


async def etag_of(client: RestClient, path: str, **params: object) -> str:
    answer = await answered(client("GET", f"{path}/map", **params))
    return answer.headers["ETag"]


async def test_it_changes_with_the_chunks_and_the_extent(client: RestClient) -> None:
    path = await create(client, [40, 30], I16, maxdims=[0, 0], layout=sparse(16, 8))
    other = await create(client, [40, 30], I16, layout=sparse(16, 8))
    seen = [await etag_of(client, path)]
    before = await etag_of(client, other)
    steps = [
        ("PUT", f"{path}/value", {"select": "[3:20,5]", "value": 7}),
        ("PUT", f"{path}/value", {"select": "[3:20,5]", "value": 8}),
        ("POST", f"{path}/erase", {"select": "[3,5]"}),
        ("PUT", f"{path}/shape", {"shape": [50, 30]}),
        ("PUT", f"{path}/shape", {"shape": [10, 30]}),
    ]
    for method, where, body in steps:
        answer = await client(method, where, body)
        assert answer.status < 300, answer.body
        seen.append(await etag_of(client, path))
    assert len(set(seen)) == len(seen)
    assert await etag_of(client, path) == seen[-1]
    assert await etag_of(client, other) == before


async def test_304_is_answered_for_the_state_that_the_client_has(client: RestClient) -> None:
    path = await create(client, [40, 30], I16, layout=sparse(16, 8))
    await put(client, path, {"select": "[3:20,5]", "value": 7})
    etag = await etag_of(client, path)
    for known in (etag, etag.removeprefix("W/"), f'"x", {etag}', "*"):
        answer = await answered(client("GET", f"{path}/map", headers={"If-None-Match": known}), 304)
        assert answer.headers["ETag"] == etag
    await put(client, path, {"select": "[0,0]", "value": 7})
    assert (await client("GET", f"{path}/map", headers={"If-None-Match": etag})).status == 200


async def test_a_selection_has_the_chunks_that_it_meets(client: RestClient) -> None:
    path = await create(client, [40, 30], I16, layout=sparse(16, 8))
    await put(client, path, {"select": "[0:40:5,0:30:3]", "value": 7})
    found = (await client("GET", f"{path}/map", select="[17:20,0:9]")).body
    assert [row["scaled"] for row in found["chunks"]] == [[1, 0], [1, 1]]
    assert found["shape"]["dims"] == [40, 30]
    for refused in ({"format": "kerchunk"}, {"addresses": "file"}):
        assert (await client("GET", f"{path}/map", select="[0,0]", **refused)).status == 400
    assert (await client("GET", f"{path}/map", select="[99,0]")).status == 400


async def test_groups_come_once_and_datasets_by_each_link(rest: RestClient, root: str) -> None:
    ids = {}
    for path in ("/one", "/a/two", "/a/b/three"):
        ids[path] = (await rest("POST", "/datasets", {"type": I32, "h5path": path}, implicit=1))["id"]
    group = (await rest("GET", "/groups/", h5path="/a"))["id"]
    await rest("PUT", f"/groups/{root}/links/loop", {"id": group})
    await rest("PUT", f"/groups/{group}/links/again", {"id": ids["/one"]})
    targets = {
        "soft": "/one",
        "near": "./two",
        "through": "/loop/b/three",
        "chain": "/a/near",
        "group": "/a/b",
    }
    targets |= {"round": "/a/round", "below": "/one/x", "none": "/none", "gone": "/gone"}
    links = {title: {"h5path": target} for title, target in targets.items()}
    links["far"] = {"h5path": "/one", "file": "other.h5"}
    await rest("PUT", f"/groups/{group}/links", {"links": links})
    gone = (await rest("POST", "/datasets", {"type": I32, "h5path": "/gone"}))["id"]
    await rest("DELETE", f"/datasets/{gone}")
    found = [one async for one in mapped_objects(rest.service.owners, root)]
    assert [one.path for one in found if not one.is_dataset] == ["/", "/a", "/a/b"]
    datasets = [(one.path, one.record["id"], one.first) for one in found if one.is_dataset]
    assert datasets == [
        ("/one", ids["/one"], "/one"),
        ("/a/again", ids["/one"], "/one"),
        ("/a/chain", ids["/a/two"], "/a/chain"),
        ("/a/near", ids["/a/two"], "/a/chain"),
        ("/a/soft", ids["/one"], "/one"),
        ("/a/through", ids["/a/b/three"], "/a/through"),
        ("/a/two", ids["/a/two"], "/a/chain"),
        ("/a/b/three", ids["/a/b/three"], "/a/through"),
    ]
