"""Domains and folders: getting, flushing, deleting; and access control lists."""

from __future__ import annotations

import pytest

from hsparse.errors import Conflict
from hsparse.model.acl import full_rights
from hsparse.wire.message import DataNode, Failure
from hsparse.wire.record_message import ChangedLately, Outcome, PutAcl, RecordChange
from tests.sn.conftest import DOMAIN
from tests.support.rest_client import RestClient


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


async def test_objects_that_change_are_not_listed_for_keeping(
    rest: RestClient, root: str, node: DataNode
) -> None:
    """h5pyd 1.0 keeps `domain_objs` for as long as it has the file: `refresh` would never see it grow."""
    body = {"type": "H5T_STD_I8LE", "shape": [0], "maxdims": [0]}
    dataset = (await rest("POST", "/datasets", body))["id"]
    await rest("PUT", "/", {"rescan": 1})
    assert dataset not in (await rest("GET", "/", getobjs=1))["domain_objs"], "no link leads to it"
    await rest("PUT", f"/groups/{root}/links/d", {"id": dataset})
    assert "domain_objs" not in (await rest("GET", "/", getobjs=1)).body
    assert dataset in (await rest("GET", "/", getobjs=1, include_attrs=1))["domain_objs"]
    while await node.send(ChangedLately(root, 10.0)):  # the clock goes on by a second
        pass
    assert dataset in (await rest("GET", "/", getobjs=1))["domain_objs"]
    await rest("PUT", f"/datasets/{dataset}/shape", {"shape": [4]})
    assert "domain_objs" not in (await rest("GET", "/", getobjs=1)).body
    await rest("PUT", "/", {}, flush=1, rescan=1)
    assert (await rest("GET", "/", getobjs=1))["domain_objs"][dataset]["shape"]["dims"] == [4]


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
    assert acl["domain"] == f"hsparse{DOMAIN}"


async def test_an_entry_that_is_removed_decides_no_more(rest: RestClient) -> None:
    await rest("PUT", "/acls/default", {"read": True})
    await rest("PUT", "/acls/test_user2", {"read": False})
    assert (await rest("GET", "/", user="test_user2")).status == 403
    assert (await rest("DELETE", "/acls/test_user2", user="test_user2")).status == 403
    assert (await rest("DELETE", "/acls/test_user2")).status == 200
    assert (await rest("GET", "/acls/test_user2")).status == 404
    assert (await rest("GET", "/", user="test_user2")).status == 200
    assert (await rest("DELETE", "/acls/test_user2")).status == 404


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
    assert made["acls"]["test_user2"]["domain"] == f"hsparse{folder}", "where it was set"
    assert "domain" not in made["acls"]["test_user1"]
    await bare("PUT", "/acls/test_user2", {"update": True}, domain=f"{folder}/x.h5")
    acls = (await bare("GET", "/acls", domain=f"{folder}/x.h5"))["acls"]
    assert [acl.get("domain") for acl in acls] == [None, f"hsparse{folder}/x.h5"]


async def test_a_right_that_is_taken_away_meanwhile_cannot_be_given_back(
    rest: RestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner takes it away when the change of the other one has been allowed, and not been applied."""
    await rest("PUT", "/acls/test_user2", full_rights())
    none = dict.fromkeys(full_rights(), False)
    change = rest.service.owners.change
    turns: list[tuple[RecordChange, ...]] = []

    async def changed_later(*changes: RecordChange) -> list[Outcome]:
        turns.append(changes)
        if len(turns) == 1:
            assert (await rest("PUT", "/acls/test_user2", none)).status == 201
        return await change(*changes)

    monkeypatch.setattr(rest.service.owners, "change", changed_later)
    assert (await rest("PUT", "/acls/test_user2", full_rights(), user="test_user2")).status == 403
    assert (await rest("GET", "/acls/test_user2"))["acl"].items() >= none.items()


async def test_changes_of_what_allows_a_change_of_an_acl_are_seen_and_it_is_made(
    rest: RestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = rest.service.owners.change
    turns: list[tuple[RecordChange, ...]] = []

    async def changed_later(*changes: RecordChange) -> list[Outcome]:
        turns.append(changes)
        if len(turns) < 4:
            assert isinstance(changes[0], PutAcl)
            return [Outcome(failure=Failure.of(Conflict("It is another one now.")))]
        return await change(*changes)

    monkeypatch.setattr(rest.service.owners, "change", changed_later)
    assert (await rest("PUT", "/acls/test_user2", {"read": True})).status == 201
    assert len(turns) == 4
