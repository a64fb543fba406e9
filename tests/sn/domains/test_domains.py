"""Domains and folders: getting, flushing, deleting."""

from __future__ import annotations

import pytest

from hsparse.testing.rest_client import RestClient


async def test_reading_needs_a_right(rest: RestClient) -> None:
    for user, status in (("test_user1", 200), ("test_user2", 403), (None, 403), ("admin", 200), ("joe", 401)):
        assert (await rest("GET", "/", user=user)).status == status


async def test_deleted_and_created_again(rest: RestClient, root: str) -> None:
    group = (await rest("POST", "/groups", {"link": {"id": root, "name": "g"}}))["id"]
    deleted = await rest("DELETE", "/")
    assert (deleted.status, deleted.body) == (200, None)
    assert (await rest("GET", "/")).status == 410
    assert (await rest("DELETE", "/")).status == 410
    again = await rest("PUT", "/", {})
    assert again.status == 201
    assert again["root"] != root
    assert (await rest("GET", f"/groups/{group}")).status == 400
    assert (await rest("GET", "/groups"))["groups"] == []


async def test_only_an_empty_folder_is_deleted(rest: RestClient) -> None:
    folder = "/home/test_user1"
    assert (await rest("DELETE", "/", domain=folder)).status == 409
    assert (await rest("DELETE", "/", user="test_user2")).status == 403
    assert (await rest("DELETE", "/")).status == 200
    assert (await rest("DELETE", "/", domain=folder)).status == 200
    assert (await rest("GET", "/", domain=folder, user="test_user2")).status == 410
    assert (await rest("GET", "/", domain=folder)).status == 200, "one's home comes back"


@pytest.mark.parametrize(
    ("body", "params", "status"),
    [
        (None, {"flush": 1}, 204),
        ({"flush": 1, "getdnids": 1}, {}, 200),
        ({"flush": True}, {"getdnids": 1}, 200),
        (None, {"rescan": 1}, 204),
    ],
)
async def test_flush(rest: RestClient, body: object, params: dict[str, int], status: int) -> None:
    reply = await rest("PUT", "/", body, **params)
    assert reply.status == status
    if status == 200:
        assert reply.body == {"dn_ids": ["dn-001"]}
    assert (await rest("PUT", "/", body, user="test_user2", **params)).status == 403


async def test_everything_in_one_answer(rest: RestClient, root: str) -> None:
    group = (await rest("POST", "/groups", {"link": {"id": root, "name": "g"}}))["id"]
    body = {"type": "H5T_STD_I32LE", "shape": [4], "link": {"id": group, "name": "d"}}
    dataset = (await rest("POST", "/datasets", body))["id"]
    await rest("PUT", f"/datasets/{dataset}/attributes/a", {"type": "H5T_STD_I8LE", "value": 3})
    got = await rest("GET", "/", getdnids=1, getobjs="T", include_attrs="T")
    objects = got["domain_objs"]
    assert set(objects) == {root, group, dataset}
    assert objects[group]["links"]["d"]["id"] == dataset
    assert objects[dataset]["attributes"]["a"]["value"] == 3
    for key in ("id", "root", "created", "type", "shape", "creationProperties"):
        assert key in objects[dataset]


async def test_a_domain_of_any_size_in_one_answer(rest: RestClient, root: str) -> None:
    made: set[str] = {root}
    for first in range(0, 12_000, 4000):
        names = [f"d{n}" for n in range(first, first + 4000)]
        bodies = [{"type": "H5T_STD_I8LE", "link": {"id": root, "name": name}} for name in names]
        reply = await rest("POST", "/datasets", bodies)
        made |= {one["id"] for one in reply["objects"]}
    got = await rest("GET", "/", getobjs=1, include_attrs=1, getdnids=1)
    assert set(got["domain_objs"]) == made
    assert len(got["domain_objs"][root]["links"]) == 12_000
    assert (got["root"], got["dn_ids"]) == (root, ["dn-001"])
    assert "Content-Length" not in got.headers
    assert got.headers["Content-Type"] == "application/json; charset=utf-8"
    listed = (await rest("GET", "/datasets", Limit=7_000))["datasets"]
    assert listed == sorted(made - {root})[:7000]
    assert (await rest("GET", "/datasets", Marker=listed[-1]))["datasets"] == sorted(made - {root})[7000:]
