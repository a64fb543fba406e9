"""Pages, patterns of names, bodies about several objects, and errors for missing names."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hsparse import compute
from hsparse.errors import BadRequest, Gone, NotFound
from hsparse.sn.data_nodes.owners import FixedNodes, Owners
from hsparse.sn.http import request, response
from hsparse.sn.objects import attribute_handlers, link_listing
from hsparse.sn.records import multi_object_request, name_pattern
from hsparse.sn.records.listing import in_creation_order, missing_attribute, missing_link, name_matcher
from hsparse.sn.records.multi_object_request import stored_names
from hsparse.sn.records.name_pattern import NamePattern
from hsparse.wire.message import DataNode
from hsparse.wire.record_message import ChangeObjects, DeleteAttributes, DeleteLinks, ReadObjects
from tests.sn.conftest import Watch
from tests.sn.dataset_kinds import I8
from tests.support.characters import CHARACTERS
from tests.support.rest_client import RestClient, answered


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
    rest: RestClient,
    root: str,
    monkeypatch: pytest.MonkeyPatch,
    watch: Watch,
    what: str,
    parameters: dict[str, str],
) -> None:
    """In every form of the request; the loop goes on meanwhile."""
    item = {"h5path": "/x"} if what == "links" else {"type": I8, "value": 1}
    await rest("PUT", f"/groups/{root}/{what}", {what: {f"a{n}z": item for n in range(40)}})
    other = (await rest("POST", "/groups", {}))["id"]
    monkeypatch.setattr(compute, "MAX_INLINE_BYTES", 20)
    monkeypatch.setattr(response, "MAX_INLINE_BYTES", 20)
    on_loop = watch(link_listing if what == "links" else attribute_handlers, "ordered_names")
    key = "grp_ids" if what == "links" else "obj_ids"
    path = f"/groups/{root}/{what}"
    for method, body, more in (
        ("GET", None, {}),
        ("GET", None, {"follow_links": 1}),
        ("POST", {key: [root]}, {}),
        ("POST", {key: [root]}, {"follow_links": 1}),
    ):
        on_loop.clear()
        reply = await answered(rest(method, path, body, **parameters, **more))
        found = reply[what] if isinstance(reply[what], list) else reply[what][root]
        assert len(found) == 40
        assert on_loop == [False]
    on_loop.clear()
    several = await rest("POST", path, {key: [root, other]}, **parameters)
    assert len(several[what][root]) == 40
    assert sorted(on_loop) == [False, True], "the short one is made on the loop"


@pytest.mark.parametrize("pattern", ["[a", "a]", "*" * 300])
def test_what_is_no_pattern(pattern: str) -> None:
    with pytest.raises(BadRequest):
        name_matcher(pattern)


ATTRIBUTE = {"type": I8, "value": 1}


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
    questions: list[object] = [
        {"obj_ids": []},
        {"obj_ids": {root: 7}},
        {"obj_ids": {root: []}, "attr_names": []},
    ]
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
    await rest("PUT", f"/groups/{root}/attributes/a", {"type": I8, "value": 1})
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


TOKENS = [*"*?ab\n]é.", "[ab]", "[!a]", "[a-c]", "[*]", "[]]", "[!]a]", "[?]", "[a", "**"]


@pytest.mark.parametrize("few", [0, 32])
@given(st.lists(st.sampled_from(TOKENS)).map("".join), st.text("ab*]?[\né.!", max_size=8))
@example("a*a", "a")
@example("*ab*ab", "aab")
@example("a?*?b", "ab")
@example("", "")
def test_it_is_what_fnmatch_says(few: int, pattern: str, name: str) -> None:
    """By expressions alone, and by bits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(name_pattern, "MAX_BIT_ELEMENTS", few)
        assert NamePattern(pattern).matches(name) == fnmatchcase(name, pattern)


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("*" + "a" * 251 + "z", "a" * 1000),
        ("*" + "a" * 200 + "?z*b", "a" * 1000),
        ("*a" * 126 + "*b", "a" * 1000),
        ("a*" * 126 + "z", "a" * 1000),
        ("*[ab]" * 50, "a" * 49),
    ],
)
def test_long_names_that_match_to_the_last(pattern: str, name: str) -> None:
    assert not NamePattern(pattern).matches(name)
