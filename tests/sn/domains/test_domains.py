"""Domains: creating, getting and deleting them, their second names, and access control lists."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, TypeVar

import pytest

from hsparse.dn.service import DataService
from hsparse.dn.sweep import MIN_AGE, Sweep
from hsparse.errors import Conflict
from hsparse.model.acl import Principal, full_rights
from hsparse.model.ids import deletion_key, tree_prefix
from hsparse.sn.domains import domain_deletion
from hsparse.wire.message import DataNode, Failure, Message
from hsparse.wire.record_message import (
    BeginDeletion,
    ChangedLately,
    ChangeObjects,
    CreateObject,
    DeleteObject,
    DeleteTree,
    Outcome,
    PutAcl,
    PutRecord,
    ReadObjects,
    RecordChange,
)
from tests.sn.conftest import DOMAIN
from tests.support.rest_client import RestClient
from tests.testing.manual_clock import ManualClock
from tests.testing.memory_store import MemoryStore


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


OWNER_RIGHTS = dict.fromkeys(("create", "read", "update", "delete", "readACL", "updateACL"), True)


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


R = TypeVar("R")
LINK = "/home/test_user1/link.h5"


async def mark(node: DataNode, path: str) -> None:
    """Mark a domain as a sweep does."""
    [outcome] = await node.send(ReadObjects((path,)))
    [outcome] = await node.send(ChangeObjects((PutRecord(path, {**outcome.unwrap(), "deleted": 1.0}),)))
    outcome.unwrap()


async def test_a_marked_domain_is_gone_until_it_is_deleted(
    rest: RestClient, node: DataNode, root: str
) -> None:
    assert (await rest("PUT", "/", {"linked_domain": DOMAIN}, domain=LINK)).status == 201
    await mark(node, LINK)
    for path in ("/", f"/groups/{root}", "/acls", "/datasets"):
        assert (await rest("GET", path, domain=LINK)).status == 410
    assert (await rest("PUT", "/", {"linked_domain": LINK}, domain=LINK + "2")).status == 410
    assert (await rest("PUT", "/", {}, domain=LINK)).status == 409
    assert (await rest("DELETE", "/", domain=LINK)).status == 200
    assert (await rest("GET", f"/groups/{root}")).status == 200, "objects with this root are another domain's"
    assert (await rest("PUT", "/", {}, domain=LINK)).status == 201


async def test_a_new_name_for_objects_that_are_gone_is_refused(
    rest: RestClient, node: DataNode, root: str
) -> None:
    [outcome] = await node.send(ChangeObjects((DeleteObject(root),)))
    outcome.unwrap()
    reply = await rest("PUT", "/", {"linked_domain": DOMAIN}, domain=LINK)
    assert reply.status == 409
    assert (await rest("GET", "/", domain=LINK)).status == 410


async def test_a_domain_without_its_root_group_can_be_deleted(
    rest: RestClient, node: DataNode, root: str
) -> None:
    await node.send(ChangeObjects((DeleteObject(root),)))
    assert (await rest("DELETE", "/")).status == 200
    assert (await rest("GET", "/")).status == 410


class Gated:
    """A data node that does not answer messages of a kind, the deletions of trees, while the gate is closed.

    One that is lost does not carry them out; they are sent again, to another one.
    """

    kind: type[Message[Any]] = DeleteTree
    is_lost = False

    def __init__(self, store: MemoryStore, clock: ManualClock) -> None:
        self.service = DataService(store, clock)
        self.reached, self.gate = asyncio.Event(), asyncio.Event()

    async def send(self, message: Message[R]) -> R:
        if isinstance(message, self.kind):
            self.reached.set()
            await self.gate.wait()
            if self.is_lost:
                message = message.as_repeated()
        return await self.service.send(message)

    async def close(self) -> None:
        await self.service.close()


@pytest.fixture
async def gated() -> AsyncIterator[tuple[RestClient, Gated, MemoryStore]]:
    """A client of a server with a domain, its gated data node, and the store."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    node = Gated(store, clock)
    async with RestClient(node, clock, Principal("test_user1")) as client:
        client.domain = DOMAIN
        assert (await client("PUT", "/", {})).status == 201
        yield client, node, store


async def keys(store: MemoryStore, prefix: str) -> list[str]:
    return [entry.key async for page in store.list(prefix) for entry in page.entries]


async def test_the_answer_does_not_wait_for_the_objects(gated: tuple[RestClient, Gated, MemoryStore]) -> None:
    client, node, store = gated
    root = (await client("GET", "/"))["root"]
    assert (await client("DELETE", "/")).status == 200
    assert (await client("GET", "/")).status == 410
    assert await keys(store, tree_prefix(root)) != []
    assert (await client("PUT", "/", {"root_id": root})).status == 409, "the note keeps the root"
    again = (await client("PUT", "/", {}))["root"]
    node.gate.set()
    assert (await client("DELETE", "/", wait=60)).status == 200
    await client.service.component(domain_deletion.DomainDeletions).close()
    assert await keys(store, tree_prefix(root)) == await keys(store, tree_prefix(again)) == []


async def test_a_deletion_leaves_a_domain_that_was_created_meanwhile(
    gated: tuple[RestClient, Gated, MemoryStore],
) -> None:
    """It was begun when another one was at the path, whose record it has read."""
    client, node, store = gated
    root = (await client("GET", "/"))["root"]
    node.kind = BeginDeletion
    late = asyncio.ensure_future(client("DELETE", "/"))
    await node.reached.wait()
    node.kind = DeleteTree
    assert (await client("DELETE", "/", keep_root=1)).status == 200
    client.service.clock.time += 1.0  # type: ignore[attr-defined]
    new = (await client("PUT", "/", {}))["root"]
    node.gate.set()
    assert (await late).status == 404
    assert (await client("GET", "/"))["root"] == new
    assert await keys(store, deletion_key(root)) == []
    assert await keys(store, tree_prefix(root)) != []


@pytest.mark.parametrize("is_created_again", [False, True])
async def test_objects_that_were_moved_stay_though_a_deletion_was_sent_again(
    gated: tuple[RestClient, Gated, MemoryStore], is_created_again: bool
) -> None:
    """The data node dies before it carries out the deletion; the next one finds that the domain has left its name."""
    client, node, store = gated
    root = (await client("GET", "/"))["root"]
    assert (await client("PUT", "/", {"linked_domain": DOMAIN}, domain=LINK)).status == 201
    node.kind, node.is_lost = ChangeObjects, True
    late = asyncio.ensure_future(client("DELETE", "/"))
    await node.reached.wait()
    node.kind = DeleteTree
    assert (await client("DELETE", "/", keep_root=1)).status == 200
    if is_created_again:
        client.service.clock.time += 1.0  # type: ignore[attr-defined]
        assert (await client("PUT", "/", {})).status == 201
    node.gate.set()
    assert (await late).status == 200
    await client.service.component(domain_deletion.DomainDeletions).close()
    assert await keys(store, tree_prefix(root)) != []
    assert await node.service.deletions.resume_all(age=-1.0) == 0, "a sweep looks for other names"
    clock = client.service.clock
    clock.time += 2 * MIN_AGE  # type: ignore[attr-defined]
    await Sweep(store, clock).run()
    assert await keys(store, deletion_key(root)) == []
    assert (await client("GET", f"/groups/{root}", domain=LINK)).status == 200


async def test_a_node_that_stops_leaves_the_objects_to_a_data_node(
    gated: tuple[RestClient, Gated, MemoryStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, node, store = gated
    monkeypatch.setattr(domain_deletion, "LAST_SECONDS", 0.0)
    root = (await client("GET", "/"))["root"]
    assert (await client("DELETE", "/")).status == 200
    await node.reached.wait()
    await client.service.component(domain_deletion.DomainDeletions).close()
    assert await keys(store, deletion_key(root)) == [deletion_key(root)]
    assert await node.service.deletions.resume_all(age=-1.0) == 1
    assert await keys(store, "db/") == []
