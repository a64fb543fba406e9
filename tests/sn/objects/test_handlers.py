"""Groups, committed types, types in requests, and what all objects have in common; how they are created."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hsparse.sn.objects import create
from hsparse.wire.message import DataNode
from hsparse.wire.record_message import ListKeys
from tests.sn.dataset_kinds import F64, I8, I32, I64, compound, vlen_of
from tests.support.rest_client import RestClient, answered, refuses


async def test_deleted_is_gone_and_never_was_is_not_found(rest: RestClient, root: str) -> None:
    id = (await rest("POST", "/groups", {}))["id"]
    assert (await rest("DELETE", f"/groups/{id}")).status == 200
    assert (await rest("GET", f"/groups/{id}")).status == 410
    assert (await rest("DELETE", f"/groups/{id}")).status == 410
    assert (await rest("GET", f"/groups/{root[:19]}-9999-123456-abcdef")).status == 404
    assert (await rest("DELETE", f"/groups/{root}")).status == 403


@pytest.mark.parametrize(
    "id", ["g-00000000-00000000-0000-000000-000001", "nonsense", "d-00000000-00000000-0000-000000-000001"]
)
async def test_an_id_of_elsewhere_is_a_bad_request(rest: RestClient, id: str) -> None:
    for method in ("GET", "DELETE"):
        assert (await rest(method, f"/groups/{id}")).status == 400
    for body in ({"link": {"id": id, "name": "x"}}, {"id": id}):
        assert (await rest("POST", "/groups", body)).status == 400


async def test_listing_goes_on_behind_a_marker(rest: RestClient, root: str) -> None:
    made = await rest("POST", "/groups", [{"link": {"id": root, "name": f"g{n}"}} for n in range(5)])
    ids = sorted(one["id"] for one in made["objects"])
    assert (await rest("GET", "/groups", Limit=2))["groups"] == ids[:2]
    assert (await rest("GET", "/groups", Limit=2, Marker=ids[1]))["groups"] == ids[2:4]
    assert (await rest("GET", "/groups", Marker="g-x")).status == 404
    assert (await rest("GET", "/groups", Limit="x")).status == 400


async def test_by_a_path_from_a_group(rest: RestClient, root: str) -> None:
    outer = (await rest("POST", "/groups", {"link": {"id": root, "name": "a"}}))["id"]
    inner = (await rest("POST", "/groups", {"link": {"id": outer, "name": "b"}}))["id"]
    await rest("POST", "/datasets", {"type": I8, "link": {"id": outer, "name": "d"}})
    assert (await rest("GET", f"/groups/{root}", h5path="a/b"))["id"] == inner
    assert (await rest("GET", f"/groups/{outer}", h5path="b"))["id"] == inner
    assert (await rest("GET", f"/groups/{outer}", h5path="d")).status == 404
    assert (await rest("GET", f"/groups/{outer}", h5path="c")).status == 404


async def test_a_new_group_is_linked_and_listed(rest: RestClient, root: str) -> None:
    made = await answered(rest("POST", "/groups", {"link": {"id": root, "name": "g1"}}), 201)
    assert (made["root"], made["linkCount"], made["attributeCount"]) == (root, 0, 0)
    link = await rest("GET", f"/groups/{root}/links/g1")
    assert link["link"] == {"title": "g1", "class": "H5L_TYPE_HARD", "id": made["id"], "collection": "groups"}
    assert (await rest("GET", "/groups"))["groups"] == [made["id"]]
    shown = await rest("GET", f"/groups/{made['id']}", getalias=1)
    assert (shown["alias"], shown["domain"]) == (["/g1"], rest.domain)


COMPOUND = compound(date=I64, price=F64)


async def test_committed_used_and_deleted(rest: RestClient, root: str) -> None:
    made = await rest("POST", "/datatypes", {"type": COMPOUND, "link": {"id": root, "name": "ct"}})
    assert (made.status, made["type"], made["attributeCount"]) == (201, COMPOUND, 0)
    id = made["id"]
    got = await rest("GET", f"/datatypes/{id}")
    assert {key: got[key] for key in ("id", "root", "type")} == {"id": id, "root": root, "type": COMPOUND}
    assert (await rest("GET", "/datatypes"))["datatypes"] == [id]
    assert (await rest("GET", "/datatypes/", h5path="/ct"))["id"] == id
    dataset = await rest("POST", "/datasets", {"type": id, "shape": [2]})
    assert dataset["type"] == COMPOUND | {"id": id}
    assert (await rest("DELETE", f"/datatypes/{id}")).status == 200
    assert (await rest("GET", f"/datatypes/{id}")).status == 410
    assert (await rest("POST", "/datasets", {"type": id, "shape": [2]})).status == 410
    assert (await rest("GET", f"/datasets/{dataset['id']}/type"))["type"]["class"] == "H5T_COMPOUND"


async def test_types_and_bad_types(rest: RestClient) -> None:
    made = await rest("POST", "/datatypes", [{"type": I8}, {"type": COMPOUND}])
    assert [one["type"]["class"] for one in made["objects"]] == ["H5T_INTEGER", "H5T_COMPOUND"]
    for body in ({}, {"type": "H5T_FOO"}, {"type": {"class": "H5T_COMPOUND"}}, {"type": 7}):
        assert (await rest("POST", "/datatypes", body)).status == 400


async def test_an_object_that_changes_is_shown_as_it_is(rest: RestClient, root: str) -> None:
    path = f"/groups/{root}"

    async def shown() -> tuple[int, int, list[str]]:
        first, second = [(await rest("GET", path, include_attrs=1)).body for _ in range(2)]
        assert first == second
        return first["attributeCount"], first["linkCount"], list(first["attributes"])

    assert await shown() == (0, 0, [])
    attribute = {"type": I8, "value": 1}
    await rest("PUT", f"{path}/attributes/b", attribute)
    assert await shown() == (1, 0, ["b"])
    await rest("POST", "/groups", {"link": {"id": root, "name": "a"}})
    await rest("PUT", f"{path}/attributes/a", attribute)
    assert await shown() == (2, 1, ["b", "a"])
    await rest("DELETE", f"{path}/attributes/b")
    assert await shown() == (1, 1, ["a"])
    assert "attributes" not in (await rest("GET", path)).body


async def test_an_answer_is_remembered_for_what_was_asked(rest: RestClient, root: str) -> None:
    path = f"/groups/{root}"
    plain = (await rest("GET", path)).body
    elsewhere = await rest("GET", path, headers={"Host": "127.0.0.2:1234"})
    assert {one["href"].split("/")[2] for one in elsewhere["hrefs"]} == {"127.0.0.2:1234"}
    assert "links" in (await rest("GET", path, include_links=1)).body
    # A query in which "&" is escaped is another one, though it reads the same.
    assert "links" not in (await rest("GET", f"{path}?x=1%26include_links=1")).body
    assert (await rest("GET", path, getalias=1))["alias"] == ["/"]
    assert (await rest("GET", path)).body == plain


async def test_a_client_chooses_ids_and_creates_several(rest: RestClient, root: str) -> None:
    ids = [f"{root[:19]}-{n:04x}-123456-abcdef" for n in range(3)]
    bodies = [{"id": id, "link": {"id": root, "name": f"n{n}"}} for n, id in enumerate(ids)]
    made = await answered(rest("POST", "/groups", bodies), 201)
    assert [one["id"] for one in made["objects"]] == ids
    assert (await rest("GET", "/groups"))["groups"] == sorted(ids)
    assert (await rest("POST", "/groups", [{"id": ids[0]}])).status == 409


async def test_a_link_that_is_taken_leaves_no_object_behind(rest: RestClient, root: str) -> None:
    first = await rest("POST", "/groups", {"link": {"id": root, "name": "g"}})
    id = f"{root[:19]}-0000-123456-abcdef"
    assert (await rest("POST", "/groups", {"id": id, "link": {"id": root, "name": "g"}})).status == 409
    assert (await rest("GET", f"/groups/{id}")).status == 410
    assert (await rest("GET", f"/groups/{root}/links/g"))["link"]["id"] == first["id"]


async def test_several_fail_together(rest: RestClient, root: str) -> None:
    other = (await rest("POST", "/groups", {"link": {"id": root, "name": "other"}}))["id"]
    await rest("PUT", f"/groups/{other}/links/taken", {"h5path": "/x"})
    bodies = [{"link": {"id": root, "name": "fine"}}, {"link": {"id": other, "name": "taken"}}]
    assert (await rest("POST", "/groups", bodies)).status == 409
    assert (await rest("GET", f"/groups/{root}/links/fine")).status in (404, 410)
    assert (await rest("GET", "/groups"))["groups"] == [other]


async def test_implicit_makes_missing_parents(rest: RestClient) -> None:
    assert (await rest("POST", "/groups", {"h5path": "/p/q/r"})).status == 404
    made = await answered(rest("POST", "/groups", {"h5path": "/p/q/r"}, implicit=1), 201)
    assert (await rest("GET", "/", h5path="/p/q/r"))["id"] == made["id"]
    assert (await rest("POST", "/groups", {"h5path": "/p/q/s"})).status == 201
    assert len((await rest("GET", "/groups"))["groups"]) == 4


async def test_missing_parents_are_limited(rest: RestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(create, "MAX_IMPLICIT", 4)
    bodies = [{"h5path": "/a/b/c/x"}, {"h5path": "/a/b/d/e/x"}]
    await refuses(rest("POST", "/groups", bodies, implicit=1), 413, "at most 4 missing groups")
    assert (await rest("GET", "/", h5path="/a/b/c/x")).status == 404
    assert (await rest("POST", "/groups", bodies, implicit=1)).status == 201
    assert (await rest("GET", "/", h5path="/a/b/d/e/x")).status == 200


async def test_the_paths_of_new_objects_are_limited(rest: RestClient) -> None:
    rest.service.settings = replace(rest.service.settings, max_path_steps=1000)
    long = {"h5path": "/" + "a/" * 500 + "z"}
    await refuses(rest("POST", "/groups", [long, long], implicit=1), 413, "max_path_steps")
    assert (await rest("POST", "/groups", {"h5path": "a" * 40_000})).status == 400
    assert (await rest("POST", "/groups", {"h5path": "a/" * 20_000})).status == 400
    assert (await rest("GET", "/groups"))["groups"] == []


@pytest.mark.parametrize(
    "body",
    [
        *([], "text", {"h5path": "/"}, {"h5path": 7}),
        *({"link": link} for link in ({"name": "x"}, "x", {"id": "g-1", "name": "a/b"})),
        *({"creationProperties": 1}, {"attributes": []}, {"links": {"a": {}}}),
    ],
)
async def test_a_bad_body_changes_nothing(rest: RestClient, body: object) -> None:
    reply = await answered(rest("POST", "/groups", body), 400)
    assert reply["error"]["message"].endswith(".")
    assert (await rest("GET", "/groups"))["groups"] == []


async def test_attributes_and_links_come_with_a_new_group(rest: RestClient, root: str) -> None:
    body = {
        "attributes": {"a": {"type": I32, "shape": [2], "value": [1, 2]}},
        "links": {"up": {"id": root}},
        "creationProperties": {"CreateOrder": 1},
    }
    id = (await rest("POST", "/groups", body))["id"]
    shown = await rest("GET", f"/groups/{id}", include_attrs=1, include_links=1)
    assert (shown["attributes"]["a"]["value"], shown["links"]["up"]["id"]) == ([1, 2], root)
    assert shown["creationProperties"] == {"CreateOrder": 1}


async def test_values_of_what_failed_are_not_left(rest: RestClient, root: str, node: DataNode) -> None:
    await rest("PUT", f"/groups/{root}/links/taken", {"h5path": "/x"})
    body = {"type": I8, "shape": [4], "value": [1, 2, 3, 4], "link": {"id": root, "name": "taken"}}
    assert (await rest("POST", "/datasets", body)).status in (400, 409)
    listing = await node.send(ListKeys("db/"))
    assert [key.rpartition("/")[2] for key in listing.keys] == [".group.json"]


async def test_a_committed_type_and_one_of_elsewhere_or_nowhere(rest: RestClient, root: str) -> None:
    own = f"/groups/{root}/attributes"
    await answered(rest("PUT", f"{own}/a", {"type": f"t{root[1:19]}-9999-123456-abcdef", "value": 1}), 404)
    for bad in ("t-1", root, "t-00000000-00000000-0000-000000-000001", "datatypes/x", None):
        assert (await rest("PUT", f"{own}/a", {"type": bad, "value": 1})).status == 400
    id = (await rest("POST", "/datatypes", {"type": I8}))["id"]
    for name, given in (("a", id), ("b", f"datatypes/{id}")):
        assert (await rest("PUT", f"{own}/{name}", {"type": given, "value": 1})).status == 201
        assert (await rest("GET", f"{own}/{name}"))["type"]["id"] == id


async def test_committed_types_inside_a_type(rest: RestClient, root: str) -> None:
    text = {"class": "H5T_STRING", "charSet": "H5T_CSET_UTF8", "length": "H5T_VARIABLE"}
    inner = (await rest("POST", "/datatypes", {"type": text}))["id"]
    pair = compound(name=f"datatypes/{inner}", size=I32)
    outer = (await rest("POST", "/datatypes", {"type": pair}))["id"]
    body = {"type": vlen_of(outer), "shape": [2]}
    base = (await answered(rest("POST", "/datasets", body), 201))["type"]["base"]
    assert (base["id"], base["class"], base["fields"][0]["type"]) == (
        outer,
        "H5T_COMPOUND",
        {**text, "id": inner},
    )
    gone = f"t{root[1:19]}-9999-123456-abcdef"
    for bad in (gone, root, "t-1"):
        item = compound(a=bad)
        await answered(rest("POST", "/datasets", {"type": item, "shape": [2]}), 404 if bad == gone else 400)
