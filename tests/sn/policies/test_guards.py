"""Which pages in browsers may ask, and what a page of another site cannot do."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp.test_utils import TestClient

from hsparse.dn.service import DataService
from hsparse.errors import Forbidden
from hsparse.model.acl import Principal
from hsparse.model.ids import COLLECTIONS
from hsparse.sn.app import create_app
from hsparse.sn.policies.guards import FormGuard, PageGuard
from hsparse.sn.route import Route
from hsparse.sn.service_settings import ServiceSettings
from tests.support.memory_node import MemoryNode
from tests.support.rest_client import PARTS, ROUTES, AppServer, RestClient, named_service, route_client
from tests.testing.manual_clock import ManualClock
from tests.testing.memory_store import MemoryStore

Client = TestClient[Any, Any]


def client_of(settings: ServiceSettings) -> Client:
    clock = ManualClock()
    admin = Principal("admin", admin=True)
    return route_client(*ROUTES, service=named_service(MemoryNode(clock), clock, admin, settings=settings))


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with client_of(ServiceSettings(single_user="admin")) as one:
        yield one


async def test_a_page_changes_nothing_without_a_preflight(client: Client) -> None:
    headers = {"Origin": EVIL, "Content-Type": "text/plain", "Authorization": "admin"}
    for method, path in (("PUT", "/?domain=/x.h5"), ("POST", "/datasets?domain=/x.h5"), ("GET", "/about")):
        async with client.request(method, path, data=b"{}", headers=headers) as answer:
            assert answer.status == 403
            assert "--cors-origins" in (await answer.json())["error"]["message"]
    async with client.get("/?domain=/x.h5", headers={"Authorization": "admin"}) as answer:
        assert answer.status == 404


async def test_a_name_that_was_bound_to_loopback_reads_nothing(client: Client) -> None:
    for headers in ({"Host": "evil.example.com"}, {"Host": "evil.example.com", "Origin": EVIL}):
        async with client.get("/about", headers=headers) as answer:
            assert answer.status == 403
            assert "--allowed-hosts" in (await answer.json())["error"]["message"]


async def test_its_own_pages_and_preflights_are_answered(client: Client) -> None:
    own = f"http://127.0.0.1:{client.port}"
    for method, origin in (("GET", own), ("OPTIONS", EVIL)):
        async with client.request(method, "/about", headers={"Origin": origin}) as answer:
            assert answer.status == 200


async def test_users_are_their_own_guard() -> None:
    headers = {"Host": "data.example.org", "Origin": EVIL}
    async with (
        client_of(ServiceSettings(single_user=None)) as one,
        one.get("/about", headers=headers) as answer,
    ):
        assert answer.status == 200


@pytest.mark.parametrize(
    "host",
    [
        "localhost", "LOCALHOST:5101", "127.0.0.1", "127.8.9.1:80", "[::1]:5101", "a.localhost",
        "data.local:1", None,
    ],
)  # fmt: skip
def test_hosts_of_the_machine(host: str | None) -> None:
    PageGuard(("Data.local",), ()).check("GET", {} if host is None else {"Host": host})


@pytest.mark.parametrize(
    "host",
    [
        "evil.example.com", "127.0.0.1.evil.com", "localhost.evil.com", "192.168.1.5", "[::2]", "[", "",
        "a@b", "1",
    ],
)  # fmt: skip
def test_other_hosts(host: str) -> None:
    with pytest.raises(Forbidden):
        PageGuard(("data.local",), ("*",)).check("GET", {"Host": host})


def test_origins() -> None:
    guard = PageGuard((), ("https://viewer.example.org/", "*"))
    asked = {"Host": "localhost:5101"}
    guard.check("PUT", asked | {"Origin": "https://viewer.example.org", "Sec-Fetch-Site": "cross-site"})
    guard.check("PUT", asked | {"Origin": "http://localhost:5101"})
    for origin in (EVIL, "null", "http://localhost:3000", "http://127.0.0.1:5101"):
        with pytest.raises(Forbidden):
            guard.check("GET", asked | {"Origin": origin})


async def test_other_sites_embed_nothing(client: Client) -> None:
    for site in ("cross-site", "same-site"):
        for mode in ("no-cors", "cors", "websocket"):
            headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Authorization": "admin"}
            async with client.get("/about", headers=headers) as answer:
                assert answer.status == 403
                assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    for site, mode in (("cross-site", "navigate"), ("none", "navigate"), ("same-origin", "no-cors")):
        async with client.get("/about", headers={"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode}) as answer:
            assert answer.status == 200
            assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"


OURS, EVIL = "https://viewer.example.org", "https://evil.example"
TEXT = "text/plain;charset=UTF-8"
FORM = {"Content-Type": TEXT, "Origin": EVIL, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
DOMAIN = "/home/ann/mine.h5"


@asynccontextmanager
async def server() -> AsyncIterator[tuple[RestClient, MemoryStore]]:
    """Give a client of a server with users, in a domain, and its store."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    node = DataService(store, clock)
    settings = ServiceSettings(single_user=None, cors_origins=("*", OURS + "/"))
    async with RestClient(node, clock, Principal("ann", admin=True), settings=settings) as rest:
        rest.domain = DOMAIN
        assert (await rest("PUT", "/", {})).status == 201
        yield rest, store


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
    listed = {"Origin": OURS, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}
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


ALLOWED = "Access-Control-Allow-Origin"
Ask = Callable[..., Awaitable[Any]]


async def answers(
    origins: tuple[str, ...], *asked: tuple[str, str, str | None], user: str | None = None
) -> list[Any]:
    """Return the headers of the answers to requests given as method, path and origin; a `user` for all is no users."""
    clock = ManualClock()
    node = DataService(MemoryStore(clock=clock), clock)
    settings = ServiceSettings(single_user=user, cors_origins=origins)
    service = named_service(node, clock, Principal("ann"), settings=settings)
    found = []
    async with TestClient[Any, Any](AppServer(create_app(service, parts=PARTS))) as client:
        for method, path, origin in asked:
            headers = {} if origin is None else {"Origin": origin}
            if method == "OPTIONS":
                headers["Access-Control-Request-Method"] = "PUT"
            async with client.request(method, path, headers=headers) as answer:
                found.append(answer.headers)
    await node.close()
    return found


async def test_any_origin_by_default_and_no_credentials_of_the_browser() -> None:
    for headers in await answers(("*",), ("GET", "/about", EVIL), ("GET", "/nope", EVIL)):
        assert headers[ALLOWED] == "*"
        assert "Access-Control-Allow-Credentials" not in headers
        assert "Retry-After" in headers["Access-Control-Expose-Headers"]
        assert "Origin" in headers.getall("Vary")


async def test_what_no_page_asked_for_is_read_by_none() -> None:
    # It may be in the browser's cache, brought there by an image or a form of any page.
    for path in ("/about", "/nope"):
        (headers,) = await answers(("*",), ("GET", path, None))
        assert not [name for name in headers if name.startswith("Access-Control")]
        assert "Origin" in headers.getall("Vary")


async def test_without_users_any_is_none() -> None:
    own, *others = await answers(
        ("*", OURS),
        ("GET", "/about", OURS),
        ("GET", "/about", EVIL),
        ("OPTIONS", "/about", EVIL),
        user="ann",
    )
    assert own[ALLOWED] == OURS
    for headers in others:
        assert not [name for name in headers if name.startswith("Access-Control")]


async def test_listed_origins_and_no_others() -> None:
    origins = (OURS + "/", "http://localhost:3000")
    mine, preflight, error = await answers(
        origins, ("GET", "/about", OURS), ("OPTIONS", "/about", OURS), ("GET", "/nope", OURS)
    )
    for headers in (mine, preflight, error):
        assert headers[ALLOWED] == OURS
        assert headers["Access-Control-Allow-Credentials"] == "true"
        assert "Origin" in headers.getall("Vary")
    assert "Access-Control-Allow-Methods" in preflight
    for headers in await answers(
        origins, ("GET", "/about", EVIL), ("OPTIONS", "/about", EVIL), ("GET", "/about", None)
    ):
        assert ALLOWED not in headers
        assert "Access-Control-Allow-Methods" not in headers
        assert "Origin" in headers.getall("Vary"), "a cache must not give one origin another's answer"


@pytest.mark.parametrize("origin", [OURS, "null"])
async def test_none_is_none(origin: str) -> None:
    for headers in await answers((), ("GET", "/about", origin), ("OPTIONS", "/about", origin)):
        assert not [name for name in headers if name.startswith("Access-Control")]
