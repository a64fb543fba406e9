"""Links: one, several, of several groups."""

from __future__ import annotations

import pytest

from tests.support.rest_client import Reply, RestClient, refuses


@pytest.fixture
async def group(rest: RestClient, root: str) -> str:
    return str((await rest("POST", "/groups", {"link": {"id": root, "name": "g1"}}))["id"])


async def test_hard_links(rest: RestClient, root: str, group: str) -> None:
    other = (await rest("POST", "/groups", {}))["id"]
    path = f"/groups/{root}/links/g2"
    assert (await rest("PUT", path, {"id": other})).status == 201
    assert (await rest("PUT", path, {"id": other})).status == 200
    assert (await rest("PUT", path, {"id": group})).status == 409
    got = await rest("GET", path)
    assert got["link"] == {"title": "g2", "class": "H5L_TYPE_HARD", "id": other, "collection": "groups"}
    assert got["created"] == got["lastModified"]
    assert [one["rel"] for one in got["hrefs"]] == ["self", "home", "owner", "target"]
    assert (await rest("DELETE", path)).status == 200
    assert (await rest("GET", path)).status == 410


async def test_soft_and_external_links_in_both_dialects(rest: RestClient, root: str) -> None:
    await rest("PUT", f"/groups/{root}/links/soft", {"h5path": "/g1"})
    await rest("PUT", f"/groups/{root}/links/e9", {"h5path": "/g1", "h5domain": "/home/o.h5"})
    await rest("PUT", f"/groups/{root}/links/e10", {"h5path": "/g1", "file": "/home/o.h5"})
    external = {"class": "H5L_TYPE_EXTERNAL", "file": "/home/o.h5", "h5domain": "/home/o.h5"}
    for title, kind in (("soft", {"class": "H5L_TYPE_SOFT"}), ("e9", external), ("e10", external)):
        link = (await rest("GET", f"/groups/{root}/links/{title}"))["link"]
        assert link == {"title": title, "h5path": "/g1"} | kind


@pytest.mark.parametrize(
    "body",
    [
        *({}, [], {"h5path": "/x", "class": "H5L_TYPE_HARD"}, {"h5path": "/x", "file": 3}),
        *({"id": id} for id in ("g-1", "g-00000000-00000000-0000-000000-000001", 7)),
        *({"h5path": path} for path in ("", 1)),
    ],
)
async def test_a_bad_link_changes_nothing(rest: RestClient, root: str, body: object) -> None:
    assert (await rest("PUT", f"/groups/{root}/links/x", body)).status == 400
    assert (await rest("PUT", f"/groups/{root}/links", {"links": {"x": body}})).status == 400
    assert (await rest("PUT", f"/groups/{root}/links", {"links": {"a/b": {"h5path": "/x"}}})).status == 400
    assert (await rest("GET", f"/groups/{root}"))["linkCount"] == 0


async def test_a_hard_link_leads_somewhere(rest: RestClient, root: str, group: str) -> None:
    missing = f"{root[:19]}-9999-123456-abcdef"
    assert (await rest("PUT", f"/groups/{root}/links/x", {"id": missing})).status == 404
    await rest("DELETE", f"/groups/{group}")
    assert (await rest("PUT", f"/groups/{root}/links/x", {"id": group})).status == 410
    assert (await rest("GET", "/groups"))["groups"] == [], "a link that leads nowhere is passed over"


async def test_several_at_once(rest: RestClient, root: str, group: str) -> None:
    links = {"a": {"id": group}, "b": {"h5path": "/g2"}}
    assert (await rest("PUT", f"/groups/{group}/links", {"links": links})).status == 201
    assert (await rest("PUT", f"/groups/{group}/links", {"links": links})).status == 200
    body = {"links": {"m1": {"h5path": "/x"}}, "grp_ids": [root, group]}
    assert (await rest("PUT", f"/groups/{root}/links", body)).status == 201
    each = {root: {"links": {"m2": {"h5path": "/y"}}}, group: {"links": {"m3": {"h5path": "/z"}}}}
    assert (await rest("PUT", f"/groups/{root}/links", {"grp_ids": each})).status == 201
    assert await titles(rest, root) == ["g1", "m1", "m2"]
    assert await titles(rest, group) == ["a", "b", "m1", "m3"]
    assert (await rest("DELETE", f"/groups/{group}/links", titles="a/m1")).status == 200
    assert (await rest("DELETE", f"/groups/{group}/links", titles="b|nope", separator="|")).status == 200
    assert await titles(rest, group) == ["m3"]
    for query in ({}, {"titles": ""}):
        assert (await rest("DELETE", f"/groups/{group}/links", **query)).status == 400


async def test_links_that_take_the_place_of_others(rest: RestClient, root: str, group: str) -> None:
    path, old, new = f"/groups/{group}/links", {"h5path": "/old"}, {"h5path": "/new"}
    await rest("PUT", path, {"links": {"a": old, "b": old, "c": old}})
    assert (await rest("PUT", path, {"links": {"a": new, "b": new}, "remove": ["a", "c"]})).status == 409
    assert await titles(rest, group) == ["a", "b", "c"]
    swap = {"links": {"a": new, "d": new}, "remove": ["a", "b", "nothing"]}
    assert (await rest("PUT", path, swap)).status == 201
    assert (await rest("PUT", path, swap)).status == 200
    found = {link["title"]: link["h5path"] for link in (await rest("GET", path))["links"]}
    assert found == {"a": "/new", "c": "/old", "d": "/new"}
    assert (await rest("GET", f"{path}/b")).status == 410
    for bad in ({"remove": "a"}, {"remove": ["x/y"]}, {"grp_ids": [root, group], "remove": ["a"]}):
        assert (await rest("PUT", path, {"links": {"e": new}} | bad)).status == 400


async def test_by_title(rest: RestClient, root: str, group: str) -> None:
    for title in ("a", "b"):
        await rest("PUT", f"/groups/{group}/links/{title}", {"h5path": "/x"})
    one = await rest("POST", f"/groups/{root}/links", {"titles": ["g1"]})
    assert [(link["title"], link["id"]) for link in one["links"]] == [("g1", group)]
    both = await rest("POST", f"/groups/{root}/links", {"grp_ids": [root, group]})
    assert titles_by_id(both) == {root: ["g1"], group: ["a", "b"]}
    some = await rest("POST", f"/groups/{root}/links", {"grp_ids": {root: ["g1"], group: ["b"]}})
    assert [link["title"] for link in some["links"][group]] == ["b"]
    for bad in ({}, {"group_ids": [root]}, {"grp_ids": {group: None}}, {"titles": "x"}, {"grp_ids": [7]}):
        assert (await rest("POST", f"/groups/{root}/links", bad)).status == 400


async def test_listing(rest: RestClient, root: str, group: str) -> None:
    for title in ("z", "a", "m"):
        await rest("PUT", f"/groups/{group}/links/{title}", {"h5path": "/x"})
    assert await titles(rest, group) == ["a", "m", "z"]
    assert await titles(rest, group, CreateOrder=1) == ["z", "a", "m"]
    assert await titles(rest, group, CreateOrder=1, Marker="z", Limit=1) == ["a"]
    assert await titles(rest, group, pattern="[a-m]") == ["a", "m"]
    assert (await rest("GET", f"/groups/{group}/links", Marker="nope")).status == 404
    listed = (await rest("GET", f"/groups/{root}/links", CreateOrder=0))["links"][0]
    assert set(listed) == {"id", "class", "created", "title", "collection", "target", "href"}


async def test_of_all_groups_that_are_reached(rest: RestClient, root: str, group: str) -> None:
    inner = (await rest("POST", "/groups", {"link": {"id": group, "name": "inner"}}))["id"]
    await rest("PUT", f"/groups/{inner}/links/up", {"id": root})
    reached = await rest("GET", f"/groups/{root}/links", follow_links=1)
    assert titles_by_id(reached) == {root: ["g1"], group: ["inner"], inner: ["up"]}


async def test_of_several_groups_and_all_below(rest: RestClient, root: str, group: str) -> None:
    inner = (await rest("POST", "/groups", {"link": {"id": group, "name": "inner"}}))["id"]
    for title in ("c", "b"):
        await rest("PUT", f"/groups/{inner}/links/{title}", {"h5path": "/x"})
    path = f"/groups/{root}/links"
    for ids in ({group: ["inner"]}, [inner[:-2] + "zz"]):
        assert (await rest("POST", path, {"grp_ids": ids}, follow_links=1)).status == 400
    reached = await rest("POST", path, {"grp_ids": [group]}, follow_links=1, CreateOrder=1)
    assert titles_by_id(reached) == {group: ["inner"], inner: ["c", "b"]}
    limited = await rest("POST", path, {"grp_ids": [inner]}, follow_links=1, Limit=1)
    assert titles_by_id(limited) == {inner: ["b"]}
    assert (await rest("DELETE", f"/groups/{inner}")).status == 200
    assert (await rest("POST", path, {"grp_ids": [inner]}, follow_links=1)).status == 410
    assert (await rest("GET", f"/groups/{inner}/links", follow_links=1)).status == 410


async def test_listing_by_titles(rest: RestClient, root: str) -> None:
    for title in ("z", "a#1", "m"):
        await rest("PUT", f"/groups/{root}/links", {"links": {title: {"h5path": "/x"}}})
    assert await titles(rest, root, titles="z/a#1") == ["z", "a#1"]
    assert await titles(rest, root, titles="z|m", separator="|", Limit=1) == ["z"]
    assert await titles(rest, root, titles="z/nope") == ["z"]


async def test_odd_titles_travel(rest: RestClient, root: str) -> None:
    links = {title: {"h5path": "/x"} for title in ("a b", "ü#?", "%41", "x" * 200)}
    assert (await rest("PUT", f"/groups/{root}/links", {"links": links})).status == 201
    assert await titles(rest, root) == sorted(links)
    assert (await rest("GET", f"/groups/{root}/links/%C3%BC%23%3F"))["link"]["title"] == "ü#?"


async def test_many_links_of_many_groups_are_too_many(rest: RestClient, root: str) -> None:
    ids = [f"{root[:-4]}{k:04x}" for k in range(300)]
    body = {"grp_ids": ids, "links": {f"a{k}": {"h5path": "/x"} for k in range(1000)}}
    await refuses(rest("PUT", f"/groups/{root}/links", body), 413, "300000; the limit is 100000")


async def titles(rest: RestClient, id: str, **options: object) -> list[str]:
    return [link["title"] for link in (await rest("GET", f"/groups/{id}/links", **options))["links"]]


def titles_by_id(reply: Reply) -> dict[str, list[str]]:
    return {id: [link["title"] for link in links] for id, links in reply["links"].items()}
