"""Attributes: one, several, of several objects; as JSON, base64 and bytes."""

from __future__ import annotations

import base64
import math
from typing import Any

import numpy as np
import pytest

from hsparse.sn.objects import attribute_handlers
from tests.support.rest_client import BINARY, RestClient

INTS = {"type": "H5T_STD_I32LE", "shape": [3], "value": [1, 2, 3]}
TEXT_TYPE = {
    "class": "H5T_STRING",
    "charSet": "H5T_CSET_UTF8",
    "strPad": "H5T_STR_NULLTERM",
    "length": "H5T_VARIABLE",
}
TEXT = {"type": TEXT_TYPE, "shape": [], "value": "hello"}


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
    assert got["type"] == {"class": "H5T_INTEGER", "base": "H5T_STD_I32LE"}
    assert got["shape"] == {"class": "H5S_SIMPLE", "dims": [3]}
    assert (got["name"], got["value"]) == ("a", [4, 5, 6])
    assert "value" not in (await rest("GET", f"{own}/a", IncludeData=0)).body


async def test_who_may_create_and_not_update_replaces_nothing(rest: RestClient, own: str) -> None:
    rights = {"create": True, "read": True}
    assert (await rest("PUT", "/acls/test_user2", rights)).status == 201
    rest.user = "test_user2"
    assert (await rest("PUT", f"{own}/a", INTS, replace=1)).status == 201
    assert (await rest("PUT", f"{own}/a", INTS, replace=1)).status == 200
    other = INTS | {"value": [4, 5, 6]}
    for path, body in ((f"{own}/a", other), (own, {"attributes": {"a": other}})):
        refused = await rest("PUT", path, body, replace=1)
        assert (refused.status, "right update" in refused["error"]["message"]) == (403, True)
    assert (await rest("GET", f"{own}/a"))["value"] == INTS["value"]
    assert (await rest("PUT", "/acls/test_user2", {"update": True}, user="test_user1")).status == 201
    assert (await rest("PUT", f"{own}/a", other, replace=1)).status == 201


@pytest.mark.parametrize("names", [{"members": [{"name": "a", "value": 1}]}, {"mapping": {"a": 1}}])
async def test_what_was_got_set_again(rest: RestClient, own: str, names: dict[str, Any]) -> None:
    kind = {"class": "H5T_ENUM", "base": {"class": "H5T_INTEGER", "base": "H5T_STD_I8LE"}} | names
    record = {"class": "H5T_COMPOUND", "fields": [{"name": "e", "type": kind}]}
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
    assert (await rest("GET", f"{own}/a")).status == 410
    assert (await rest("GET", f"{own}/a/value")).status == 410
    assert (await rest("DELETE", f"{own}/a")).status == 410
    await rest("PUT", f"{own}/b", INTS)
    assert (await rest("DELETE", own, attr_names="a/zz/b")).status == 200
    assert (await rest("DELETE", own, attr_names="a/b")).status == 200
    assert (await rest("GET", f"{own}/b")).status == 410
    assert (await rest("GET", f"{own}/zz")).status == 404
    assert (await rest("POST", own, {"attr_names": ["zz"]})).status == 404
    assert (await rest("PUT", f"{own}/a", INTS)).status == 201
    assert (await rest("GET", f"{own}/a")).status == 200


async def test_null_and_missing_values(rest: RestClient, own: str) -> None:
    assert (await rest("PUT", f"{own}/n", {"type": "H5T_STD_I32LE", "shape": "H5S_NULL"})).status == 201
    got = await rest("GET", f"{own}/n")
    assert (got["shape"], got["value"]) == ({"class": "H5S_NULL"}, None)
    assert (await rest("GET", f"{own}/n/value")).status == 400
    assert (await rest("PUT", f"{own}/n/value", {"value": 1})).status == 400
    await rest("PUT", f"{own}/z", {"type": "H5T_STD_I32LE", "shape": [2]})
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
    assert (await rest("PUT", f"{own}/a/value", new[:-1])).status == 400
    assert (await rest("PUT", f"{own}/a/value", {"value": [5, 5, 5]})).status == 200
    assert (await rest("PUT", f"{own}/a/value", {"value": [5, 5]})).status == 400
    assert (await rest("PUT", f"{own}/a/value", {})).status == 400
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
    body = {"type": "H5T_IEEE_F64LE", "shape": [3], "value": [math.nan, 1.5, -math.inf]}
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
        {"type": "H5T_STD_I32LE", "shape": [2], "value": [1]},
        {"type": "H5T_STD_I32LE", "shape": [2], "value": [1, 2, 3]},
        {"type": "H5T_STD_I8LE", "value": 300},
        {"type": "H5T_STD_I8LE", "value": "x"},
        {"type": "H5T_STD_I8LE", "value": {"a": 1}},
        {"type": "H5T_STD_I8LE", "shape": "H5S_NULL", "value": 1},
        {"type": "H5T_STD_I8LE", "shape": [-1]},
        {"type": "H5T_STD_I8LE", "value": "AA", "encoding": "base64"},
        {"type": "H5T_STD_I8LE", "value": "AAAA", "encoding": "base64"},
        {"type": "H5T_STD_I8LE", "value": "AA==", "encoding": "hex"},
        {"type": TEXT_TYPE, "shape": [2], "value": ["a"]},
        {"type": TEXT_TYPE, "value": "YQ==", "encoding": "base64"},
        {"type": "t-00000000-00000000-0000-000000-000001", "value": 1},
        [],
    ],
)
async def test_a_bad_attribute_changes_nothing(rest: RestClient, root: str, own: str, body: object) -> None:
    reply = await rest("PUT", f"{own}/x", body)
    assert reply.status == 400
    assert reply["error"]["message"].endswith(".")
    assert (await rest("PUT", own, {"attributes": {"fine": INTS, "x": body}})).status == 400
    assert (await rest("GET", f"/groups/{root}"))["attributeCount"] == 0


async def test_too_large(rest: RestClient, own: str) -> None:
    for value in (None, 1):
        body = {"type": "H5T_STD_I64LE", "shape": [2**40], "value": value}
        assert (await rest("PUT", f"{own}/x", body)).status == 413


async def test_several_at_once(rest: RestClient, root: str, own: str) -> None:
    group = (await rest("POST", "/groups", {"link": {"id": root, "name": "g"}}))["id"]
    assert (await rest("PUT", own, {"attributes": {"i": INTS, "t": TEXT}})).status == 201
    assert (await rest("PUT", own, {"attributes": {"i": INTS, "t": TEXT}})).status == 200
    other = INTS | {"value": [0, 0, 0]}
    assert (await rest("PUT", own, {"attributes": {"new": INTS, "i": other}})).status == 409
    assert await names(rest, own) == ["i", "t"]
    body = {"obj_ids": {group: {"attributes": {"o": INTS}}, root: {"attributes": {"p": TEXT}}}}
    assert (await rest("PUT", own, body)).status == 201
    assert (await rest("PUT", own, {"obj_ids": [root, group], "attributes": {"both": TEXT}})).status == 201
    assert await names(rest, own) == ["both", "i", "p", "t"]
    assert await names(rest, f"/groups/{group}/attributes") == ["both", "o"]
    assert (await rest("DELETE", own, attr_names="i/p")).status == 200
    assert (await rest("DELETE", own, attr_names="both|t", separator="|")).status == 200
    assert await names(rest, own) == []
    assert (await rest("DELETE", own)).status == 400
    coded = base64.b64encode(b"both;o").decode()
    reply = await rest(
        "DELETE", f"/groups/{group}/attributes", attr_names=coded, encoding="base64", separator=";"
    )
    assert reply.status == 200
    assert await names(rest, f"/groups/{group}/attributes") == []


async def test_by_name_of_several_objects(rest: RestClient, root: str, own: str) -> None:
    group = (await rest("POST", "/groups", {"link": {"id": root, "name": "g"}}))["id"]
    await rest("PUT", own, {"attributes": {"i": INTS, "t": TEXT}})
    await rest("PUT", f"/groups/{group}/attributes", {"attributes": {"t": TEXT}})
    some = await rest("POST", own, {"attr_names": ["t", "i"]}, IncludeData=1)
    assert [(one["name"], one["value"]) for one in some["attributes"]] == [("t", "hello"), ("i", [1, 2, 3])]
    both = await rest("POST", own, {"obj_ids": [root, group]})
    assert {id: [one["name"] for one in found] for id, found in both["attributes"].items()} == {
        root: ["i", "t"],
        group: ["t"],
    }
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
    dataset = (await rest("POST", "/datasets", {"type": "H5T_STD_I8LE", "link": {"id": group, "name": "d"}}))[
        "id"
    ]
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
    found = (await rest("POST", f"/groups/{root}/attributes", body, follow_links=1, pattern="?"))[
        "attributes"
    ]
    assert {id: [one["name"] for one in some] for id, some in found.items()} == {
        group: ["a"],
        dataset: ["a", "b"],
    }
    assert (await rest("GET", f"/groups/{group[:-1]}x/attributes", follow_links=1)).status == 400


async def test_a_name_asked_of_one_object_must_be_there(rest: RestClient, root: str) -> None:
    group = (await rest("POST", "/groups", {}))["id"]
    await rest("PUT", f"/groups/{root}/attributes", {"attributes": {"a": INTS}, "obj_ids": [root, group]})
    await rest("PUT", f"/groups/{root}/attributes/b", INTS)
    path = f"/groups/{root}/attributes"
    assert (await rest("POST", path, {"obj_ids": {root: ["a", "b"], group: ["a"]}})).status == 200
    assert (await rest("POST", path, {"obj_ids": {root: ["a"], group: ["a", "b"]}})).status == 404
    found = (await rest("POST", path, {"obj_ids": [root, group], "attr_names": ["b"]}))["attributes"]
    assert {id: len(some) for id, some in found.items()} == {root: 1, group: 0}


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


async def test_every_collection_has_attributes(rest: RestClient) -> None:
    dataset = (await rest("POST", "/datasets", {"type": "H5T_STD_I8LE", "shape": [2]}))["id"]
    datatype = (await rest("POST", "/datatypes", {"type": "H5T_STD_I8LE"}))["id"]
    for collection, id in (("datasets", dataset), ("datatypes", datatype)):
        assert (await rest("PUT", f"/{collection}/{id}/attributes/a", INTS)).status == 201
        assert (await rest("GET", f"/{collection}/{id}", include_attrs=1))["attributes"]["a"]["value"] == [
            1,
            2,
            3,
        ]
        assert (await rest("GET", f"/groups/{id}/attributes/a")).status == 400
    assert (await rest("GET", f"/datasets/{dataset}/attributes", follow_links=1)).status == 400


async def names(rest: RestClient, path: str, **options: object) -> list[str]:
    return [one["name"] for one in (await rest("GET", path, **options))["attributes"]]


@pytest.mark.parametrize("names", ["É\x90", "a", "_w==", "****"])
async def test_names_that_are_no_base64_are_refused(rest: RestClient, own: str, names: str) -> None:
    reply = await rest("DELETE", own, attr_names=names, encoding="base64")
    assert reply.status == 400
    assert "attr_names is not valid base64" in reply["error"]["message"]


async def test_attributes_for_a_list_of_objects_are_parsed_once(
    rest: RestClient, root: str, own: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed = []
    parse = attribute_handlers.parse_attribute
    monkeypatch.setattr(
        attribute_handlers, "parse_attribute", lambda *args: parsed.append(args) or parse(*args)
    )
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
    reply = await rest("PUT", own, body)
    assert reply.status == 413
    assert "300000; the limit is 100000" in reply["error"]["message"]
    long = {"type": "H5T_STD_I8LE", "shape": [250_000], "value": [1] * 250_000}
    reply = await rest("PUT", own, {"obj_ids": ids, "attributes": {"a": long}})
    assert reply.status == 413
    assert "max_request_size" in reply["error"]["message"]


async def test_a_name_asked_for_twice_is_answered_once(rest: RestClient, root: str, own: str) -> None:
    group = (await rest("POST", "/groups", {}))["id"]
    await rest("PUT", own, {"attributes": dict.fromkeys("abc", INTS), "obj_ids": [root, group]})
    wanted = ["c", "a", "c", "a"]
    found = (await rest("POST", own, {"attr_names": wanted}))["attributes"]
    assert [one["name"] for one in found] == ["c", "a"]
    found = (await rest("POST", own, {"attr_names": [*wanted, "z"], "obj_ids": [root, group]}))["attributes"]
    assert [one["name"] for one in found[group]] == ["c", "a"]
