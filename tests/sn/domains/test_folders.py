"""Listing what is in a folder, and queries over attributes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.dn.service import DataService
from hsparse.errors import BadRequest
from hsparse.model.acl import Principal, Right
from hsparse.sn.domains import folder_handlers
from hsparse.sn.domains.folder_handlers import parse_attribute_query
from tests.support.characters import CHARACTERS
from tests.support.rest_client import RestClient
from tests.testing.manual_clock import ManualClock
from tests.testing.memory_store import MemoryStore

HOME = "/home/test_user1"


@pytest.fixture
async def folder(bare: RestClient) -> RestClient:
    for name in ("b.h5", "a.h5", "c.h5"):
        await bare("PUT", "/", {}, domain=f"{HOME}/{name}")
    await bare("PUT", "/", {"folder": True}, domain=f"{HOME}/sub")
    await bare("PUT", "/", {}, domain=f"{HOME}/sub/inner.h5")
    return bare


async def names(rest: RestClient, **options: object) -> list[str]:
    reply = await rest("GET", "/domains", **{"domain": HOME + "/", **options})
    assert reply.status == 200
    return [one["name"].removeprefix(HOME + "/") for one in reply["domains"]]


async def test_what_is_directly_there_by_name(folder: RestClient) -> None:
    assert await names(folder) == ["a.h5", "b.h5", "c.h5", "sub"]
    assert await names(folder, domain=HOME) == ["a.h5", "b.h5", "c.h5", "sub"]
    assert await names(folder, domain=f"{HOME}/sub/") == ["sub/inner.h5"]


async def test_an_entry_is_as_hsds_shows_it(folder: RestClient) -> None:
    first, *_, last = (await folder("GET", "/domains", domain=HOME + "/"))["domains"]
    assert set(first) == {"root", "class", "owner", "created", "lastModified", "name", "hrefs"}
    assert (first["class"], last["class"]) == ("domain", "folder")
    assert "root" not in last
    assert first["hrefs"][0]["href"].endswith(f"/?domain={HOME}/a.h5")


async def test_with_the_rights_of_who_asks(folder: RestClient) -> None:
    await folder("PUT", "/acls/test_user2", {"read": True, "update": True}, domain=f"{HOME}/a.h5")
    for user, of_file, of_folder in (
        ("test_user1", set(Right), set(Right)),
        ("test_user2", {"read", "update"}, {"read"}),
    ):
        reply = await folder("GET", "/domains", domain=HOME, include_rights=1, user=user)
        first, *_, last = ({name for name, has in one["rights"].items() if has} for one in reply["domains"])
        assert (first, last) == (of_file, of_folder)


async def test_in_parts(folder: RestClient) -> None:
    assert await names(folder, Limit=2) == ["a.h5", "b.h5"]
    assert await names(folder, Limit=2, Marker=f"{HOME}/b.h5") == ["c.h5", "sub"]
    assert await names(folder, Marker=f"{HOME}/sub") == []


async def test_by_pattern(folder: RestClient) -> None:
    assert await names(folder, pattern="*.h5") == ["a.h5", "b.h5", "c.h5"]
    assert await names(folder, pattern="[ab].h?") == ["a.h5", "b.h5"]
    assert await names(folder, pattern="[ab].h?", Limit=1, Marker=f"{HOME}/a.h5") == ["b.h5"]
    reply = await folder("GET", "/domains", domain=HOME + "/", pattern="[a")
    assert reply.status == 400


async def test_by_query_on_root_attributes(folder: RestClient) -> None:
    for name, value in (("a.h5", 1), ("b.h5", 8), ("c.h5", 9)):
        domain = f"{HOME}/{name}"
        root = (await folder("GET", "/", domain=domain))["root"]
        body = {"attributes": {"n": {"type": "H5T_STD_I32LE", "value": value}}}
        assert (await folder("PUT", f"/groups/{root}/attributes", body, domain=domain)).status == 201
    assert await names(folder, query="n > 7") == ["b.h5", "c.h5"]
    assert await names(folder, query="n > 7 AND n != 9") == ["b.h5"]
    assert await names(folder, query="nope == 1") == []
    for bad in ("n >", "__import__('os')", "n > 7; n", "lambda: 1", "n == [1]", ""):
        assert (await folder("GET", "/domains", domain=HOME + "/", query=bad)).status == 400


async def test_the_top_level(folder: RestClient) -> None:
    for options in ({"domain": None}, {"domain": "/"}):
        for path in ("/domains", "/"):
            reply = await folder("GET", path, **options)
            assert [one["name"] for one in reply["domains"]] == ["/home"]


async def test_many_in_a_folder(bare: RestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_handlers, "KEYS_AT_ONCE", 16)
    made = [f"{n:03}.h5" for n in range(60)]
    for name in made:
        await bare("PUT", "/", {}, domain=f"{HOME}/{name}")
    seen: list[str] = []
    while page := await names(bare, Limit=7, **({"Marker": f"{HOME}/{seen[-1]}"} if seen else {})):
        seen += page
    assert seen == made == await names(bare)


async def test_a_query_tells_nothing_of_what_one_may_not_read(folder: RestClient) -> None:
    domain = f"{HOME}/a.h5"
    root = (await folder("GET", "/", domain=domain))["root"]
    body = {"type": "H5T_STD_I32LE", "shape": "H5S_SCALAR", "value": 42}
    assert (await folder("PUT", f"/groups/{root}/attributes/pin", body, domain=domain)).status == 201
    assert await names(folder, query="pin == 42") == ["a.h5"]
    assert await names(folder, query="pin == 42", user=None) == []
    shown = (await folder("GET", "/domains", domain=HOME + "/", verbose=1, user=None))["domains"]
    assert next(one["name"] for one in shown) == domain
    assert not any("num_groups" in one for one in shown)


async def test_the_root_of_a_domain_is_shown_to_who_may_read_it(rest: RestClient) -> None:
    path = f"{HOME}/shared"
    assert (await rest("PUT", "/", {"folder": True}, domain=path)).status == 201
    assert (await rest("PUT", "/acls/test_user2", {"read": True}, domain=path)).status == 201
    for name, right in (("open.h5", True), ("closed.h5", False)):
        assert (await rest("PUT", "/", {}, domain=f"{path}/{name}")).status == 201
        assert (await rest("PUT", "/acls/test_user2", {"read": right}, domain=f"{path}/{name}")).status == 201
    shown = (await rest("GET", "/domains", domain=f"{path}/", user="test_user2"))["domains"]
    assert [("root" in one, one["class"]) for one in shown] == [(False, "domain"), (True, "domain")]


async def test_what_cannot_be_read_is_listed_by_name() -> None:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    async with RestClient(DataService(store, clock), clock, Principal("test_user1")) as rest:
        for name in ("a.h5", "first.h5"):
            assert (await rest("PUT", "/", {}, domain=f"{HOME}/{name}")).status == 201
        link = {"linked_domain": f"{HOME}/first.h5"}
        assert (await rest("PUT", "/", link, domain=f"{HOME}/second.h5")).status == 201
    for name in ("b.h5", "first.h5"):
        await store.put(f"{HOME[1:]}/{name}/.domain.json", b"{")
    async with RestClient(DataService(store, clock), clock, Principal("test_user1")) as rest:
        shown = (await rest("GET", "/domains", domain=HOME))["domains"]
        assert [(one["name"].rpartition("/")[2], "root" in one, one.get("error")) for one in shown] == [
            ("a.h5", True, None),
            ("b.h5", False, "corrupt"),
            ("first.h5", False, "corrupt"),
            ("second.h5", False, None),
        ]
        assert await names(rest, query="n > 7") == []


SCALAR = {"class": "H5S_SCALAR"}


def attributes(**values: Any) -> dict[str, Any]:
    return {name: {"shape": SCALAR, "value": value} for name, value in values.items()}


NAMES = st.sampled_from(["a", "b", "c_1"])
LEAVES = st.tuples(
    NAMES,
    st.sampled_from(["==", "!=", "<", "<=", ">", ">="]),
    st.integers(-3, 3) | st.sampled_from(["x", "y z"]),
)
TREES = st.recursive(
    LEAVES, lambda inner: st.tuples(inner, st.sampled_from(["AND", "OR", "&", "|"]), inner), max_leaves=8
)
VALUES = st.dictionaries(NAMES, st.integers(-3, 3) | st.sampled_from(["x", "y z"]))


def spelled(tree: Any) -> str:
    if isinstance(tree[0], str):
        name, op, value = tree
        return f"{name} {op} {value!r}"
    return f"({spelled(tree[0])}) {tree[1]} ({spelled(tree[2])})"


def truth(tree: Any, values: dict[str, Any]) -> Any:
    first, op, second = tree
    if not isinstance(first, str):
        both = (truth(first, values), truth(second, values))
        return all(both) if op in ("AND", "&") else any(both)
    there = values.get(first)
    if there is None or isinstance(there, str) != isinstance(second, str):
        return False
    order = (there > second) - (there < second)
    return {
        "==": order == 0,
        "!=": order != 0,
        "<": order < 0,
        "<=": order <= 0,
        ">": order > 0,
        ">=": order >= 0,
    }[op]


@given(TREES, VALUES)
def test_a_query_is_what_it_says(tree: Any, values: dict[str, Any]) -> None:
    assert parse_attribute_query(spelled(tree)).matches(attributes(**values)) == truth(tree, values)


def test_and_binds_more_than_or() -> None:
    query = parse_attribute_query("a = 1 OR a = 2 AND b = 1")
    assert query.matches(attributes(a=1))
    assert not query.matches(attributes(a=2))


def test_only_scalars_are_compared() -> None:
    array = {"a": {"shape": {"class": "H5S_SIMPLE", "dims": [1]}, "value": [1]}}
    assert not parse_attribute_query("a = 1").matches(array)


@given(st.text(CHARACTERS, max_size=40))
def test_any_text_is_a_query_or_a_bad_request(text: str) -> None:
    try:
        query = parse_attribute_query(text)
    except BadRequest:
        return
    assert query.matches({}) is False


@pytest.mark.parametrize(
    "text", ["(" * 100 + "a = 1" + ")" * 100, "a = 1 " * 1000, "a", "a =", "= 1", "a = b"]
)
def test_what_is_no_query(text: str) -> None:
    with pytest.raises(BadRequest):
        parse_attribute_query(text)


def test_comparisons_are_limited() -> None:
    assert parse_attribute_query(" | ".join(["a = 1"] * 64)).matches(attributes(a=1))
    with pytest.raises(BadRequest, match="more than 64 comparisons"):
        parse_attribute_query(" | ".join(["a = 1"] * 65))
