"""Requests that a page of another site sends as a form does, with what the browser keeps for a server with users."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from hsparse.dn.service import DataService
from hsparse.errors import Forbidden
from hsparse.model.acl import Principal
from hsparse.model.ids import COLLECTIONS
from hsparse.sn.policies.guards import FormGuard
from hsparse.sn.route import Route
from hsparse.sn.service_settings import ServiceSettings
from tests.support.rest_client import ROUTES, RestClient
from tests.testing.manual_clock import ManualClock
from tests.testing.memory_store import MemoryStore

LISTED, EVIL = "https://viewer.example.org", "https://evil.example"
TEXT = "text/plain;charset=UTF-8"
FORM = {"Content-Type": TEXT, "Origin": EVIL, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
DOMAIN = "/home/ann/mine.h5"


@asynccontextmanager
async def server() -> AsyncIterator[tuple[RestClient, MemoryStore]]:
    """Give a client of a server with users, in a domain, and its store."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    node = DataService(store, clock)
    settings = ServiceSettings(single_user=None, cors_origins=("*", LISTED + "/"))
    rest = await RestClient(node, clock, Principal("ann", admin=True), settings=settings).open()
    try:
        rest.domain = DOMAIN
        assert (await rest("PUT", "/", {})).status == 201
        yield rest, store
    finally:
        await rest.close()
        await node.close()


async def etags(store: MemoryStore) -> dict[str, str]:
    return {entry.key: entry.etag async for page in store.list("") for entry in page.entries}


async def objects(rest: RestClient) -> dict[str, str]:
    """Make a group, a datatype and a dataset, with an attribute each; return their ids by collection."""
    root = (await rest("GET", "/"))["root"]
    made = {}
    for collection in COLLECTIONS.values():
        body = {"link": {"id": root, "name": collection}, "type": "H5T_STD_U8LE", "shape": [4]}
        if collection == "groups":
            body = {"link": body["link"]}
        elif collection == "datatypes":
            del body["shape"]
        made[collection] = (await rest("POST", f"/{collection}", body))["id"]
        path = f"/{collection}/{made[collection]}/attributes/a"
        assert (await rest("PUT", path, {"type": "H5T_STD_U8LE", "value": 1})).status == 201
    return made


def paths_of(route: Route, ids: dict[str, str]) -> list[str]:
    path = route.path
    for name, text in {"title": "groups", "name": "a", "user": "ann", "chunk": "0", "job": "j"}.items():
        path = path.replace(f"{{{name}}}", text)
    every = [path.replace("{collection:groups|datasets|datatypes}", one) for one in ids]
    return sorted({each.replace("{id}", ids.get(each.split("/")[1], "")) for each in every})


async def test_a_form_of_another_site_is_refused_on_every_route_and_changes_nothing() -> None:
    async with server() as (rest, store):
        ids = await objects(rest)
        before = await etags(store)
        routes = [route for route in ROUTES if route.method not in ("GET", "HEAD")]
        assert len(routes) > 30
        for route in routes:
            for path in paths_of(route, ids):
                for body in (
                    b"{}",
                    b'{"value": 2, "select": "[0:4]", "h5path": "forged", "shape": [1], "read": true}',
                ):
                    reply = await rest(route.method, path, body, headers=FORM)
                    assert (reply.status, "--cors-origins" in reply["error"]["message"]) == (403, True), path
        assert await etags(store) == before


async def test_programs_and_pages_that_may_ask_work() -> None:
    listed = {"Origin": LISTED, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}
    async with server() as (rest, _):
        for number, headers in enumerate(
            (
                {},
                {"Content-Type": TEXT},
                {"Content-Type": "application/x-www-form-urlencoded"},  # curl's --data
                listed | {"Content-Type": "application/json"},
                listed | {"Content-Type": TEXT},
                FORM | {"Content-Type": "application/json"},  # after a preflight, with a header of its own
                {"Content-Type": TEXT, "Sec-Fetch-Site": "none"},
                {"Content-Type": TEXT, "Sec-Fetch-Site": "same-origin", "Origin": "https://proxy.example"},
                {"Content-Type": TEXT, "Origin": rest.url},
            )
        ):
            body = json.dumps({"h5path": f"made-{number}"}).encode()
            reply = await rest("POST", "/groups", body, headers=headers)
            assert reply.status == 201, (headers, reply.body)
        reply = await rest("GET", "/", headers=FORM)
        assert reply.status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": EVIL},
        {"Origin": EVIL, "Host": "data.example.org"},
        {"Origin": "null", "Host": "data.example.org"},
        {"Origin": "http://data.example.org:8080", "Host": "data.example.org"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Host": "data.example.org", "Origin": "http://data.example.org"},
        {"Sec-Fetch-Site": "of-a-kind-to-come"},
    ],
)
def test_pages_of_other_sites(headers: dict[str, str]) -> None:
    guard = FormGuard(("*",))
    for media in (
        {},
        {"Content-Type": ""},
        {"Content-Type": "Text/Plain ; charset=x"},
        {"Content-Type": TEXT},
    ):
        with pytest.raises(Forbidden):
            guard.check("POST", headers | media)
    for method in ("PUT", "DELETE"):
        guard.check(method, headers)  # never without a preflight
        with pytest.raises(Forbidden):
            guard.check(method, headers | {"Content-Type": "multipart/form-data; boundary=x"})
    for method in ("GET", "HEAD", "OPTIONS"):
        guard.check(method, headers | {"Content-Type": TEXT})
    guard.check("POST", headers | {"Content-Type": "application/json"})
