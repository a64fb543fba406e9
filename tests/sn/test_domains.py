"""Domains and folders: creating, getting, objects by path, flushing, deleting."""

from __future__ import annotations

import pytest

from hsparse.testing.rest_client import RestClient
from tests.sn.conftest import DOMAIN

OWNER_RIGHTS = dict.fromkeys(("create", "read", "update", "delete", "readACL", "updateACL"), True)


async def test_a_new_domain_is_as_hsds_answers_it(bare: RestClient) -> None:
    made = await bare("PUT", "/", {}, domain=DOMAIN)
    assert made.status == 201
    assert made["owner"] == "test_user1"
    assert made["acls"] == {"test_user1": OWNER_RIGHTS}
    assert set(made.body) == {
        "root",
        "owner",
        "acls",
        "created",
        "lastModified",
        "limits",
        "compressors",
        "version",
    }
    got = await bare("GET", "/", domain=DOMAIN, getdnids=1)
    assert (got["root"], got["class"], got["dn_ids"]) == (made["root"], "domain", ["dn-001"])
    assert [one["rel"] for one in got["hrefs"]] == [
        "self",
        "database",
        "groupbase",
        "typebase",
        "root",
        "acls",
        "parent",
    ]
    by_header = await bare("GET", "/", headers={"X-Hdf-domain": DOMAIN})
    assert by_header["root"] == made["root"]


async def test_a_folder_can_be_read_by_all(bare: RestClient) -> None:
    made = await bare("PUT", "/", {"folder": True}, domain="/home/test_user1/f")
    assert made["acls"]["default"] == {key: key == "read" for key in OWNER_RIGHTS}
    assert "root" not in made.body
    got = await bare("GET", "/", domain="/home/test_user1/f", user="test_user2")
    assert (got.status, got["class"]) == (200, "folder")
    assert [one["rel"] for one in got["hrefs"]] == ["self", "domains", "acls", "parent"]


@pytest.mark.parametrize(
    ("path", "body", "user", "status"),
    [
        (DOMAIN, {}, "test_user1", 409),
        ("/home/test_user1/none/x.h5", {}, "test_user1", 404),
        (DOMAIN + "/x.h5", {}, "test_user1", 400),
        ("/home/test_user1/y.h5", {}, "test_user2", 403),
        ("/home/test_user1/y.h5", {}, None, 403),
        ("/home/test_user1/y.h5", {}, "nobody", 401),
        ("/top", {"folder": True}, "test_user1", 403),
        ("/top", {"folder": True}, "admin", 201),
        ("/home/test_user1/y.h5", {"owner": "test_user2"}, "test_user1", 403),
        ("/home/test_user1/y.h5", {"owner": "test_user2"}, "admin", 201),
        ("/home/test_user1/y.h5", {"root_id": "g-1"}, "test_user1", 400),
        ("/home/test_user1/y.h5", {"group": 7}, "test_user1", 400),
        ("/home/test_user1/y.h5", {"folder": True, "linked_domain": DOMAIN}, "test_user1", 400),
        ("/home/test_user1/y.h5", {"linked_domain": "/home/test_user1/nope"}, "test_user1", 404),
        ("/", {}, "admin", 400),
        (None, {}, "admin", 400),
    ],
)
async def test_who_may_create_what(
    rest: RestClient, path: str | None, body: dict[str, object], user: str, status: int
) -> None:
    assert (await rest("PUT", "/", body, domain=path, user=user)).status == status


async def test_reading_needs_a_right(rest: RestClient) -> None:
    for user, status in (("test_user1", 200), ("test_user2", 403), (None, 403), ("admin", 200), ("joe", 401)):
        assert (await rest("GET", "/", user=user)).status == status


async def test_a_client_chooses_the_root(bare: RestClient) -> None:
    root = "g-00000000-00000001-8888-888888-888889"
    body = {"root_id": root, "group": {"creationProperties": {"CreateOrder": 1}}}
    assert (await bare("PUT", "/", body, domain=DOMAIN))["root"] == root
    shown = await bare("GET", f"/groups/{root}", domain=DOMAIN)
    assert shown["creationProperties"] == {"CreateOrder": 1}
    assert (await bare("PUT", "/", body, domain=DOMAIN + "2")).status == 409
    assert (await bare("GET", "/", domain=DOMAIN + "2")).status == 404


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


async def test_a_linked_domain_shares_its_objects(rest: RestClient, root: str) -> None:
    link = "/home/test_user1/link.h5"
    assert (await rest("PUT", "/", {"linked_domain": DOMAIN}, domain=link))["root"] == root
    group = (await rest("POST", "/groups", {"link": {"id": root, "name": "g"}}, domain=link))["id"]
    assert (await rest("GET", f"/groups/{group}")).status == 200
    assert (await rest("DELETE", "/", domain=link, keep_root=1)).status == 200
    assert (await rest("GET", f"/groups/{group}")).status == 200
    assert (await rest("PUT", "/", {"linked_domain": DOMAIN}, domain=link, user="test_user2")).status == 403


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


async def test_verbose_counts(rest: RestClient, root: str) -> None:
    group = (await rest("POST", "/groups", {"link": {"id": root, "name": "g"}}))["id"]
    body = {"type": "H5T_STD_I32LE", "shape": [4], "link": {"id": group, "name": "d"}}
    dataset = (await rest("POST", "/datasets", body))["id"]
    got = await rest("GET", "/", verbose=1)
    assert (got["num_groups"], got["num_datasets"], got["num_datatypes"], got["num_chunks"]) == (2, 1, 0, 0)
    assert got["num_objects"] == 3
    assert got["scan_info"]["datasets"][dataset]["logical_bytes"] == 16
    assert got["total_size"] == got["metadata_bytes"] > 0


async def test_objects_by_path(rest: RestClient, root: str) -> None:
    group = (await rest("POST", "/groups", {"link": {"id": root, "name": "g1"}}))["id"]
    inner = (await rest("POST", "/groups", {"link": {"id": group, "name": "in"}}))["id"]
    await rest("PUT", f"/groups/{root}/links/soft", {"h5path": "/g1"})
    await rest("PUT", f"/groups/{group}/links/back", {"h5path": "../in"})
    found = await rest("GET", "/", h5path="/g1/in")
    assert (found["id"], found["class"]) == (inner, "group")
    assert (await rest("GET", "/", h5path="in", parent_id=group))["id"] == inner
    assert (await rest("GET", "/", h5path="/"))["id"] == root
    assert (await rest("GET", "/", h5path="/soft/in")).status == 400
    assert (await rest("GET", "/", h5path="soft/in", follow_soft_links=1))["id"] == inner
    assert (await rest("GET", "/", h5path="/g1/nope")).status == 404
    assert (await rest("GET", "/groups/", h5path="/g1"))["id"] == group
    assert (await rest("GET", "/datasets/", h5path="/g1")).status == 404
    assert (await rest("GET", "/groups/", h5path="g1")).status == 400
    many = await rest("POST", "/", {"h5paths": ["/g1", "/g1/in"]})
    assert {path: one["id"] for path, one in many["h5paths"].items()} == {"/g1": group, "/g1/in": inner}
    assert (await rest("POST", "/", {"h5paths": ["/g1", "/nope"]})).status == 404
    assert (await rest("POST", "/", {})).status == 400


async def test_a_circle_of_soft_links_ends(rest: RestClient, root: str) -> None:
    await rest("PUT", f"/groups/{root}/links/a", {"h5path": "/b"})
    await rest("PUT", f"/groups/{root}/links/b", {"h5path": "a"})
    reply = await rest("GET", "/", h5path="/a", follow_soft_links=1)
    assert reply.status == 400
    assert "circle" in reply["error"]["message"]


async def test_an_external_link_needs_the_right_to_read(rest: RestClient, root: str) -> None:
    other = "/home/test_user2/o.h5"
    there = (await rest("PUT", "/", {}, domain=other, user="test_user2"))["root"]
    await rest("PUT", f"/groups/{root}/links/ext", {"h5path": "/", "file": "hdf5:/" + other})
    assert (await rest("GET", "/", h5path="/ext")).status == 400
    assert (await rest("GET", "/", h5path="/ext", follow_external_links=1)).status == 403
    await rest("PUT", "/acls/test_user1", {"read": True}, domain=other, user="test_user2")
    found = await rest("GET", "/", h5path="/ext", follow_external_links=1)
    assert (found["id"], found["domain"]) == (there, other)
