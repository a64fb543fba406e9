"""Creating objects and the links to them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hsparse.sn.objects import create
from hsparse.wire.message import DataNode
from hsparse.wire.record_message import ListKeys
from tests.support.rest_client import RestClient


async def test_a_client_chooses_ids_and_creates_several(rest: RestClient, root: str) -> None:
    ids = [f"{root[:19]}-{n:04x}-123456-abcdef" for n in range(3)]
    bodies = [{"id": id, "link": {"id": root, "name": f"n{n}"}} for n, id in enumerate(ids)]
    made = await rest("POST", "/groups", bodies)
    assert made.status == 201
    assert [one["id"] for one in made["objects"]] == ids
    assert (await rest("GET", "/groups"))["groups"] == sorted(ids)
    assert (await rest("POST", "/groups", [{"id": ids[0]}])).status == 409


async def test_a_link_that_is_taken_leaves_no_object_behind(rest: RestClient, root: str) -> None:
    first = await rest("POST", "/groups", {"link": {"id": root, "name": "g"}})
    id = f"{root[:19]}-0000-123456-abcdef"
    assert (await rest("POST", "/groups", {"id": id, "link": {"id": root, "name": "g"}})).status == 409
    assert (await rest("GET", f"/groups/{id}")).status == 410
    assert (await rest("GET", f"/groups/{root}/links/g"))["link"]["id"] == first["id"]


async def test_several_fail_together(rest: RestClient, root: str) -> None:
    other = (await rest("POST", "/groups", {"link": {"id": root, "name": "other"}}))["id"]
    await rest("PUT", f"/groups/{other}/links/taken", {"h5path": "/x"})
    bodies = [{"link": {"id": root, "name": "fine"}}, {"link": {"id": other, "name": "taken"}}]
    assert (await rest("POST", "/groups", bodies)).status == 409
    assert (await rest("GET", f"/groups/{root}/links/fine")).status in (404, 410)
    assert (await rest("GET", "/groups"))["groups"] == [other]


async def test_implicit_makes_missing_parents(rest: RestClient) -> None:
    assert (await rest("POST", "/groups", {"h5path": "/p/q/r"})).status == 404
    made = await rest("POST", "/groups", {"h5path": "/p/q/r"}, implicit=1)
    assert made.status == 201
    assert (await rest("GET", "/", h5path="/p/q/r"))["id"] == made["id"]
    assert (await rest("POST", "/groups", {"h5path": "/p/q/s"})).status == 201
    assert len((await rest("GET", "/groups"))["groups"]) == 4


async def test_missing_parents_are_limited(rest: RestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(create, "MAX_IMPLICIT", 4)
    bodies = [{"h5path": "/a/b/c/x"}, {"h5path": "/a/b/d/e/x"}]
    reply = await rest("POST", "/groups", bodies, implicit=1)
    assert reply.status == 413
    assert "4 groups are missing" in reply["error"]["message"]
    assert (await rest("GET", "/", h5path="/a/b/c/x")).status == 404
    assert (await rest("POST", "/groups", bodies, implicit=1)).status == 201
    assert (await rest("GET", "/", h5path="/a/b/d/e/x")).status == 200


async def test_the_paths_of_new_objects_are_limited(rest: RestClient) -> None:
    rest.service.settings = replace(rest.service.settings, max_path_steps=1000)
    long = {"h5path": "/" + "a/" * 500 + "z"}
    reply = await rest("POST", "/groups", [long, long], implicit=1)
    assert reply.status == 413
    assert "max_path_steps" in reply["error"]["message"]
    assert (await rest("POST", "/groups", {"h5path": "a" * 40_000})).status == 400
    assert (await rest("POST", "/groups", {"h5path": "a/" * 20_000})).status == 400
    assert (await rest("GET", "/groups"))["groups"] == []


@pytest.mark.parametrize(
    "body",
    [
        [],
        "text",
        {"link": {"name": "x"}},
        {"link": "x"},
        {"h5path": "/"},
        {"h5path": 7},
        {"creationProperties": 1},
        {"attributes": []},
        {"links": {"a": {}}},
        {"link": {"id": "g-1", "name": "a/b"}},
    ],
)
async def test_a_bad_body_changes_nothing(rest: RestClient, body: object) -> None:
    reply = await rest("POST", "/groups", body)
    assert reply.status == 400
    assert reply["error"]["message"].endswith(".")
    assert (await rest("GET", "/groups"))["groups"] == []


async def test_attributes_and_links_come_with_a_new_group(rest: RestClient, root: str) -> None:
    body = {
        "attributes": {"a": {"type": "H5T_STD_I32LE", "shape": [2], "value": [1, 2]}},
        "links": {"up": {"id": root}},
        "creationProperties": {"CreateOrder": 1},
    }
    id = (await rest("POST", "/groups", body))["id"]
    shown = await rest("GET", f"/groups/{id}", include_attrs=1, include_links=1)
    assert shown["attributes"]["a"]["value"] == [1, 2]
    assert shown["links"]["up"]["id"] == root
    assert shown["creationProperties"] == {"CreateOrder": 1}


async def test_values_of_what_failed_are_not_left(rest: RestClient, root: str, node: DataNode) -> None:
    await rest("PUT", f"/groups/{root}/links/taken", {"h5path": "/x"})
    body = {
        "type": "H5T_STD_I8LE",
        "shape": [4],
        "value": [1, 2, 3, 4],
        "link": {"id": root, "name": "taken"},
    }
    assert (await rest("POST", "/datasets", body)).status in (400, 409)
    listing = await node.send(ListKeys("db/"))
    assert [key.rpartition("/")[2] for key in listing.keys] == [".group.json"]
