"""Objects by path."""

from __future__ import annotations

from hsparse.testing.rest_client import RestClient


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
