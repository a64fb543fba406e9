"""Attributes: one, several, of several objects; as JSON, base64 and bytes."""

from __future__ import annotations

import base64
import math
from typing import Any

import numpy as np
import pytest

from hsparse.sn.http.response import MAX_WHOLE_ITEMS
from hsparse.sn.objects import attribute_handlers, create, handlers
from hsparse.sn.records import object_json
from hsparse.sn.service_settings import ServiceSettings
from tests.sn.conftest import Watch
from tests.sn.dataset_kinds import F32, F64, I8, I32, TEXT, U8, compound, vlen_of
from tests.sn.value_client import put
from tests.support.rest_client import BINARY, RestClient, answered, refuses

INTS = {"type": I32, "shape": [3], "value": [1, 2, 3]}
HELLO = {"type": TEXT, "shape": [], "value": "hello"}


@pytest.fixture
async def own(root: str) -> str:
    return f"/groups/{root}/attributes"


async def test_set_again_and_replaced(rest: RestClient, own: str) -> None:
    assert (await rest("PUT", f"{own}/a", INTS)).status == 201
    assert (await rest("PUT", f"{own}/a", INTS)).status == 200
    other = INTS | {"value": [4, 5, 6]}
    assert (await rest("PUT", f"{own}/a", other)).status == 409
    assert (await rest("PUT", f"{own}/a", other, replace=1)).status == 201
    got = await rest("GET", f"{own}/a")
    assert got["type"] == {"class": "H5T_INTEGER", "base": I32}
    assert (got["shape"], got["name"], got["value"]) == ({"class": "H5S_SIMPLE", "dims": [3]}, "a", [4, 5, 6])
    assert "value" not in (await rest("GET", f"{own}/a", IncludeData=0)).body


async def test_who_may_create_and_not_update_replaces_nothing(rest: RestClient, own: str) -> None:
    assert (await rest("PUT", "/acls/test_user2", {"create": True, "read": True})).status == 201
    rest.user = "test_user2"
    assert (await rest("PUT", f"{own}/a", INTS, replace=1)).status == 201
    assert (await rest("PUT", f"{own}/a", INTS, replace=1)).status == 200
    other = INTS | {"value": [4, 5, 6]}
    for path, body in ((f"{own}/a", other), (own, {"attributes": {"a": other}})):
        await refuses(rest("PUT", path, body, replace=1), 403, "right update")
    assert (await rest("GET", f"{own}/a"))["value"] == INTS["value"]
    assert (await rest("PUT", "/acls/test_user2", {"update": True}, user="test_user1")).status == 201
    assert (await rest("PUT", f"{own}/a", other, replace=1)).status == 201


@pytest.mark.parametrize("names", [{"members": [{"name": "a", "value": 1}]}, {"mapping": {"a": 1}}])
async def test_what_was_got_set_again(rest: RestClient, own: str, names: dict[str, Any]) -> None:
    kind = {"class": "H5T_ENUM", "base": {"class": "H5T_INTEGER", "base": I8}} | names
    record = compound(e=kind)
    await rest("PUT", own, {"attributes": {"e": {"type": kind, "shape": [2], "value": [1, 0]}}})
    await rest("PUT", own, {"attributes": {"r": {"type": record, "shape": [], "value": [1]}}})
    for name in ("e", "r"):
        got = (await rest("GET", f"{own}/{name}")).body
        assert (await rest("PUT", f"{own}/{name}", got)).status == 200
        got["type"] = INTS["type"]
        assert (await rest("PUT", f"{own}/{name}", got)).status in (400, 409)


async def test_deleted_and_never_there(rest: RestClient, own: str) -> None:
    await rest("PUT", f"{own}/a", INTS)
    assert (await rest("DELETE", f"{own}/a")).status == 200
    await rest("PUT", f"{own}/b", INTS)
    assert (await rest("DELETE", own, attr_names="a/zz/b")).status == 200
    for method, name in (("GET", "a"), ("GET", "a/value"), ("DELETE", "a"), ("GET", "b")):
        assert (await rest(method, f"{own}/{name}")).status == 410
    assert (await rest("GET", f"{own}/zz")).status == 404
    assert (await rest("POST", own, {"attr_names": ["zz"]})).status == 404
    assert (await rest("PUT", f"{own}/a", INTS)).status == 201
    assert (await rest("GET", f"{own}/a")).status == 200


async def test_null_and_missing_values(rest: RestClient, own: str) -> None:
    assert (await rest("PUT", f"{own}/n", {"type": I32, "shape": "H5S_NULL"})).status == 201
    got = await rest("GET", f"{own}/n")
    assert (got["shape"], got["value"]) == ({"class": "H5S_NULL"}, None)
    assert (await rest("GET", f"{own}/n/value")).status == 400
    assert (await rest("PUT", f"{own}/n/value", {"value": 1})).status == 400
    await rest("PUT", f"{own}/z", {"type": I32, "shape": [2]})
    assert (await rest("GET", f"{own}/z/value", accept=BINARY)).body == bytes(8)


async def test_values_as_bytes_and_base64(rest: RestClient, own: str) -> None:
    await rest("PUT", f"{own}/a", INTS)
    data = np.array([1, 2, 3], "<i4").tobytes()
    assert (await rest("GET", f"{own}/a/value", accept=BINARY)).body == data
    assert (await rest("GET", f"{own}/a/value"))["value"] == [1, 2, 3]
    coded = await rest("GET", f"{own}/a", encoding="base64")
    assert (base64.b64decode(coded["value"]), coded["encoding"]) == (data, "base64")
    assert (await rest("GET", f"{own}/a", encoding="hex")).status == 400
    new = np.array([9, 8, 7], "<i4").tobytes()
    assert (await rest("PUT", f"{own}/a/value", new)).status == 200
    assert (await rest("GET", f"{own}/a"))["value"] == [9, 8, 7]
    for body, status in ((new[:-1], 400), ({"value": [5, 5, 5]}, 200), ({"value": [5, 5]}, 400), ({}, 400)):
        assert (await rest("PUT", f"{own}/a/value", body)).status == status
    text = base64.b64encode(data).decode()
    assert (await rest("PUT", f"{own}/b", INTS | {"value": text, "encoding": "base64"})).status == 201
    assert (await rest("GET", f"{own}/b"))["value"] == [1, 2, 3]


async def test_bytes_that_are_no_text(rest: RestClient, own: str) -> None:
    kind = {"class": "H5T_STRING", "charSet": "H5T_CSET_ASCII", "strPad": "H5T_STR_NULLPAD", "length": 2}
    text = base64.b64encode(b"\xff\xfe").decode()
    body = {"type": kind, "shape": [1], "value": text, "encoding": "base64"}
    assert (await rest("PUT", f"{own}/s", body)).status == 201
    got = await rest("GET", f"{own}/s")
    assert (got["value"], got["encoding"]) == (text, "base64")
    assert (await rest("GET", f"{own}/s/value", accept=BINARY)).body == b"\xff\xfe"


async def test_floats_that_are_not_finite(rest: RestClient, own: str) -> None:
    body = {"type": F64, "shape": [3], "value": [math.nan, 1.5, -math.inf]}
    assert (await rest("PUT", f"{own}/f", body)).status == 201
    assert (await rest("PUT", f"{own}/f", body)).status == 200
    first, second, third = (await rest("GET", f"{own}/f"))["value"]
    assert math.isnan(first)
    assert (second, third) == (1.5, -math.inf)
    assert (await rest("GET", f"{own}/f", ignore_nan=1))["value"] == [None, 1.5, None]
    data = (await rest("GET", f"{own}/f/value", accept=BINARY)).body
    np.testing.assert_array_equal(np.frombuffer(data, "<f8"), [math.nan, 1.5, -math.inf])


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"type": "H5T_FOO"},
        *({"type": I32, "shape": [2], "value": value} for value in ([1], [1, 2, 3])),
        *({"type": I8, "value": value} for value in (300, "x", {"a": 1})),
        *({"type": I8, "shape": "H5S_NULL", "value": 1}, {"type": I8, "shape": [-1]}),
        *({"type": I8, "value": value, "encoding": "base64"} for value in ("AA", "AAAA")),
        {"type": I8, "value": "AA==", "encoding": "hex"},
        {"type": TEXT, "shape": [2], "value": ["a"]},
        {"type": TEXT, "value": "YQ==", "encoding": "base64"},
        {"type": "t-00000000-00000000-0000-000000-000001", "value": 1},
        [],
    ],
)
async def test_a_bad_attribute_changes_nothing(rest: RestClient, root: str, own: str, body: object) -> None:
    reply = await answered(rest("PUT", f"{own}/x", body), 400)
    assert reply["error"]["message"].endswith(".")
    assert (await rest("PUT", own, {"attributes": {"fine": INTS, "x": body}})).status == 400
    assert (await rest("GET", f"/groups/{root}"))["attributeCount"] == 0


async def test_too_large(rest: RestClient, own: str) -> None:
    for value in (None, 1):
        assert (await rest("PUT", f"{own}/x", {"type": I8, "shape": [2**43], "value": value})).status == 413


async def test_several_at_once(rest: RestClient, root: str, own: str) -> None:
    group = (await rest("POST", "/groups", {"link": {"id": root, "name": "g"}}))["id"]
    assert (await rest("PUT", own, {"attributes": {"i": INTS, "t": HELLO}})).status == 201
    assert (await rest("PUT", own, {"attributes": {"i": INTS, "t": HELLO}})).status == 200
    other = INTS | {"value": [0, 0, 0]}
    assert (await rest("PUT", own, {"attributes": {"new": INTS, "i": other}})).status == 409
    assert await names(rest, own) == ["i", "t"]
    body = {"obj_ids": {group: {"attributes": {"o": INTS}}, root: {"attributes": {"p": HELLO}}}}
    assert (await rest("PUT", own, body)).status == 201
    assert (await rest("PUT", own, {"obj_ids": [root, group], "attributes": {"both": HELLO}})).status == 201
    assert await names(rest, own) == ["both", "i", "p", "t"]
    assert await names(rest, f"/groups/{group}/attributes") == ["both", "o"]
    assert (await rest("DELETE", own, attr_names="i/p")).status == 200
    assert (await rest("DELETE", own, attr_names="both|t", separator="|")).status == 200
    assert await names(rest, own) == []
    assert (await rest("DELETE", own)).status == 400
    coded = base64.b64encode(b"both;o").decode()
    path = f"/groups/{group}/attributes"
    await answered(rest("DELETE", path, attr_names=coded, encoding="base64", separator=";"))
    assert await names(rest, path) == []


async def test_by_name_of_several_objects(rest: RestClient, root: str, own: str) -> None:
    group = (await rest("POST", "/groups", {"link": {"id": root, "name": "g"}}))["id"]
    await rest("PUT", own, {"attributes": {"i": INTS, "t": HELLO}})
    await rest("PUT", f"/groups/{group}/attributes", {"attributes": {"t": HELLO}})
    some = await rest("POST", own, {"attr_names": ["t", "i"]}, IncludeData=1)
    assert [(one["name"], one["value"]) for one in some["attributes"]] == [("t", "hello"), ("i", [1, 2, 3])]
    both = await rest("POST", own, {"obj_ids": [root, group]})
    named = {id: [one["name"] for one in found] for id, found in both["attributes"].items()}
    assert named == {root: ["i", "t"], group: ["t"]}
    assert "value" not in both["attributes"][group][0]
    by = await rest("POST", own, {"obj_ids": {root: ["i"], group: ["t"]}})
    assert [one["name"] for one in by["attributes"][root]] == ["i"]
    for bad in ({}, {"attr_names": "i"}, {"obj_ids": {root: None}}, {"obj_ids": ["x"]}):
        assert (await rest("POST", own, bad)).status == 400


async def test_listing(rest: RestClient, root: str, own: str) -> None:
    for name in ("z", "a", "m"):
        await rest("PUT", f"{own}/{name}", INTS)
    assert await names(rest, own) == ["a", "m", "z"]
    assert await names(rest, own, CreateOrder=1) == ["z", "a", "m"]
    assert await names(rest, own, Marker="a", Limit=1) == ["m"]
    assert await names(rest, own, pattern="?") == ["a", "m", "z"]
    assert (await rest("GET", own, Marker="nope")).status == 404
    listed = (await rest("GET", own, IncludeData=1))["attributes"][0]
    assert set(listed) == {"created", "type", "shape", "name", "value", "href"}
    assert "value" not in (await rest("GET", own, IncludeData=1, max_data_size=4))["attributes"][0]
    assert "value" in (await rest("GET", own, IncludeData=1, max_data_size=12))["attributes"][0]
    followed = await rest("GET", own, follow_links=1)
    assert [one["name"] for one in followed["attributes"][root]] == ["a", "m", "z"]


async def test_by_name_of_all_objects_below(rest: RestClient, root: str, own: str) -> None:
    group = (await rest("POST", "/groups", {"link": {"id": root, "name": "g"}}))["id"]
    dataset = (await rest("POST", "/datasets", {"type": I8, "link": {"id": group, "name": "d"}}))["id"]
    for name in ("s/l", "b", "a"):
        attributes = {"attributes": {name: INTS}, "obj_ids": [group, dataset]}
        assert (await rest("PUT", f"/groups/{root}/attributes", attributes)).status == 201
    path = f"/groups/{group}/attributes"
    assert await names(rest, path, attr_names="b|s/l", separator="|") == ["b", "s/l"]
    assert await names(rest, path, attr_names="b/a", pattern="a") == ["a"]
    assert await names(rest, path, attr_names="b/c") == ["b"]
    for limit, of_group, of_dataset in (4, 3, 1), (3, 3, None), (2, 2, None), (0, 3, 3):
        found = (await rest("GET", path, follow_links=1, CreateOrder=1, Limit=limit))["attributes"]
        assert [one["name"] for one in found[group]] == ["s/l", "b", "a"][:of_group]
        assert len(found[dataset]) == of_dataset if of_dataset else dataset not in found
    body = {"obj_ids": {group: ["a", "nope"]}}
    found = (await rest("POST", own, body, follow_links=1, pattern="?"))["attributes"]
    named = {id: [one["name"] for one in some] for id, some in found.items()}
    assert named == {group: ["a"], dataset: ["a", "b"]}
    assert (await rest("GET", f"/groups/{group[:-1]}x/attributes", follow_links=1)).status == 400


async def test_in_the_order_of_creation(rest: RestClient, root: str, own: str) -> None:
    for name in ("z", "y", "x"):
        await rest("PUT", f"{own}/{name}", INTS)
        await rest("PUT", f"/groups/{root}/links/{name}", {"h5path": "/x"})
    await rest("PUT", f"{own}/z", {**INTS, "value": [9, 9, 9]}, replace=1)
    await rest("PUT", f"{own}/y/value", {"value": [8, 8, 8]})
    options = {"include_links": 1, "include_attrs": 1}
    for path, where in ((f"/groups/{root}", {}), ("/", {"h5path": "/"})):
        first = await rest("GET", path, **where, **options, CreateOrder=1)
        assert list(first["attributes"]) == ["z", "y", "x"], "one that is replaced keeps its place"
        assert list(first["links"]) == ["z", "y", "x"]
        by_name = await rest("GET", path, **where, **options, CreateOrder=0)
        assert list(by_name["attributes"]) == list(by_name["links"]) == ["x", "y", "z"]


async def test_the_order_in_which_a_client_created(rest: RestClient, own: str) -> None:
    attributes = {"y": INTS | {"created": 2.0}, "x": INTS | {"created": 1.0}}
    assert (await rest("PUT", own, {"attributes": attributes})).status == 201
    assert await names(rest, own, CreateOrder=1) == ["x", "y"]


async def test_every_collection_has_attributes(rest: RestClient) -> None:
    dataset = (await rest("POST", "/datasets", {"type": I8, "shape": [2]}))["id"]
    datatype = (await rest("POST", "/datatypes", {"type": I8}))["id"]
    for collection, id in (("datasets", dataset), ("datatypes", datatype)):
        assert (await rest("PUT", f"/{collection}/{id}/attributes/a", INTS)).status == 201
        shown = await rest("GET", f"/{collection}/{id}", include_attrs=1)
        assert shown["attributes"]["a"]["value"] == [1, 2, 3]
        assert (await rest("GET", f"/groups/{id}/attributes/a")).status == 400
    assert (await rest("GET", f"/datasets/{dataset}/attributes", follow_links=1)).status == 400


async def names(rest: RestClient, path: str, **options: object) -> list[str]:
    return [one["name"] for one in (await rest("GET", path, **options))["attributes"]]


@pytest.mark.parametrize("names", ["É\x90", "a", "_w==", "****"])
async def test_names_that_are_no_base64_are_refused(rest: RestClient, own: str, names: str) -> None:
    asked = rest("DELETE", own, attr_names=names, encoding="base64")
    await refuses(asked, 400, "attr_names is not valid base64")


async def test_attributes_for_a_list_of_objects_are_parsed_once(
    rest: RestClient, root: str, own: str, watch: Watch
) -> None:
    parsed = watch(attribute_handlers, "parse_attribute")
    groups = [group["id"] for group in (await rest("POST", "/groups", [{}, {}]))["objects"]]
    body = {"obj_ids": [root, *groups, root], "attributes": {"a": INTS, "b": INTS}}
    assert (await rest("PUT", own, body)).status == 201
    assert len(parsed) == 2
    for id in (root, *groups):
        assert await names(rest, f"/groups/{id}/attributes") == ["a", "b"]
    await rest("PUT", f"/groups/{root}/attributes/a", INTS | {"value": [4, 5, 6]}, replace=1)
    assert (await rest("GET", f"/groups/{groups[0]}/attributes/a"))["value"] == [1, 2, 3]


async def test_many_attributes_of_many_objects_are_too_many(rest: RestClient, root: str, own: str) -> None:
    ids = [f"{root[:-4]}{k:04x}" for k in range(300)]
    body = {"obj_ids": ids, "attributes": {f"a{k}": INTS for k in range(1000)}}
    await refuses(rest("PUT", own, body), 413, "300000; the limit is 100000")
    long = {"type": I8, "shape": [250_000], "value": [1] * 250_000}
    await refuses(rest("PUT", own, {"obj_ids": ids, "attributes": {"a": long}}), 413, "max_request_size")


async def test_a_name_asked_for_twice_is_answered_once(rest: RestClient, root: str, own: str) -> None:
    group = (await rest("POST", "/groups", {}))["id"]
    await rest("PUT", own, {"attributes": dict.fromkeys("abc", INTS), "obj_ids": [root, group]})
    wanted = ["c", "a", "c", "a"]
    found = (await rest("POST", own, {"attr_names": wanted}))["attributes"]
    assert [one["name"] for one in found] == ["c", "a"]
    found = (await rest("POST", own, {"attr_names": [*wanted, "z"], "obj_ids": [root, group]}))["attributes"]
    assert [one["name"] for one in found[group]] == ["c", "a"]


COUNT = 40_000


@pytest.fixture
def settings() -> ServiceSettings:
    return ServiceSettings()


@pytest.fixture
def on_loop(watch: Watch) -> list[bool]:
    """For each call that looks at all elements, whether the event loop waited for it."""
    for name in ("parse_attribute", "respond_floats", "attribute_bytes"):
        watch(attribute_handlers, name)
    watch(create, "parse_attribute")
    return watch(handlers, "respond_floats")


async def test_many_elements_are_looked_at_in_a_thread(client: RestClient, on_loop: list[bool]) -> None:
    root = (await client("GET", "/"))["root"]
    path = f"/groups/{root}/attributes/a"
    numbers = {"type": U8, "shape": [COUNT]}
    text = base64.b64encode(bytes(COUNT)).decode()
    for value in ({"value": [0] * COUNT}, {"value": text, "encoding": "base64"}):
        assert (await client("PUT", path, numbers | value)).status in (200, 201)
        await put(client, path, value)
    for where in (path, f"{path}/value"):
        assert (await client("GET", where))["value"] == [0] * COUNT
        assert (await client("GET", where, encoding="base64"))["value"] == text
    assert len((await client("GET", f"/groups/{root}/attributes", IncludeData=1))["attributes"]) == 1
    assert len((await client("POST", f"/groups/{root}/attributes", {"attr_names": ["a"]}))["attributes"]) == 1
    assert "a" in (await client("GET", f"/groups/{root}", include_attrs=1))["attributes"]
    made = {"type": U8, "shape": [1], "attributes": {"a": numbers | {"value": [0] * COUNT}}}
    on_loop_so_far = list(on_loop)
    assert (await client("POST", "/datasets", made)).status == 201
    assert len(on_loop_so_far) >= 10
    assert not any(on_loop_so_far)
    assert not on_loop[len(on_loop_so_far)]


async def test_few_elements_are_looked_at_at_once(client: RestClient, on_loop: list[bool]) -> None:
    path = f"/groups/{(await client('GET', '/'))['root']}/attributes/a"
    assert (await client("PUT", path, {"type": U8, "value": 1})).status == 201
    assert (await client("GET", path))["value"] == 1
    assert on_loop == [True, True]


@pytest.mark.parametrize("in_one", [False, True], ids=["many elements", "one long element"])
async def test_many_elements_of_many_objects_are_shown_in_a_thread(
    client: RestClient, in_one: bool, watch: Watch
) -> None:
    root = (await client("GET", "/"))["root"]
    ids = [(await client("POST", "/groups", {"link": {"id": root, "name": name}}))["id"] for name in "xy"]
    long: dict[str, Any] = {
        "type": F32,
        "shape": [MAX_WHOLE_ITEMS + 1],
        "value": [0.5] * (MAX_WHOLE_ITEMS + 1),
    }
    if in_one:
        long = {"type": vlen_of(long["type"]), "shape": [1], "value": [long["value"]]}
    assert (await client("PUT", f"/groups/{ids[0]}/attributes/a", long)).status == 201
    on_loop = watch(object_json, "attribute_value_json")
    attributes = f"/groups/{root}/attributes"
    listed = [
        await client("POST", attributes, {"obj_ids": ids}, IncludeData=1),
        await client("POST", attributes, {"obj_ids": [root]}, IncludeData=1, follow_links=1),
        await client("GET", attributes, IncludeData=1, follow_links=1),
    ]
    for reply in listed:
        [shown] = reply["attributes"][ids[0]]
        assert shown["value"] == long["value"]
        assert reply["attributes"][ids[1]] == []
    found = await client("POST", "/", {"h5paths": ["/x", "/y"]}, include_attrs=1)
    reply = await client("GET", "/", h5path="/x", include_attrs=1)
    for shown in (found["h5paths"]["/x"], reply):
        assert shown["attributes"]["a"]["value"] == long["value"]
    assert found["h5paths"]["/y"]["attributes"] == {}
    assert on_loop == [False] * 5
