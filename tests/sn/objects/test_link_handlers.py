"""Links: one, several, of several groups."""

from __future__ import annotations

import pytest

from tests.support.rest_client import RestClient


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
    assert (await rest("DELETE", path)).status == 410
    assert (await rest("DELETE", f"/groups/{root}/links", titles="g2")).status == 200
    assert (await rest("DELETE", f"/groups/{root}/links", titles="g2/zzz")).status == 200
    assert (await rest("GET", f"/groups/{root}/links/zzz")).status == 404
    assert (await rest("DELETE", f"/groups/{root}/links/zzz")).status == 404


async def test_soft_and_external_links_in_both_dialects(rest: RestClient, root: str) -> None:
    await rest("PUT", f"/groups/{root}/links/soft", {"h5path": "/g1"})
    await rest("PUT", f"/groups/{root}/links/e9", {"h5path": "/g1", "h5domain": "/home/o.h5"})
    await rest("PUT", f"/groups/{root}/links/e10", {"h5path": "/g1", "file": "/home/o.h5"})
    soft = (await rest("GET", f"/groups/{root}/links/soft"))["link"]
    assert soft == {"title": "soft", "class": "H5L_TYPE_SOFT", "h5path": "/g1"}
    for title in ("e9", "e10"):
        link = (await rest("GET", f"/groups/{root}/links/{title}"))["link"]
        assert link["class"] == "H5L_TYPE_EXTERNAL"
        assert link["file"] == link["h5domain"] == "/home/o.h5"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"id": "g-1"},
        {"id": "g-00000000-00000000-0000-000000-000001"},
        {"id": 7},
        {"h5path": ""},
        {"h5path": 1},
        {"h5path": "/x", "class": "H5L_TYPE_HARD"},
        {"h5path": "/x", "file": 3},
        [],
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
    body = {
        "grp_ids": {root: {"links": {"m2": {"h5path": "/y"}}}, group: {"links": {"m3": {"h5path": "/z"}}}}
    }
    assert (await rest("PUT", f"/groups/{root}/links", body)).status == 201
    assert await titles(rest, root) == ["g1", "m1", "m2"]
    assert await titles(rest, group) == ["a", "b", "m1", "m3"]
    assert (await rest("DELETE", f"/groups/{group}/links", titles="a/m1")).status == 200
    assert (await rest("DELETE", f"/groups/{group}/links", titles="b|nope", separator="|")).status == 200
    assert await titles(rest, group) == ["m3"]
    assert (await rest("DELETE", f"/groups/{group}/links")).status == 400


async def test_links_that_take_the_place_of_others(rest: RestClient, root: str, group: str) -> None:
    path, old, new = f"/groups/{group}/links", {"h5path": "/old"}, {"h5path": "/new"}
    await rest("PUT", path, {"links": {"a": old, "b": old, "c": old}})
    assert (await rest("PUT", path, {"links": {"a": new, "b": new}, "remove": ["a", "c"]})).status == 409
    assert await titles(rest, group) == ["a", "b", "c"]
    swap = {"links": {"a": new, "d": new}, "remove": ["a", "b", "nothing"]}
    assert (await rest("PUT", path, swap)).status == 201
    assert (await rest("PUT", path, swap)).status == 200
    found = (await rest("GET", path))["links"]
    assert [(link["title"], link["h5path"]) for link in found] == [
        ("a", "/new"),
        ("c", "/old"),
        ("d", "/new"),
    ]
    assert (await rest("GET", f"{path}/b")).status == 410
    assert (await rest("PUT", path, {"links": {"a": new}, "remove": "a"})).status == 400
    assert (await rest("PUT", path, {"links": {"a": new}, "remove": ["x/y"]})).status == 400
    both = {"grp_ids": [root, group], "links": {"e": new}, "remove": ["a"]}
    assert (await rest("PUT", path, both)).status == 400


async def test_by_title(rest: RestClient, root: str, group: str) -> None:
    for title in ("a", "b"):
        await rest("PUT", f"/groups/{group}/links/{title}", {"h5path": "/x"})
    one = await rest("POST", f"/groups/{root}/links", {"titles": ["g1"]})
    assert [(link["title"], link["id"]) for link in one["links"]] == [("g1", group)]
    assert (await rest("POST", f"/groups/{root}/links", {"titles": ["nope"]})).status == 404
    both = await rest("POST", f"/groups/{root}/links", {"grp_ids": [root, group]})
    assert {id: [link["title"] for link in links] for id, links in both["links"].items()} == {
        root: ["g1"],
        group: ["a", "b"],
    }
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
    assert {id: [link["title"] for link in links] for id, links in reached["links"].items()} == {
        root: ["g1"],
        group: ["inner"],
        inner: ["up"],
    }


async def test_of_several_groups_and_all_below(rest: RestClient, root: str, group: str) -> None:
    inner = (await rest("POST", "/groups", {"link": {"id": group, "name": "inner"}}))["id"]
    for title in ("c", "b"):
        await rest("PUT", f"/groups/{inner}/links/{title}", {"h5path": "/x"})
    for body in (
        {"grp_ids": {group: ["inner"]}},
        {"grp_ids": [group], "titles": ["inner"]},
        {"titles": ["g1"]},
    ):
        assert (await rest("POST", f"/groups/{root}/links", body, follow_links=1)).status == 400
    body = {"grp_ids": [group]}
    reached = await rest("POST", f"/groups/{root}/links", body, follow_links=1, CreateOrder=1)
    assert {id: [link["title"] for link in links] for id, links in reached["links"].items()} == {
        group: ["inner"],
        inner: ["c", "b"],
    }
    limited = await rest("POST", f"/groups/{root}/links", {"grp_ids": [inner]}, follow_links=1, Limit=1)
    assert [link["title"] for link in limited["links"][inner]] == ["b"]
    gone = {"grp_ids": [inner[:-2] + "zz"]}
    assert (await rest("POST", f"/groups/{root}/links", gone, follow_links=1)).status == 400
    assert (await rest("DELETE", f"/groups/{inner}")).status == 200
    assert (await rest("POST", f"/groups/{root}/links", {"grp_ids": [inner]}, follow_links=1)).status == 410
    assert (await rest("GET", f"/groups/{inner}/links", follow_links=1)).status == 410


async def test_listing_by_titles(rest: RestClient, root: str) -> None:
    for title in ("z", "a#1", "m"):
        await rest("PUT", f"/groups/{root}/links", {"links": {title: {"h5path": "/x"}}})
    assert await titles(rest, root, titles="z/a#1") == ["z", "a#1"]
    assert await titles(rest, root, titles="z|m", separator="|", Limit=1) == ["z"]
    assert await titles(rest, root, titles="z/nope") == ["z"]


async def test_the_limit_of_all_groups_below_is_of_the_reply(rest: RestClient, root: str) -> None:
    ids = {"": root}
    for path in ("a", "b", "a/c", "a/d", "b/e", "a/c/f"):
        parent, _, name = path.rpartition("/")
        ids[path] = (await rest("POST", "/groups", {"link": {"id": ids[parent], "name": name}}))["id"]
    names = {id: path for path, id in ids.items()}
    for method, body in ("GET", None), ("POST", {"grp_ids": [root]}):
        for limit, found in (
            (1, {"": 1}),
            (3, {"": 2, "a": 1, "b": 0}),
            (0, {"": 2, "a": 2, "b": 1, "a/c": 1}),
        ):
            reply = await rest(method, f"/groups/{root}/links", body, follow_links=1, Limit=limit)
            counts = {names[id]: len(links) for id, links in reply["links"].items()}
            if limit == 3:  # which of the two groups gets the last one follows from their ids
                assert sorted(counts.items()) in (
                    [("", 2), ("a", 0), ("b", 1)],
                    [("", 2), ("a", 1), ("b", 0)],
                )
            else:
                assert {path: count for path, count in counts.items() if count} == found


async def test_a_time_of_creation_is_taken_over(rest: RestClient, root: str) -> None:
    now = rest.service.clock.now()
    for title, created in ("early", now + 100.25), ("late", now + 200), ("never", 999):
        assert (
            await rest("PUT", f"/groups/{root}/links/{title}", {"h5path": "/x", "created": created})
        ).status == 201
    assert (await rest("GET", f"/groups/{root}/links/early"))["created"] == now + 100.25
    assert await titles(rest, root, CreateOrder=1) == ["never", "early", "late"]
    again = {"h5path": "/x", "created": now + 250}
    assert (await rest("PUT", f"/groups/{root}/links/early", again)).status == 200
    assert (await rest("GET", f"/groups/{root}/links/early"))["created"] == now + 100.25
    assert (await rest("PUT", f"/groups/{root}/links/x", {"h5path": "/x", "created": "now"})).status == 400


async def test_odd_titles_travel(rest: RestClient, root: str) -> None:
    links = {title: {"h5path": "/x"} for title in ("a b", "ü#?", "%41", "x" * 200)}
    assert (await rest("PUT", f"/groups/{root}/links", {"links": links})).status == 201
    assert await titles(rest, root) == sorted(links)
    assert (await rest("GET", f"/groups/{root}/links/%C3%BC%23%3F"))["link"]["title"] == "ü#?"


async def test_many_links_of_many_groups_are_too_many(rest: RestClient, root: str) -> None:
    ids = [f"{root[:-4]}{k:04x}" for k in range(300)]
    body = {"grp_ids": ids, "links": {f"a{k}": {"h5path": "/x"} for k in range(1000)}}
    reply = await rest("PUT", f"/groups/{root}/links", body)
    assert reply.status == 413
    assert "300000; the limit is 100000" in reply["error"]["message"]


async def titles(rest: RestClient, id: str, **options: object) -> list[str]:
    return [link["title"] for link in (await rest("GET", f"/groups/{id}/links", **options))["links"]]
