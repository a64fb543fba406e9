"""Which pages in browsers may ask."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp.test_utils import TestClient

from hsparse.dn.service import DataService
from hsparse.model.acl import Principal
from hsparse.sn.app import create_app
from hsparse.sn.service_settings import ServiceSettings
from tests.support.rest_client import PARTS, AppServer, named_service
from tests.testing.manual_clock import ManualClock
from tests.testing.memory_store import MemoryStore

OURS, OTHER = "https://viewer.example.org", "https://evil.example.org"
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
    for headers in await answers(("*",), ("GET", "/about", OTHER), ("GET", "/nope", OTHER)):
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
        ("GET", "/about", OTHER),
        ("OPTIONS", "/about", OTHER),
        user="ann",
    )
    assert own[ALLOWED] == OURS
    for headers in others:
        assert not [name for name in headers if name.startswith("Access-Control")]


async def test_a_preflight_of_every_kind_of_path() -> None:
    for path in ("/", "/about", "/groups/g-x/links/a", "/datasets/d-x/value"):
        (headers,) = await answers(("*",), ("OPTIONS", path, OTHER))
        assert headers[ALLOWED] == "*"
        assert headers["Access-Control-Allow-Methods"] == "PUT"
        assert "Authorization" in headers["Access-Control-Allow-Headers"]


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
        origins, ("GET", "/about", OTHER), ("OPTIONS", "/about", OTHER), ("GET", "/about", None)
    ):
        assert ALLOWED not in headers
        assert "Access-Control-Allow-Methods" not in headers
        assert "Origin" in headers.getall("Vary"), "a cache must not give one origin another's answer"


@pytest.mark.parametrize("origin", [OURS, "null"])
async def test_none_is_none(origin: str) -> None:
    for headers in await answers((), ("GET", "/about", origin), ("OPTIONS", "/about", origin)):
        assert not [name for name in headers if name.startswith("Access-Control")]
