"""Creating domains and folders."""

from __future__ import annotations

import pytest

from hsparse.wire.record_message import CreateObject, DeleteObject
from tests.sn.conftest import DOMAIN
from tests.support.rest_client import RestClient

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


async def test_a_folder_lets_nobody_read_who_may_not_read_its_parent(bare: RestClient) -> None:
    closed, read = dict.fromkeys(OWNER_RIGHTS, False), {key: key == "read" for key in OWNER_RIGHTS}
    lab = "/home/test_user1/lab"
    await bare("PUT", "/", {"folder": 1}, domain=lab)
    await bare("PUT", "/acls/test_user2", closed, domain=lab)
    made = await bare("PUT", "/", {"folder": 1}, domain=f"{lab}/open")
    assert made["acls"]["default"] == read
    assert (await bare("GET", "/domains", domain=f"{lab}/open", user="test_user2")).status == 403
    for user, rights in (("default", closed), ("test_user2", read | {"create": True}), ("g:staff", read)):
        await bare("PUT", f"/acls/{user}", rights, domain=lab)
    theirs = {"domain": f"{lab}/raw", "user": "test_user2"}
    acls = (await bare("PUT", "/", {"folder": 1}, **theirs))["acls"]
    assert {user: {key: entry[key] for key in OWNER_RIGHTS} for user, entry in acls.items()} == {
        "test_user1": read,
        "test_user2": OWNER_RIGHTS,
        "g:staff": read,
        "default": closed,
    }
    await bare("PUT", "/", {"folder": 1}, domain=f"{lab}/raw/deep", user="test_user2")
    for user, status in (("test_user1", 200), ("test_user2", 200), (None, 403)):
        for path in (f"{lab}/raw", f"{lab}/raw/deep"):
            assert (await bare("GET", "/domains", domain=path, user=user)).status == status


async def test_who_may_create_and_not_read_does_not_get_above_what_is_there(bare: RestClient) -> None:
    drop, ben = "/home/test_user1/drop", {"user": "test_user2"}
    await bare("PUT", "/", {"folder": 1}, domain=drop)
    await bare.service.owners.apply(CreateObject(f"{drop}/raw/run.h5", {"owner": "test_user1"}))
    for user, rights in (("default", {"read": False}), ("test_user2", {"create": True})):
        assert (await bare("PUT", f"/acls/{user}", rights, domain=drop)).status == 201
    for body in ({}, {"folder": 1}):
        there = await bare("PUT", "/", body, domain=f"{drop}/raw", **ben)
        assert (there.status, there["error"]["message"]) == (409, f"{drop}/raw exists already.")
    assert (await bare("PUT", "/", {"folder": 1}, domain=f"{drop}/ra", **ben)).status == 201
    assert (await bare("PUT", "/", {"folder": 1}, domain=f"{drop}/raw")).status == 201


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


async def test_a_client_chooses_the_root(bare: RestClient) -> None:
    root = "g-00000000-00000001-8888-888888-888889"
    body = {"root_id": root, "group": {"creationProperties": {"CreateOrder": 1}}}
    assert (await bare("PUT", "/", body, domain=DOMAIN))["root"] == root
    shown = await bare("GET", f"/groups/{root}", domain=DOMAIN)
    assert shown["creationProperties"] == {"CreateOrder": 1}
    assert (await bare("PUT", "/", body, domain=DOMAIN + "2")).status == 409
    assert (await bare("GET", "/", domain=DOMAIN + "2")).status == 404


async def test_objects_that_a_deletion_has_left_are_nobodys(bare: RestClient) -> None:
    """After a crash in a deletion the root group may be gone and datasets still there: nobody may adopt them."""
    root = "g-00000000-00000002-8888-888888-88888a"
    assert (await bare("PUT", "/", {"root_id": root}, domain=DOMAIN)).status == 201
    body = {"type": "H5T_STD_I8LE", "shape": [2], "h5path": "private"}
    assert (await bare("POST", "/datasets", body, domain=DOMAIN)).status == 201
    assert (await bare("DELETE", "/", domain=DOMAIN, keep_root=1)).status == 200
    await bare.service.owners.change(DeleteObject(root))
    other = await bare("PUT", "/", {"root_id": root}, domain=DOMAIN + "2")
    assert other.status == 409
    assert "root_id" in other["error"]["message"]


async def test_a_linked_domain_shares_its_objects(rest: RestClient, root: str) -> None:
    link = "/home/test_user1/link.h5"
    assert (await rest("PUT", "/", {"linked_domain": DOMAIN}, domain=link))["root"] == root
    group = (await rest("POST", "/groups", {"link": {"id": root, "name": "g"}}, domain=link))["id"]
    assert (await rest("GET", f"/groups/{group}")).status == 200
    assert (await rest("DELETE", "/", domain=link, keep_root=1)).status == 200
    assert (await rest("GET", f"/groups/{group}")).status == 200
    assert (await rest("PUT", "/", {"linked_domain": DOMAIN}, domain=link, user="test_user2")).status == 403


async def test_a_link_gives_every_right_and_so_needs_it(rest: RestClient) -> None:
    own = {"domain": "/home/test_user2/linked.h5", "user": "test_user2"}
    body = {"linked_domain": DOMAIN}
    assert (await rest("PUT", "/acls/test_user2", {"read": True, "delete": True})).status == 201
    assert (await rest("PUT", "/", body, **own)).status == 403
    assert (await rest("PUT", "/acls/test_user2", OWNER_RIGHTS)).status == 201
    assert (await rest("PUT", "/", body, **own)).status == 201


async def test_what_is_no_text_is_refused(bare: RestClient) -> None:
    for key in ("linked_domain", "linked_bucket", "root_id"):
        body = (
            {"linked_domain": "/home/test_user1/a.h5", key: {"a": 1}}
            if key == "linked_bucket"
            else {key: [1]}
        )
        reply = await bare("PUT", "/", body, domain="/home/test_user1/new.h5")
        assert reply.status == 400
        assert f"{key} must be a string" in reply["error"]["message"]
