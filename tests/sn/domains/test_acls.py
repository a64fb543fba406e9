"""A domain's access control lists."""

from __future__ import annotations

from hsparse.testing.rest_client import RestClient

ALL = ("create", "read", "update", "delete", "readACL", "updateACL")


async def test_the_owner_has_everything(rest: RestClient) -> None:
    mine = {"userName": "test_user1", **dict.fromkeys(ALL, True)}
    assert (await rest("GET", "/acls"))["acls"] == [mine]
    assert (await rest("GET", "/acls/test_user1"))["acl"] == mine
    assert (await rest("GET", "/acls/joebob")).status == 404


async def test_rights_are_given_in_parts(rest: RestClient, root: str) -> None:
    assert (await rest("GET", "/", user="test_user2")).status == 403
    assert (await rest("PUT", "/acls/test_user2", {"read": True, "update": False})).status == 201
    assert (await rest("GET", "/", user="test_user2")).status == 200
    attribute = {"type": "H5T_STD_I32LE", "value": 1}
    assert (await rest("PUT", f"/groups/{root}/attributes/w", attribute, user="test_user2")).status == 403
    await rest("PUT", "/acls/test_user2", {"create": True})
    assert (await rest("PUT", f"/groups/{root}/attributes/w", attribute, user="test_user2")).status == 201
    acl = (await rest("GET", "/acls/test_user2"))["acl"]
    assert {key for key in ALL if acl[key]} == {"read", "create"}


async def test_by_group_and_for_all(rest: RestClient) -> None:
    assert (await rest("PUT", "/acls/g:test_group", {"read": True})).status == 201
    assert (await rest("GET", "/", user="test_user2")).status == 200
    assert (await rest("GET", "/", user=None)).status == 403
    await rest("PUT", "/acls/default", {"read": True})
    assert (await rest("GET", "/", user=None)).status == 200


async def test_reading_ones_own_acl_needs_only_reading(rest: RestClient) -> None:
    await rest("PUT", "/acls/test_user2", {"read": True})
    assert (await rest("GET", "/acls/test_user2", user="test_user2")).status == 200
    assert (await rest("GET", "/acls/default", user="test_user2")).status == 404
    assert (await rest("GET", "/acls/test_user1", user="test_user2")).status == 403
    assert (await rest("GET", "/acls", user="test_user2")).status == 403
    assert (await rest("PUT", "/acls/test_user2", {"create": True}, user="test_user2")).status == 403


async def test_what_is_no_right_changes_nothing(rest: RestClient) -> None:
    before = (await rest("GET", "/acls"))["acls"]
    bodies: tuple[object, ...] = ({"fly": True}, {"read": "yes"}, [], {"read": 1})
    for body in bodies:
        assert (await rest("PUT", "/acls/test_user2", body)).status == 400
    assert (await rest("GET", "/acls"))["acls"] == before


async def test_acls_are_inherited_from_the_folder(bare: RestClient) -> None:
    folder = "/home/test_user1"
    await bare("GET", "/", domain=folder)
    await bare("PUT", "/acls/test_user2", {"read": True}, domain=folder)
    await bare("PUT", "/acls/joe", {"read": False}, domain=folder)
    made = await bare("PUT", "/", {}, domain=f"{folder}/x.h5")
    assert set(made["acls"]) == {"test_user1", "test_user2"}
