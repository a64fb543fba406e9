"""Attributes of many elements: the event loop is free while they are parsed and shown."""

from __future__ import annotations

import base64
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hsparse.sn.http.response import MAX_WHOLE_ITEMS
from hsparse.sn.objects import attribute_handlers, create, handlers
from hsparse.sn.records import object_json
from hsparse.sn.service_settings import ServiceSettings
from tests.sn.value_client import value_client
from tests.support.rest_client import RestClient

COUNT = 40_000


@pytest.fixture
async def client() -> AsyncIterator[RestClient]:
    async with value_client(settings=ServiceSettings()) as made:
        yield made


@pytest.fixture
def on_loop(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Record for each call that looks at all elements whether the event loop waited for it."""
    calls: list[bool] = []

    def record(module: Any, name: str) -> None:
        function = getattr(module, name)

        def recorded(*args: Any, **kwargs: Any) -> Any:
            calls.append(threading.current_thread() is threading.main_thread())
            return function(*args, **kwargs)

        monkeypatch.setattr(module, name, recorded)

    for name in ("parse_attribute", "respond_floats", "attribute_bytes"):
        record(attribute_handlers, name)
    record(create, "parse_attribute")
    record(handlers, "respond_floats")
    return calls


async def test_many_elements_are_looked_at_in_a_thread(client: RestClient, on_loop: list[bool]) -> None:
    root = (await client("GET", "/"))["root"]
    path = f"/groups/{root}/attributes/a"
    numbers = {"type": "H5T_STD_U8LE", "shape": [COUNT]}
    text = base64.b64encode(bytes(COUNT)).decode()
    for value in ({"value": [0] * COUNT}, {"value": text, "encoding": "base64"}):
        assert (await client("PUT", path, numbers | value)).status in (200, 201)
        assert (await client("PUT", f"{path}/value", value)).status == 200
    for where in (path, f"{path}/value"):
        assert (await client("GET", where))["value"] == [0] * COUNT
        assert (await client("GET", where, encoding="base64"))["value"] == text
    assert len((await client("GET", f"/groups/{root}/attributes", IncludeData=1))["attributes"]) == 1
    assert len((await client("POST", f"/groups/{root}/attributes", {"attr_names": ["a"]}))["attributes"]) == 1
    assert "a" in (await client("GET", f"/groups/{root}", include_attrs=1))["attributes"]
    made = {"type": "H5T_STD_U8LE", "shape": [1], "attributes": {"a": numbers | {"value": [0] * COUNT}}}
    on_loop_so_far = list(on_loop)
    assert (await client("POST", "/datasets", made)).status == 201
    assert len(on_loop_so_far) >= 10
    assert not any(on_loop_so_far)
    assert not on_loop[len(on_loop_so_far)]


async def test_few_elements_are_looked_at_at_once(client: RestClient, on_loop: list[bool]) -> None:
    path = f"/groups/{(await client('GET', '/'))['root']}/attributes/a"
    assert (await client("PUT", path, {"type": "H5T_STD_U8LE", "value": 1})).status == 201
    assert (await client("GET", path))["value"] == 1
    assert on_loop == [True, True]


@pytest.mark.parametrize("in_one", [False, True], ids=["many elements", "one long element"])
async def test_many_elements_of_many_objects_are_shown_in_a_thread(
    client: RestClient, in_one: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = (await client("GET", "/"))["root"]
    ids = [(await client("POST", "/groups", {"link": {"id": root, "name": name}}))["id"] for name in "xy"]
    long: dict[str, Any] = {
        "type": "H5T_IEEE_F32LE",
        "shape": [MAX_WHOLE_ITEMS + 1],
        "value": [0.5] * (MAX_WHOLE_ITEMS + 1),
    }
    if in_one:
        long = {"type": {"class": "H5T_VLEN", "base": long["type"]}, "shape": [1], "value": [long["value"]]}
    assert (await client("PUT", f"/groups/{ids[0]}/attributes/a", long)).status == 201
    on_loop: list[bool] = []
    value_json = object_json.attribute_value_json

    def recorded(*args: Any, **kwargs: Any) -> Any:
        on_loop.append(threading.current_thread() is threading.main_thread())
        return value_json(*args, **kwargs)

    monkeypatch.setattr(object_json, "attribute_value_json", recorded)
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
    assert found["h5paths"]["/x"]["attributes"]["a"]["value"] == long["value"]
    assert found["h5paths"]["/y"]["attributes"] == {}
    reply = await client("GET", "/", h5path="/x", include_attrs=1)
    assert reply["attributes"]["a"]["value"] == long["value"]
    assert on_loop == [False] * 5
