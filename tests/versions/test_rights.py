"""A request about versions needs the rights of what it does, and room for what it copies; it tells no private names."""

from __future__ import annotations

from typing import Any

import pytest

from hsparse.model.ids import storage_key
from tests.versions.conftest import DENSE, DOMAIN, Versioned

ALL = ("create", "read", "update", "delete")
CLONE, MINE = "/home/admin/clone", "/home/ann/mine"
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
    id = await past.create("kept", 20, DENSE)
    await past.write(id, 0, range(20))
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
    id = await past.create("kept", 20, DENSE)
    await past.write(id, 0, range(20))
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
    id = await past.create("kept", 20, DENSE)
    await past.write(id, 0, range(20))
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
    id = await past.create("kept", 20, DENSE)
    await past.write(id, 0, range(20))
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
