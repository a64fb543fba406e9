"""A server without users, and pages in a browser on its machine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp.test_utils import TestClient

from hsparse.errors import Forbidden
from hsparse.model.acl import Principal
from hsparse.sn.policies.guards import PageGuard
from hsparse.sn.service_settings import ServiceSettings
from tests.support.memory_node import MemoryNode
from tests.support.rest_client import ROUTES, named_service, route_client
from tests.testing.manual_clock import ManualClock

EVIL = "http://evil.example.com"
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
        "localhost",
        "LOCALHOST:5101",
        "127.0.0.1",
        "127.8.9.1:80",
        "[::1]:5101",
        "a.localhost",
        "data.local:1",
        None,
    ],
)
def test_hosts_of_the_machine(host: str | None) -> None:
    PageGuard(("Data.local",), ()).check("GET", {} if host is None else {"Host": host})


@pytest.mark.parametrize(
    "host",
    [
        "evil.example.com",
        "127.0.0.1.evil.com",
        "localhost.evil.com",
        "192.168.1.5",
        "[::2]",
        "[",
        "",
        "a@b",
        "1",
    ],
)
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
