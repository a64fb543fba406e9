"""Clones: domains that share what a snapshot has until they are changed; rights and room for all about versions."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from hsparse.errors import Forbidden
from hsparse.model.ids import storage_key
from hsparse.versions import clone_handlers
from tests.support.rest_client import BINARY
from tests.testing.store_wrapper import SlowStore
from tests.versions.conftest import DENSE, DOMAIN, SPARSE, Versioned

CLONE = "/home/admin/clone"
ROOT_GROUP = "/.group.json"


async def clone(past: Versioned, target: str = CLONE, **body: Any) -> str:
    options = {"domain": body.pop("domain", DOMAIN), "user": body.pop("user", "admin")}
    return str((await past.done("POST", "/clones", {"target": target, **body}, **options))["root"])


@pytest.mark.parametrize("layout", [DENSE, SPARSE], ids=["dense", "sparse"])
async def test_neither_sees_what_is_changed_in_the_other(past: Versioned, layout: dict[str, Any]) -> None:
    kept, gone = [await past.create(name, 30, layout) for name in ("kept", "gone")]
    for id in (kept, gone):
        await past.write(id, 0, range(30))
    await past.snapshot()
    await past.write(kept, 0, [100])
    await clone(past, snapshot=1)
    there = await past.links(domain=CLONE)
    assert await past.read(there["kept"], domain=CLONE) == list(range(30))
    await past.write(there["kept"], 10, [200], domain=CLONE)
    await past.done("DELETE", f"/datasets/{there['gone']}", domain=CLONE)
    await past.write(gone, 0, [300])
    await past.restart()
    assert await past.read(kept) == [100, *range(1, 30)]
    assert await past.read(gone) == [300, *range(1, 30)]
    assert await past.read(there["kept"], domain=CLONE) == [*range(10), 200, *range(11, 30)]
    assert await past.read(kept, domain=CLONE) == [*range(10), 200, *range(11, 30)]  # as references have it
    assert (await past.rest("GET", f"/datasets/{there['gone']}", domain=CLONE)).status in (404, 410)
    again = await past.create("again", 10, layout, domain=CLONE)
    await past.write(again, 0, range(10), domain=CLONE)
    assert set(await past.links(domain=CLONE)) == {"kept", "gone", "again"}
    assert set(await past.links()) == {"kept", "gone"}


async def test_what_a_clone_costs_does_not_depend_on_the_size(past: Versioned) -> None:
    await past.done("GET", "/", domain="/home/admin")
    await past.snapshot()
    past.store.reset()
    await clone(past, snapshot=1)
    small = dict(past.store.calls)
    await past.filled(1000)
    await past.snapshot()
    past.store.reset()
    await clone(past, f"{CLONE}2", snapshot=2)
    assert past.store.calls == small
    assert past.store.puts == 3


async def test_a_snapshot_that_a_clone_needs_stays_and_its_domain_too(past: Versioned) -> None:
    id = await past.filled(30)
    root = await clone(past)
    listed = await past.done("GET", "/snapshots")
    assert listed["clones"] == [{"domain": CLONE, "snapshot": 1}]
    assert (await past.done("GET", "/snapshots", domain=CLONE))["base"] == {"domain": DOMAIN, "snapshot": 1}
    for path in ("/snapshots/1", "/"):
        reply = await past.rest("DELETE", path)
        assert (reply.status, CLONE in str(reply.body)) == (409, True), reply
    await past.write(id, 0, [7])
    both_there = asyncio.Barrier(2)

    async def wait(method: str, key: str) -> None:
        if (method, key) == ("put_if_match", storage_key(root)):
            await both_there.wait()

    past.store.store = SlowStore(past.memory, wait, after=False)
    both = [past.done("POST", "/clones/materialize", {}, domain=CLONE) for _ in range(2)]
    assert sum([one["copied"] for one in await asyncio.gather(*both)]) == 5
    assert (await past.done("POST", "/clones/materialize", {}, domain=CLONE))["copied"] == 0
    await past.done("DELETE", "/snapshots/1")
    await past.done("DELETE", "/", wait=10)
    await past.restart()
    there = await past.links(domain=CLONE)
    assert await past.read(there["kept"], domain=CLONE) == list(range(30))
    await past.done("DELETE", "/", domain=CLONE, wait=10)
    assert set(await past.keys()) <= {"db/.schema.json"}


async def test_a_clone_has_snapshots_and_clones(past: Versioned) -> None:
    id = await past.filled(30, SPARSE)
    await clone(past)
    first = (await past.links(domain=CLONE))["kept"]
    await past.write(first, 0, [1] * 5, domain=CLONE)
    await past.snapshot(domain=CLONE)
    await past.write(first, 0, [2] * 15, domain=CLONE)
    await clone(past, f"{CLONE}2", domain=f"{CLONE}@1")
    second = (await past.links(domain=f"{CLONE}2"))["kept"]
    for domain in (f"{CLONE}@1", f"{CLONE}2"):  # references have the first domain's ids
        assert await past.read(id, domain=domain) == [*[1] * 5, *range(5, 30)]
    assert await past.read(second, domain=f"{CLONE}2") == [*[1] * 5, *range(5, 30)]
    assert (await past.rest("DELETE", "/", domain=CLONE)).status == 409
    await past.done("POST", "/snapshots/1/restore", {}, domain=CLONE)
    assert await past.read(first, domain=CLONE) == [*[1] * 5, *range(5, 30)]
    for path in (f"{CLONE}2", CLONE, DOMAIN):
        await past.done("DELETE", "/", domain=path, wait=10)
    assert set(await past.keys()) <= {"db/.schema.json"}


async def test_a_clone_is_its_makers_and_needs_the_right_to_read(past: Versioned) -> None:
    await past.create("kept", 5, DENSE)
    await past.snapshot()
    mine = "/home/ann/mine"
    body = {"target": mine, "snapshot": 1}
    assert (await past.rest("POST", "/clones", body, user="ann")).status == 403
    await past.done("PUT", "/acls/ann", {"read": True})
    assert (await past.rest("POST", "/clones", {"target": mine}, user="ann")).status == 403
    assert (await past.rest("POST", "/clones", body | {"target": "/home/ben/x"}, user="ann")).status in (
        403,
        404,
    )
    await clone(past, mine, snapshot=1, user="ann")
    await past.done("PUT", "/acls/ann", {"read": False})
    id = (await past.links(domain=mine, user="ann"))["kept"]
    await past.write(id, 0, [3], domain=mine, user="ann")
    for wrong in (
        {"target": mine, "snapshot": 1},
        {"target": "/home/ann/b", "snapshot": 9},
        {},
        {"target": "/home/ann/b@2"},
    ):
        assert (await past.rest("POST", "/clones", wrong)).status in (400, 404, 409), wrong
    assert (await past.done("GET", "/snapshots"))["clones"] == [{"domain": mine, "snapshot": 1}]


async def test_a_clone_that_fails_leaves_no_snapshot(
    past: Versioned, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: Any) -> None:
        raise Forbidden("Nothing is made in a folder of files that are only read.")

    monkeypatch.setattr(clone_handlers, "create_clone", refuse)
    assert (await past.rest("POST", "/clones", {"target": CLONE})).status == 403
    assert (await past.done("GET", "/snapshots"))["snapshots"] == []


async def test_who_does_not_know_clones_is_told_so_by_the_root_group(past: Versioned) -> None:
    await past.create("kept", 5, DENSE)
    root = await clone(past)
    key = next(key for key in await past.keys() if root[2:19] in key and key.endswith(ROOT_GROUP))
    stub = json.loads((await past.memory.get(key)).data)
    assert stub["schema"]["readFeatures"] == ["clones"]
    assert "links" not in stub


async def test_ids_of_its_source_in_bodies_are_its_own(past: Versioned) -> None:
    """Else who has a clone reads what became of the source since, and writes there, without any right."""
    id = await past.create("kept", 2, DENSE)
    root = (await past.done("GET", "/"))["root"]
    type = {"type": "H5T_STD_I32LE", "link": {"id": root, "name": "type"}}
    named = (await past.done("POST", "/datatypes", type))["id"]
    mine = await clone(past)
    await past.write(id, 0, [7, 7])
    own = (await past.links(domain=CLONE))["kept"]
    await past.done("PUT", f"/groups/{mine}/links/put", {"id": id}, domain=CLONE)
    await past.done("POST", "/groups", {"links": {"made": {"id": id}}, "h5path": "group"}, domain=CLONE)
    links = await past.links(domain=CLONE)
    assert links["put"] == own
    group = await past.done("GET", f"/groups/{links['group']}/links/made", domain=CLONE)
    assert group["link"]["id"] == own
    new = {"type": named, "shape": [1], "id": id[:-1] + ("0" if id[-1] != "0" else "1")}
    assert (await past.done("POST", "/datasets", new, domain=CLONE))["id"][:20] == own[:20]
    table = {"class": "H5D_CHUNKED_REF_INDIRECT", "dims": [1], "chunk_table": id}
    body = {"type": "H5T_STD_I32LE", "shape": [2], "creationProperties": {"layout": table}}
    refused = await past.rest("POST", "/datasets", body, domain=CLONE)
    assert (refused.status, own in refused["error"]["message"]) == (400, True), refused.body
    reads = {"reads": [{"ids": [id]}]}
    for there in ({"domain": CLONE}, {"snapshot": 1}):
        reply = await past.done("POST", "/datasets/values", reads, accept=BINARY, **there)
        assert reply.body[8:16] == bytes(8)
    assert (await past.done("GET", f"/datasets/{id}/value", domain=DOMAIN))["value"] == [7, 7]


ALL = ("create", "read", "update", "delete")
MINE = "/home/ann/mine"
NEEDED: dict[str, tuple[str, str, dict[str, Any], tuple[str, ...]]] = {
    "take": ("POST", "/snapshots", {}, ("update",)),
    "list": ("GET", "/snapshots", {}, ("read",)),
    "look": ("GET", "/snapshots/1", {}, ("read",)),
    "delete": ("DELETE", "/snapshots/1", {}, ("delete",)),
    "restore": ("POST", "/snapshots/1/restore", {}, ("create", "update", "delete")),
    "diff": ("GET", "/snapshots/1/diff", {}, ("read",)),
    "changes": ("GET", "/changes?since=0", {}, ("read",)),
    "clone": ("POST", "/clones", {"target": MINE, "snapshot": 1}, ("read",)),
    "clone of now": ("POST", "/clones", {"target": MINE}, ("read", "update")),
    "file": ("GET", f"/files{DOMAIN}@1", {}, ("read",)),
    "materialize": ("POST", "/clones/materialize", {}, ("update",)),
}
CASES = [(name, right) for name in NEEDED for right in ALL]


@pytest.mark.parametrize(("name", "withheld"), CASES)
async def test_what_is_withheld_is_refused_if_it_is_needed(past: Versioned, name: str, withheld: str) -> None:
    method, path, body, needed = NEEDED[name]
    id = await past.filled(20)
    await past.snapshot()
    if name == "materialize":
        await past.done("POST", "/clones", {"target": CLONE, "snapshot": 1})
    new = await past.create("new", 10, DENSE)
    await past.write(id, 0, [7])
    domain = CLONE if name == "materialize" else DOMAIN
    await past.done("PUT", "/acls/ann", {right: right != withheld for right in ALL}, domain=domain)
    path, _, query = path.partition("?")
    options = dict([query.split("=")]) if query else {}
    reply = await past.rest(method, path, body, user="ann", domain=domain, **options)
    if withheld not in needed:
        assert reply.status in (200, 201), reply.body
        return
    assert reply.status == 403, reply.body
    assert (await past.links()).keys() == {"kept", "new"}
    assert (await past.read(id), await past.read(new)) == ([7, *range(1, 20)], [0] * 10)
    found = await past.done("GET", "/snapshots")
    assert [one["snapshot"] for one in found["snapshots"]] == [1]


async def test_nothing_is_gone_after_a_restore(past: Versioned) -> None:
    id = await past.create("kept", 20, DENSE)
    await past.snapshot()
    new = await past.create("new", 20, DENSE)
    await past.write(new, 0, range(20))
    await past.write(id, 0, range(20))
    done = await past.done("POST", "/snapshots/1/restore")
    assert done.facts == {"snapshot": 2, "restored": 1, "changed": done["changed"]}
    assert (await past.read(id), set(await past.links())) == ([0] * 20, {"kept"})
    await past.done("POST", "/snapshots/2/restore")
    assert (await past.read(id), await past.read(new)) == (list(range(20)), list(range(20)))
    messages = [one["message"] for one in (await past.done("GET", "/snapshots"))["snapshots"]]
    assert messages == ["", "before snapshot 1 was restored", "before snapshot 2 was restored"]


@pytest.mark.parametrize("name", ["restore", "materialize"])
async def test_what_is_copied_needs_room_in_the_quota(past: Versioned, name: str) -> None:
    body = {
        "type": "H5T_STD_U8LE",
        "shape": [400_000],
        "creationProperties": {"layout": {"class": "H5D_CHUNKED", "dims": [100_000]}},
    }
    id = (await past.done("POST", "/datasets", body))["id"]
    for number in (1, 2):
        await past.done("PUT", f"/datasets/{id}/value", bytes([number]) * 400_000)
        await past.snapshot()
    await past.done("POST", "/clones", {"target": CLONE, "snapshot": 1})
    await past.done("PUT", "/quota", {"bytes": 1_400_000}, domain="/home/admin")
    await past.done("GET", "/quota", domain="/home/admin")  # counts
    domain = DOMAIN if name == "restore" else CLONE
    before = await past.keys()
    path = "/snapshots/1/restore" if name == "restore" else "/clones/materialize"
    if name == "materialize":  # the first one has room
        await past.done("POST", path, domain=domain)
        domain = f"{CLONE}2"
        await past.done("POST", "/clones", {"target": domain, "snapshot": 1})
        await past.done("GET", "/quota", domain="/home/admin")  # counts what has come
        before = await past.keys()
    reply = await past.rest("POST", path, domain=domain)
    assert (reply.status, reply["error"]["kind"]) == (413, "over_quota")
    assert await past.keys() == before
    await past.done("PUT", "/quota", {"bytes": None}, domain="/home/admin")
    await past.done("POST", path, domain=domain)


@pytest.mark.parametrize("path", ["/snapshots/1", "/"])
async def test_the_owners_deletion_wins_over_clones_of_others(past: Versioned, path: str) -> None:
    id = await past.filled(20)
    await past.snapshot()
    for user in ("ann", "ben"):
        await past.done("PUT", f"/acls/{user}", {"read": True, "update": True, "delete": user == "ann"})
    private = "/home/ben/private"
    await past.done("POST", "/clones", {"target": private, "snapshot": 1}, user="ben")
    await past.done("POST", "/clones", {"target": "/home/ben/of-now"}, user="ben")
    await past.done("PUT", "/acls/default", {"read": False}, domain=private, user="ben")
    await past.done("PUT", "/acls/default", {"read": False}, domain="/home/ben/of-now", user="ben")
    await past.write(id, 0, [7])
    seen = await past.done("GET", "/snapshots", user="ann")
    assert (seen["clones"], seen["otherClones"], "/home/ben" in str(seen.body)) == ([], 2, False)
    await past.done("DELETE", path, user="ann", **({"wait": 10} if path == "/" else {}))
    await past.restart()
    there = await past.links(domain=private, user="ben")
    assert await past.read(there["kept"], domain=private, user="ben") == list(range(20))
    assert (await past.done("GET", "/snapshots", domain=private, user="ben"))["base"] is None


@pytest.mark.parametrize("path", ["/snapshots/1", "/"])
async def test_a_clone_that_is_being_deleted_is_in_the_way(past: Versioned, path: str) -> None:
    """Nobody is told that the snapshot is not there: it is, until this is tried again."""
    id = await past.filled(20)
    await past.snapshot()
    for user in ("ann", "ben"):
        await past.done("PUT", f"/acls/{user}", {"read": True, "delete": user == "ann"})
    body = {"target": "/home/ben/one", "snapshot": 1}
    clone = (await past.done("POST", "/clones", body, user="ben"))["root"]
    await past.links(domain="/home/ben/one", user="ben")  # the nodes know it
    await past.memory.delete(storage_key(clone))
    reply = await past.rest("DELETE", path, user="ann")
    assert (reply.status, reply["error"]["kind"]) == (409, "conflict"), reply.body
    assert await past.read(id, domain=f"{DOMAIN}@1") == list(range(20))


@pytest.mark.parametrize("changed", [False, True], ids=["as it was", "changed"])
async def test_a_clone_of_clones_has_no_depth(past: Versioned, changed: bool) -> None:
    """Each level of a changed one costs a read; of others none."""
    id = await past.filled(20)
    domain = DOMAIN
    for number in range(250):
        if changed:
            root = (await past.done("GET", "/", domain=domain))["root"]
            await past.done("PUT", f"/groups/{root}/links/l", {"h5path": "/x"}, domain=domain)
            await past.done("DELETE", f"/groups/{root}/links/l", domain=domain)
        target = f"{CLONE}{number}"
        await past.done("POST", "/clones", {"target": target}, domain=domain)
        domain = target
    assert await past.read(id, domain=domain) == list(range(20))
    await past.restart()
    assert await past.read(id, domain=domain) == list(range(20))
