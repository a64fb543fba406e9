"""A map with addresses of the domain's file is of the state that the file's etag names, or is not answered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from hsparse.hdf5.virtual_file.file_plans import FilePlans, PlannedFile
from tests.sn.file_domain import INT, TEXT, place
from tests.sn.value_client import sparse, value_client
from tests.sn.virtual_file.test_file_chunks import file_map
from tests.support.rest_client import RestClient
from tests.testing.memory_store import MemoryStore


@pytest.fixture
async def client() -> AsyncIterator[RestClient]:
    async with value_client() as client:
        yield client


@pytest.mark.parametrize("layout", ["stock", "structured"])
async def test_the_file_is_told(client: RestClient, layout: str) -> None:
    id = await place(client, "/s", INT, [40], 5, select="[0:40]", layout=sparse(10))
    told = (await file_map(client, layout=layout))["file"]
    assert told["layout"] == layout
    assert told["href"] == f"{client.url}/files{client.domain}?layout={layout}"
    head = await client("HEAD", f"/files{client.domain}", domain=None, layout=layout)
    assert head.headers["ETag"] == f'"{told["etag"]}"'
    assert head.headers["Content-Length"] == str(told["size"])
    assert (await file_map(client, f"/datasets/{id}", layout=layout))["file"] == told


async def test_a_changed_domain_has_another_map(client: RestClient) -> None:
    id = await place(client, "/s", INT, [40], 5, select="[0:20]", layout=sparse(10))
    before = (await file_map(client))["file"]
    await client("PUT", f"/datasets/{id}/value", {"select": "[3]", "value": 6})
    after = (await file_map(client))["file"]
    assert after["etag"] != before["etag"]
    assert after["size"] == before["size"]


def changed_when_planned(client: RestClient, monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    """Let the next plan be followed by a change of the domain."""
    planned = client.service.component(FilePlans).current

    async def current(*named: Any, check: bool) -> PlannedFile:
        found = await planned(*named, check=check)
        monkeypatch.setattr(client.service.component(FilePlans), "current", planned)
        method, path, body = change
        made = await client(method, path, body)
        assert made.status in (200, 201), made.body
        return found

    monkeypatch.setattr(client.service.component(FilePlans), "current", current)


@pytest.mark.parametrize(
    ("name", "method", "where", "body"),
    [
        ("a chunk is written", "PUT", "{s}/value", {"select": "[3]", "value": 6}),
        ("a chunk is new", "PUT", "{s}/value", {"select": "[33]", "value": 6}),
        ("the first chunk of all", "PUT", "{empty}/value", {"value": [1, 2, 3]}),
        ("a chunk is erased", "DELETE", "{s}/value?select=[0:10]", None),
        ("a shrink", "PUT", "{s}/shape", {"shape": [5]}),
        ("an attribute", "PUT", "{s}/attributes/a", {"type": INT, "shape": [], "value": 1}),
        ("a dataset is deleted", "DELETE", "{s}", None),
        ("a link is deleted", "DELETE", "{root}/links/s", None),
        ("a group's attribute", "PUT", "{root}/attributes/a", {"type": INT, "shape": [], "value": 1}),
    ],
)
@pytest.mark.parametrize("format", ["json", "kerchunk"])
async def test_a_change_meanwhile_is_refused(
    client: RestClient,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    method: str,
    where: str,
    body: Any,
    format: str,
) -> None:
    ids = {
        "s": await place(client, "/s", INT, [40], 5, select="[0:20]", layout=sparse(10), maxdims=[0]),
        "empty": await place(client, "/empty", INT, [3]),
    }
    paths = {name: f"/datasets/{id}" for name, id in ids.items()}
    paths["root"] = f"/groups/{(await client('GET', '/'))['root']}"
    changed_when_planned(client, monkeypatch, (method, where.format(**paths), body))
    refused = await client("GET", "/map", addresses="file", format=format)
    assert (refused.status, refused["error"]["kind"]) == (412, "precondition_failed"), name
    assert "changed while" in refused["error"]["message"]
    assert (await client("GET", "/map", addresses="file", format=format)).status == 200


async def test_a_dataset_that_no_link_leads_to(client: RestClient) -> None:
    made = await client("POST", "/datasets", {"type": INT, "shape": [3]})
    refused = await client("GET", f"/datasets/{made['id']}/map", addresses="file")
    assert (refused.status, "No hard link" in refused["error"]["message"]) == (409, True)


async def test_linked_data_is_in_another_file() -> None:
    store = MemoryStore()
    await store.put("files/a.h5", bytes(40))
    layout = {"class": "H5D_CONTIGUOUS_REF", "file_uri": "files/a.h5", "offset": 0, "size": 40}
    async with value_client(store) as client:
        id = await place(client, "/linked", INT, [10], layout=layout)
        told = (await client("GET", "/map", addresses="file"))["datasets"]["/linked"]
        assert (told["id"], told["error"]["kind"]) == (id, "unsupported")
        refused = await client("GET", f"/datasets/{id}/map", addresses="file")
        assert (refused.status, refused["error"]["kind"]) == (400, "unsupported")
        skipped = (await client("GET", "/map", addresses="file", format="kerchunk"))["skipped"]
        assert "in a backing file" in skipped["/linked"]


async def test_chunks_that_are_converted_are_in_no_map(client: RestClient) -> None:
    sparse = {"class": "H5D_STRUCT_CHUNK", "dims": [4], "flags": ["H5D_SPARSE_DATA", "H5D_VL_DATA"]}
    await place(client, "/words", TEXT, [8], ["a"] * 8, layout=sparse)
    asked = {"addresses": "file", "layout": "structured"}
    assert "chunks" in (await client("GET", "/map", **asked))["datasets"]["/words"]
    told = (await client("GET", "/map", **asked, revision="rfc-2025-10"))["datasets"]["/words"]
    assert (told["error"]["kind"], "are converted" in told["error"]["message"]) == ("unsupported", True)


async def test_rights_are_the_domains(bare: RestClient) -> None:
    domain = "/home/test_user1/file.h5"
    assert (await bare("PUT", "/", {}, domain=domain)).status == 201
    assert (await bare("GET", "/map", domain=domain, addresses="file")).status == 200
    assert (await bare("PUT", "/acls/default", {"read": False}, domain=domain)).status == 201
    refused = await bare("GET", "/map", domain=domain, addresses="file", user="test_user2")
    assert refused.status == 403


@pytest.mark.parametrize(
    "query",
    [
        {"addresses": "disk"},
        {"addresses": "file", "layout": "other"},
        {"layout": "stock"},
        {"addresses": "objects", "layout": "structured"},
        {"addresses": "file", "urls": "60", "format": "kerchunk"},
    ],
)
async def test_what_cannot_be_asked(client: RestClient, query: dict[str, str]) -> None:
    id = await place(client, "/s", INT, [40])
    for path in ("", f"/datasets/{id}"):
        assert (await client("GET", f"{path}/map", **query)).status == 400
