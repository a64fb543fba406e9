"""Conformance tests of a `DataNode` for records, over a fixture `node` on an empty store."""

from __future__ import annotations

import asyncio
from typing import Any

from hsparse.clock import SystemClock
from hsparse.errors import ErrorKind
from hsparse.model.ids import (
    is_delta_key,
    job_id_of_key,
    job_key_prefix,
    new_id,
    new_job_id,
    new_root_id,
    summary_id,
    tree_prefix,
)
from hsparse.wire.message import DataNode, Record
from hsparse.wire.record_message import (
    MAX_SECOND_NAMES,
    AddSecondName,
    ChangedLately,
    ChangeObjects,
    CreateObject,
    DeleteAttributes,
    DeleteLinks,
    DeleteObject,
    DeleteTree,
    ForgetFirstName,
    ForgetSecondName,
    ListKeys,
    Outcome,
    PutAcl,
    PutAttributes,
    PutLinks,
    PutRecord,
    ReadObjects,
    RecordChange,
    SetFields,
    SettleChanges,
)
from tests.testing.manual_clock import ManualClock

CLOCK = SystemClock()
INT = {"type": "H5T_STD_I32LE", "shape": {"class": "H5S_SCALAR"}, "value": 1}
HARD = {"class": "H5L_TYPE_HARD", "id": "g-1"}


def new_group() -> tuple[str, dict[str, Any]]:
    id = new_root_id(CLOCK)
    return id, {"id": id, "root": id, "links": {}, "attributes": {}, "created": 1.0, "lastModified": 1.0}


async def change(node: DataNode, change: RecordChange) -> Outcome:
    return (await node.send(ChangeObjects((change,))))[0]


async def created(node: DataNode, **fields: Any) -> str:
    id, record = new_group()
    (await change(node, CreateObject(id, {**record, **fields}))).unwrap()
    return id


async def record_of(node: DataNode, id: str) -> dict[str, Any]:
    return (await node.send(ReadObjects((id,))))[0].unwrap()


def kind(outcome: Outcome) -> str | None:
    return None if outcome.failure is None else outcome.failure.kind


async def test_what_is_created_is_read(node: DataNode) -> None:
    id, record = new_group()
    outcome = await change(node, CreateObject(id, record))
    assert (outcome.created, outcome.changed, outcome.failure) == (True, True, None)
    assert await record_of(node, id) == record


async def test_records_keep_json_as_it_is(node: DataNode) -> None:
    value = {"list": [1, 2.5, None, "é", [True, {}]], "empty": [], "!": "x", "deep": {"a": {"b": [[]]}}}
    id = await created(node, odd=value)
    assert (await record_of(node, id))["odd"] == value


async def test_creating_twice_is_a_conflict(node: DataNode) -> None:
    id = await created(node)
    assert kind(await change(node, CreateObject(id, {"id": id}))) == ErrorKind.CONFLICT
    assert (await record_of(node, id))["root"] == id


async def test_what_never_was_is_not_found_and_what_was_deleted_is_gone(node: DataNode) -> None:
    id, _ = new_group()
    assert kind((await node.send(ReadObjects((id,))))[0]) == ErrorKind.NOT_FOUND
    assert kind(await change(node, DeleteObject(id))) == ErrorKind.NOT_FOUND
    id = await created(node)
    assert kind(await change(node, DeleteObject(id))) is None
    assert kind((await node.send(ReadObjects((id,))))[0]) == ErrorKind.GONE
    assert kind(await change(node, PutLinks(id, {"a": HARD}))) == ErrorKind.GONE


async def test_a_path_can_be_created_again(node: DataNode) -> None:
    path = "/home/user/file.h5"
    for owner in "ab":
        assert (await change(node, CreateObject(path, {"owner": owner}))).created
        assert (await record_of(node, path))["owner"] == owner
        assert kind(await change(node, DeleteObject(path))) is None


async def test_a_path_is_deleted_only_with_the_record_that_was_seen(node: DataNode) -> None:
    path, root = "/home/user/file.h5", new_root_id(CLOCK)
    for created, found in ((1.0, {}), (1.0, {"root": root}), (2.0, {"root": root})):
        seen = {"created": created, "root": found.get("root")}
        (await change(node, CreateObject(path, {"created": created, **found}))).unwrap()
        for other in (seen | {"created": 3.0}, seen | {"root": new_root_id(CLOCK)}, seen | {"owner": "me"}):
            outcome = await change(node, DeleteObject(path, other))
            assert (kind(outcome), outcome.changed) == (ErrorKind.NOT_FOUND, False)
        assert (await record_of(node, path))["created"] == created
        (await change(node, DeleteObject(path, seen))).unwrap()
        assert kind(await change(node, DeleteObject(path, seen))) == ErrorKind.GONE


async def test_a_repeated_deletion_of_what_is_gone_is_a_success_and_no_change(node: DataNode) -> None:
    path, seen = "/home/user/file.h5", {"created": 1.0}
    again = ChangeObjects((DeleteObject(path, seen),)).as_repeated()
    for there in (None, {"created": 2.0}):
        if there is not None:
            (await change(node, CreateObject(path, there))).unwrap()
        [outcome] = await node.send(again)
        assert (outcome.failure, outcome.changed) == (None, False), "others may have deleted it"
    assert await record_of(node, path) == {"created": 2.0}
    [outcome] = await node.send(ChangeObjects((DeleteObject(path, {"created": 2.0}),)).as_repeated())
    assert (outcome.failure, outcome.changed) == (None, True)


async def test_a_record_is_put_whatever_is_there(node: DataNode) -> None:
    id = "s-00000000-00000001"
    outcome = await change(node, PutRecord(id, {"n": 1, "lastModified": 5.0}))
    assert (outcome.changed, outcome.failure) == (True, None)
    assert (await change(node, PutRecord(id, {"m": 2, "lastModified": 4.0}))).changed
    assert await record_of(node, id) == {"m": 2, "lastModified": 4.0}


async def test_fields_are_set_unless_another_field_is_there(node: DataNode) -> None:
    id = new_job_id("ada", CLOCK)
    assert (
        kind(await change(node, SetFields(id, {"done": 1}, unless="ended", renew=True)))
        == ErrorKind.NOT_FOUND
    )
    (await change(node, CreateObject(id, {"owner": "ada", "lastModified": 1.0}))).unwrap()
    record = (await change(node, SetFields(id, {"done": 1}, unless="ended", renew=True))).unwrap()
    assert (record["owner"], record["done"]) == ("ada", 1)
    assert record["lastModified"] > 1.0
    (await change(node, SetFields(id, {"ended": 5.0, "status": "done"}, unless="ended", renew=True))).unwrap()
    assert (
        kind(await change(node, SetFields(id, {"done": 2}, unless="ended", renew=True))) == ErrorKind.CONFLICT
    )
    assert (await record_of(node, id))["done"] == 1


async def test_jobs_of_a_user_are_listed_by_age(node: DataNode) -> None:
    clock = ManualClock()
    made = {}
    for owner in ("ada", "ben", "ada"):
        clock.time += 1
        made[clock.time] = new_job_id(owner, clock)
        await change(node, CreateObject(made[clock.time], {"owner": owner}))
    listing = await node.send(ListKeys(job_key_prefix("ada")))
    assert [job_id_of_key(key) for key in listing.keys] == [id for _, id in sorted(made.items())][::2]
    (await change(node, DeleteObject(job_id_of_key(listing.keys[0])))).unwrap()
    assert len((await node.send(ListKeys(job_key_prefix("ada")))).keys) == 1


async def test_attributes(node: DataNode) -> None:
    id = await created(node)
    outcome = await change(node, PutAttributes(id, {"a": INT}))
    assert (outcome.created, outcome.changed, outcome.record) == (True, True, None)
    outcome = await change(node, PutAttributes(id, {"a": INT}))
    assert (outcome.created, outcome.changed, kind(outcome)) == (False, False, None)
    other = {**INT, "value": 2}
    assert kind(await change(node, PutAttributes(id, {"b": INT, "a": other}))) == ErrorKind.CONFLICT
    assert set((await record_of(node, id))["attributes"]) == {"a"}
    first = (await record_of(node, id))["attributes"]["a"]["created"]
    assert first > 0
    outcome = await change(node, PutAttributes(id, {"a": {**INT, "value": 3, "created": 9}}, replace=True))
    assert (outcome.created, outcome.changed) == (False, True)
    assert (await record_of(node, id))["attributes"]["a"]["created"] == first
    outcome = await change(node, PutAttributes(id, {"a": other}, replace=True))
    assert (outcome.created, outcome.changed) == (False, True)
    stored = (await record_of(node, id))["attributes"]["a"]
    assert (stored["value"], stored["created"]) == (2, first)
    await change(node, PutAttributes(id, {"b": {**INT, "created": 7}}))
    assert (await record_of(node, id))["attributes"]["b"]["created"] == 7
    assert kind(await change(node, DeleteAttributes(id, ("a", "z")))) == ErrorKind.NOT_FOUND
    assert kind(await change(node, DeleteAttributes(id, ("a",)))) is None
    assert kind(await change(node, DeleteAttributes(id, ("a",)))) == ErrorKind.GONE
    outcome = await change(node, DeleteAttributes(id, ("a", "z"), skip_missing=True))
    assert (outcome.changed, kind(outcome)) == (False, None)
    assert (await change(node, DeleteAttributes(id, ("a", "b", "z"), skip_missing=True))).changed
    assert kind(await change(node, DeleteAttributes(id, ("b",)))) == ErrorKind.GONE
    assert kind(await change(node, DeleteAttributes(id, ("z",)))) == ErrorKind.NOT_FOUND


async def test_links(node: DataNode) -> None:
    id = await created(node)
    assert (await change(node, PutLinks(id, {"x": HARD, "y": HARD}))).created
    outcome = await change(node, PutLinks(id, {"x": HARD}))
    assert (outcome.created, outcome.changed, kind(outcome)) == (False, False, None)
    assert kind(await change(node, PutLinks(id, {"x": {**HARD, "id": "g-2"}}))) == ErrorKind.CONFLICT
    assert kind(await change(node, DeleteLinks(id, ("x", "z")))) == ErrorKind.NOT_FOUND
    assert kind(await change(node, DeleteLinks(id, ("x",)))) is None
    assert kind(await change(node, DeleteLinks(id, ("x",)))) == ErrorKind.GONE
    outcome = await change(node, DeleteLinks(id, ("x", "z"), skip_missing=True))
    assert (outcome.changed, kind(outcome)) == (False, None)
    assert kind(await change(node, DeleteLinks(id, ("z",)))) == ErrorKind.NOT_FOUND
    assert list((await record_of(node, id))["links"]) == ["y"]
    await change(node, PutLinks(id, {"then": {**HARD, "created": 7.25}}))
    assert (await record_of(node, id))["links"]["then"]["created"] == 7.25
    await change(node, PutLinks(id, {"then": {**HARD, "created": 8.25}}))
    assert (await record_of(node, id))["links"]["then"]["created"] == 7.25


async def test_links_that_take_the_place_of_others(node: DataNode) -> None:
    id, other = await created(node), {**HARD, "id": "g-2"}
    await change(node, PutLinks(id, {"x": HARD, "y": HARD, "z": HARD}))
    refused = await change(node, PutLinks(id, {"x": other, "y": other}, ("x", "z")))
    assert kind(refused) == ErrorKind.CONFLICT
    assert list((await record_of(node, id))["links"]) == ["x", "y", "z"], "all or none"
    swap = PutLinks(id, {"x": other, "y": HARD, "new": HARD}, ("x", "y", "z", "nothing"))
    assert (await change(node, swap)).changed
    links = (await record_of(node, id))["links"]
    assert {title: link["id"] for title, link in links.items()} == {
        "x": "g-2",
        "y": HARD["id"],
        "new": HARD["id"],
    }
    assert not (await change(node, swap)).changed, "the same again"
    assert (await record_of(node, id))["links"] == links
    assert kind(await change(node, DeleteLinks(id, ("z",)))) == ErrorKind.GONE


async def test_changes_of_one_object_at_once_all_stay(node: DataNode) -> None:
    id = await created(node)
    names = [f"a{i}" for i in range(40)]
    await asyncio.gather(*(change(node, PutAttributes(id, {name: INT})) for name in names))
    assert set((await record_of(node, id))["attributes"]) == set(names)


async def test_fields_within_a_map_are_merged(node: DataNode) -> None:
    id = await created(node)
    await change(node, SetFields(id, {"bytes": 10}, "quota"))
    await change(node, SetFields(id, {"used": 3, "counted": 1.5}, "quota"))
    assert (await record_of(node, id))["quota"] == {"bytes": 10, "used": 3, "counted": 1.5}
    assert not (await change(node, SetFields(id, {"used": 3}, "quota"))).changed
    await change(node, SetFields(id, {"bytes": None, "used": None, "counted": None}, "quota"))
    assert "quota" not in await record_of(node, id)


async def test_an_acl_is_merged(node: DataNode) -> None:
    id = await created(node, acls={"me": {"read": True, "update": True}})
    assert not (await change(node, PutAcl(id, "me", {"update": False}, "b/home/me"))).created
    assert (await change(node, PutAcl(id, "you", {"read": True}, "b/home/me"))).created
    acls = (await record_of(node, id))["acls"]
    assert acls["me"]["read"] is True
    assert acls["me"]["update"] is False
    assert acls["you"] == {
        "create": False,
        "read": True,
        "update": False,
        "delete": False,
        "readACL": False,
        "updateACL": False,
        "domain": "b/home/me",
    }


async def test_an_acl_is_removed(node: DataNode) -> None:
    id = await created(node, acls={"me": {"read": True}, "you": {"read": True}})
    assert (await change(node, PutAcl(id, "you", None, "b/home/me"))).changed
    assert (await record_of(node, id))["acls"] == {"me": {"read": True}}
    assert not (await change(node, PutAcl(id, "you", None, "b/home/me"))).changed


async def test_an_acl_is_put_only_where_what_allowed_it_stands(node: DataNode) -> None:
    mine: Record = {"updateACL": True}
    id = await created(node, created=1.0, acls={"me": mine})
    seen: Record = {"created": 1.0, "root": id}

    async def put(user: str, expect: Record, expect_acls: Record) -> str | None:
        return kind(await change(node, PutAcl(id, user, {"read": True}, "b/x", expect, expect_acls)))

    before = await record_of(node, id)
    for expect, entries in (
        (seen | {"created": 2.0}, {"me": mine}),
        (seen | {"root": None}, {"me": mine}),
        (seen, {"me": {"updateACL": False}}),
        (seen, {"me": mine, "you": mine}),
        (seen, {"me": None}),
    ):
        assert await put("you", expect, entries) == ErrorKind.CONFLICT
    assert await record_of(node, id) == before
    assert await put("you", seen | {"no": None}, {"me": mine, "g:us": None}) is None
    assert await put("me", seen, {"me": mine}) is None
    assert await put("me", seen, {"me": mine}) == ErrorKind.CONFLICT


async def test_names_of_a_domain(node: DataNode) -> None:
    first, second = "/home/me/a.h5", "/home/me/b.h5"
    (await change(node, CreateObject(first, {"created": 1.0, "lastModified": 1.0}))).unwrap()
    for by in ("you", "me"):
        named = (await change(node, AddSecondName(first, second, by))).unwrap()
    assert named == {"created": 1.0, "lastModified": 1.0, "secondNames": {second: "me"}}
    (await change(node, CreateObject(second, {"firstName": {"path": first, "created": 1.0}}))).unwrap()
    for release in (True, False):
        for path, created, changed in ((second, 1.0, False), (first, 2.0, False), (first, 1.0, True)):
            forget = ForgetFirstName(second, path, created, release)
            assert (await change(node, forget)).changed is changed
        assert (await change(node, ForgetFirstName(second, first, 1.0, release))).changed is False
        released = {"firstName": {"path": first, "created": 1.0, "released": True}}
        assert await record_of(node, second) == (released if release else {})
    for path, changed in ((first, False), (second, True), (second, False)):
        assert (await change(node, ForgetSecondName(first, path))).changed is changed
    assert await record_of(node, first) == {"created": 1.0, "lastModified": 1.0}


async def test_a_domain_has_so_many_second_names(node: DataNode) -> None:
    first = "/home/me/a.h5"
    (await change(node, CreateObject(first, {"created": 1.0}))).unwrap()
    names = [f"/home/me/{place}.h5" for place in range(MAX_SECOND_NAMES)]
    for path in (*names, names[0]):
        (await change(node, AddSecondName(first, path, "me"))).unwrap()
    assert kind(await change(node, AddSecondName(first, first, "me"))) == ErrorKind.TOO_LARGE
    assert set((await record_of(node, first))["secondNames"]) == set(names)
    (await change(node, ForgetSecondName(first, names[3]))).unwrap()
    (await change(node, AddSecondName(first, first, "me"))).unwrap()


async def test_a_change_of_an_object_is_recent_until_it_is_settled(node: DataNode) -> None:
    root, other = new_root_id(CLOCK), new_root_id(CLOCK)
    assert not await node.send(ChangedLately(root, 60.0))
    await change(node, CreateObject(root, {"id": root, "root": root, "attributes": {}}))
    assert await node.send(ChangedLately(root, 60.0))
    assert not await node.send(ChangedLately(root, 0.0))
    assert not await node.send(ChangedLately(other, 60.0))
    await node.send(SettleChanges(root))
    assert not await node.send(ChangedLately(root, 60.0))
    await change(node, PutRecord(summary_id(root), {}))
    assert kind(await change(node, DeleteAttributes(root, ("a",)))) == ErrorKind.NOT_FOUND
    assert not await node.send(ChangedLately(root, 60.0)), "neither a summary nor a failure is a change"
    await change(node, PutAttributes(root, {"a": INT}))
    assert await node.send(ChangedLately(root, 60.0))


async def test_outcomes_come_in_the_order_asked(node: DataNode) -> None:
    ids = [await created(node, number=i) for i in range(5)]
    missing, _ = new_group()
    outcomes = await node.send(ReadObjects((*ids[::-1], missing)))
    assert [outcome.record and outcome.record["number"] for outcome in outcomes] == [4, 3, 2, 1, 0, None]


async def test_listing_and_deleting_a_tree(node: DataNode) -> None:
    root = await created(node)
    ids = [new_id("groups", root, CLOCK) for _ in range(3)]
    for id in ids:
        (await change(node, CreateObject(id, {"id": id}))).unwrap()
    other = await created(node)
    listing = await node.send(ListKeys("db/", limit=2))
    assert len(listing.keys) == 2
    assert listing.more
    rest = await node.send(ListKeys("db/", start_after=listing.keys[-1]))
    keys = [*listing.keys, *rest.keys]
    assert len([key for key in keys if not is_delta_key(key)]) == 5
    assert not rest.more
    assert len((await node.send(ListKeys("db/", delimiter=True))).prefixes) == 2
    inside = [key for key in keys if key.startswith(tree_prefix(root))]
    assert await node.send(DeleteTree(root)) == len(inside)
    assert all(kind(outcome) for outcome in await node.send(ReadObjects((root, *ids))))
    assert (await record_of(node, other))["id"] == other


def stored_attribute(value: Any) -> Record:
    """Return the stored form of a scalar attribute; no test asks whether the value fits the type."""
    return {"type": "H5T_STD_I64LE", "shape": {"class": "H5S_SCALAR"}, "value": value}


def remove_checksum(data: bytes) -> bytes:
    """Return the JSON of a stored record without its checksum."""
    return data[: data.rindex(b",\n")] + b"}"
