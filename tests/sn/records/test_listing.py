"""Pages, patterns, bodies about several objects, and errors for missing names."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread, current_thread, main_thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse import compute
from hsparse.errors import BadRequest, Gone, NotFound
from hsparse.sn.data_nodes.owners import FixedNodes, Owners
from hsparse.sn.http import request, response
from hsparse.sn.objects import attribute_handlers, link_listing
from hsparse.sn.records import listing, multi_object_request
from hsparse.sn.records.listing import in_creation_order, missing_attribute, missing_link, name_matcher
from hsparse.sn.records.multi_object_request import stored_names
from hsparse.wire.message import DataNode
from hsparse.wire.record_message import ChangeObjects, DeleteAttributes, DeleteLinks, ReadObjects
from tests.support.characters import CHARACTERS
from tests.support.rest_client import RestClient


async def test_pages_make_up_the_whole(rest: RestClient, root: str) -> None:
    links = {f"{n:02}": {"h5path": "/x"} for n in (3, 1, 9, 7, 5)}
    await rest("PUT", f"/groups/{root}/links", {"links": links})
    for order, whole in ((0, sorted(links)), (1, list(links))):
        seen: list[str] = []
        while True:
            marker = {"Marker": seen[-1]} if seen else {}
            reply = await rest("GET", f"/groups/{root}/links", Limit=2, CreateOrder=order, **marker)
            page = [link["title"] for link in reply["links"]]
            seen += page
            if len(page) < 2:
                break
        assert seen == whole


@pytest.mark.parametrize("what", ["links", "attributes"])
@pytest.mark.parametrize("parameters", [{}, {"pattern": "*a*z"}])
async def test_long_listings_are_made_in_a_thread(
    rest: RestClient, root: str, monkeypatch: pytest.MonkeyPatch, what: str, parameters: dict[str, str]
) -> None:
    """In every form of the request; the loop goes on meanwhile."""
    item = {"h5path": "/x"} if what == "links" else {"type": "H5T_STD_I8LE", "value": 1}
    await rest("PUT", f"/groups/{root}/{what}", {what: {f"a{n}z": item for n in range(40)}})
    other = (await rest("POST", "/groups", {}))["id"]
    threads: set[Thread] = set()

    def noted(find: Callable[..., list[str]]) -> Callable[..., list[str]]:
        def found(*args: Any) -> list[str]:
            threads.add(current_thread())
            return find(*args)

        return found

    monkeypatch.setattr(compute, "MAX_INLINE_BYTES", 20)
    monkeypatch.setattr(response, "MAX_INLINE_BYTES", 20)
    module = link_listing if what == "links" else attribute_handlers
    monkeypatch.setattr(module, "ordered_names", noted(listing.ordered_names))
    key = "grp_ids" if what == "links" else "obj_ids"
    path = f"/groups/{root}/{what}"
    for method, body, more in (
        ("GET", None, {}),
        ("GET", None, {"follow_links": 1}),
        ("POST", {key: [root]}, {}),
        ("POST", {key: [root]}, {"follow_links": 1}),
    ):
        threads.clear()
        reply = await rest(method, path, body, **parameters, **more)
        assert reply.status == 200
        found = reply[what] if isinstance(reply[what], list) else reply[what][root]
        assert len(found) == 40
        assert threads
        assert main_thread() not in threads
    threads.clear()
    several = await rest("POST", path, {key: [root, other]}, **parameters)
    assert len(several[what][root]) == 40
    assert len(threads) == 2  # the short one is made on the loop


async def test_the_order_in_which_a_client_created(rest: RestClient, root: str) -> None:
    links = {"b": {"h5path": "/x", "created": 2.0}, "a": {"h5path": "/x", "created": 1.0}}
    await rest("PUT", f"/groups/{root}/links", {"links": links})
    listed = (await rest("GET", f"/groups/{root}/links", CreateOrder=1))["links"]
    assert [link["title"] for link in listed] == ["a", "b"]
    value = {"type": "H5T_STD_I8LE", "value": 1}
    attributes = {"y": value | {"created": 2.0}, "x": value | {"created": 1.0}}
    await rest("PUT", f"/groups/{root}/attributes", {"attributes": attributes})
    names = (await rest("GET", f"/groups/{root}/attributes", CreateOrder=1))["attributes"]
    assert [attribute["name"] for attribute in names] == ["x", "y"]


async def test_names_are_joined_by_a_separator(rest: RestClient, root: str) -> None:
    links = {name: {"h5path": "/x"} for name in ("a", "b|c", "d")}
    await rest("PUT", f"/groups/{root}/links", {"links": links})
    assert (await rest("DELETE", f"/groups/{root}/links", titles="a/d/a")).status == 200
    assert (await rest("DELETE", f"/groups/{root}/links", titles="b|c", separator="/")).status == 200
    assert (await rest("DELETE", f"/groups/{root}/links", titles="")).status == 400


@given(st.text(alphabet="ab*?", max_size=8), st.text(alphabet="abc", max_size=8))
def test_stars_and_question_marks(pattern: str, name: str) -> None:
    def match(pattern: str, name: str) -> bool:
        if not pattern:
            return not name
        if pattern[0] == "*":
            return any(match(pattern[1:], name[n:]) for n in range(len(name) + 1))
        return bool(name) and pattern[0] in ("?", name[0]) and match(pattern[1:], name[1:])

    assert name_matcher(pattern)(name) == (match(pattern, name) or not pattern)


def test_ranges() -> None:
    matches = name_matcher("f[0-3].h5")
    assert [name for name in ("f0.h5", "f3.h5", "f4.h5", "f.h5") if matches(name)] == ["f0.h5", "f3.h5"]


@pytest.mark.parametrize("pattern", ["[a", "a]", "*" * 300])
def test_what_is_no_pattern(pattern: str) -> None:
    with pytest.raises(BadRequest):
        name_matcher(pattern)


ATTRIBUTE = {"type": "H5T_STD_I8LE", "value": 1}


@given(
    st.dictionaries(
        st.text(CHARACTERS, max_size=2), st.none() | st.floats(0, 9) | st.text(CHARACTERS, max_size=1)
    )
)
def test_in_the_order_of_creation(times: dict[str, object]) -> None:
    bodies = {name: {"created": time} for name, time in times.items()}
    ordered = in_creation_order(bodies)
    assert dict(ordered) == bodies
    known = [time if isinstance(time, float) else 0.0 for time in (times[name] for name, _ in ordered)]
    assert known == sorted(known)


async def test_every_form(rest: RestClient, root: str) -> None:
    group = (await rest("POST", "/groups", {"link": {"id": root, "name": "g"}}))["id"]
    own = f"/groups/{root}/attributes"
    assert (await rest("PUT", own, {"attributes": {"a": ATTRIBUTE}})).status == 201
    assert (await rest("PUT", own, {"attributes": {"b": ATTRIBUTE}, "obj_ids": [group]})).status == 201
    assert (await rest("PUT", own, {"obj_ids": {group: {"attributes": {"c": ATTRIBUTE}}}})).status == 201
    for id, names in ((root, ["a"]), (group, ["b", "c"])):
        listed = (await rest("GET", f"/groups/{id}/attributes"))["attributes"]
        assert [one["name"] for one in listed] == names


async def test_what_is_no_form(rest: RestClient, root: str) -> None:
    bodies: tuple[dict[str, object], ...] = (
        {"obj_ids": []},
        {"obj_ids": {}},
        {"obj_ids": "x"},
        {"obj_ids": ["x"], "attributes": {"a": ATTRIBUTE}},
        {"obj_ids": {root: {"attributes": {"a": ATTRIBUTE}}}, "attributes": {"a": ATTRIBUTE}},
        {"obj_ids": {root: 7}},
        {"obj_ids": [root]},
        {},
    )
    for body in bodies:
        assert (await rest("PUT", f"/groups/{root}/attributes", body)).status == 400
    questions: tuple[object, ...] = (
        {"obj_ids": []},
        {"obj_ids": {root: 7}},
        {"obj_ids": {root: []}, "attr_names": []},
        {},
    )
    for question in questions:
        assert (await rest("POST", f"/groups/{root}/attributes", question)).status == 400


async def test_names_of_a_request_are_limited(
    rest: RestClient, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = (await rest("POST", "/groups", {"link": {"id": root, "name": "g"}}))["id"]
    two = {"attributes": {"a": ATTRIBUTE, "b": ATTRIBUTE}}
    own = f"/groups/{root}/attributes"
    assert (await rest("PUT", own, {"obj_ids": {root: two, group: two}})).status == 201
    own_module = multi_object_request
    for module, name in ((request, "MAX_NAMES"), (own_module, "MAX_NAMES"), (own_module, "MAX_SET")):
        monkeypatch.setattr(module, name, 3)
    assert (await rest("POST", own, {"attr_names": ["a", "b", "a"]})).status == 200
    assert (await rest("POST", own, {"obj_ids": {root: ["a", "b"], group: ["a"]}})).status == 200
    assert (await rest("PUT", own, {"obj_ids": {root: two}})).status == 200
    questions: tuple[dict[str, object], ...] = (
        {"attr_names": ["a"] * 4},
        {"obj_ids": {root: ["a", "b"], group: ["a", "b"]}},
        {"obj_ids": [root] * 4},
    )
    replies = [await rest("POST", own, question) for question in questions]
    replies.append(await rest("POST", f"/groups/{root}/links", {"titles": [""] * 4}))
    replies.append(await rest("PUT", own, {"obj_ids": {root: two, group: two}}))
    replies.append(await rest("PUT", own, {"obj_ids": [root] * 4} | two))
    for reply in replies:
        assert reply.status == 413
        assert "limit is 3" in reply["error"]["message"]


async def test_asking_never_deletes(rest: RestClient, root: str, node: DataNode) -> None:
    owners = Owners(FixedNodes({"dn-001": node}))
    assert isinstance(await missing_link(owners, root, "a"), NotFound)
    assert isinstance(await missing_attribute(owners, root, "a"), NotFound)
    await rest("PUT", f"/groups/{root}/links/a", {"h5path": "/x"})
    await rest("PUT", f"/groups/{root}/attributes/a", {"type": "H5T_STD_I8LE", "value": 1})
    before = await node.send(ReadObjects((root,)))
    assert isinstance(await missing_link(owners, root, "a"), NotFound)
    assert isinstance(await missing_attribute(owners, root, "a"), NotFound)
    assert await node.send(ReadObjects((root,))) == before, "it came to be before we asked"
    await node.send(ChangeObjects((DeleteLinks(root, ("a",)), DeleteAttributes(root, ("a",)))))
    assert isinstance(await missing_link(owners, root, "a"), Gone)
    assert isinstance(await missing_attribute(owners, root, "a"), Gone)


@given(st.lists(st.integers(0, 9).map(str), unique=True), st.sets(st.integers(0, 9).map(str)))
def test_the_wanted_names_that_are_stored_in_their_order(names: list[str], stored: set[str]) -> None:
    places = {name: place for place, name in enumerate(names)}
    assert stored_names(places, {name: {} for name in stored}) == [name for name in names if name in stored]
