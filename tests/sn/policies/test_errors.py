"""Every error in one shape, with a sentence that says what to do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient

from hsparse.clock import SystemClock
from hsparse.errors import StoreFailed, Unauthenticated
from hsparse.sn.request import Request
from hsparse.sn.route import Route
from tests.support.memory_node import MemoryNode
from tests.support.rest_client import RestClient, named_service, route_client


async def handle(request: Request) -> web.Response:
    what = request.params["what"]
    if what == "unauthenticated":
        raise Unauthenticated("Who are you?")
    if what == "store":
        raise StoreFailed("The store did not answer.")
    if what == "defect":
        raise ZeroDivisionError("a defect")
    return web.Response()


@pytest.fixture
async def client() -> AsyncIterator[TestClient[Any, Any]]:
    clock = SystemClock()
    service = named_service(MemoryNode(clock), clock)
    service.authenticator.challenges = ('Basic realm="x"', 'Bearer realm="x"')  # type: ignore[misc]
    routes = [Route(method, "/{what}", handle, None, authenticated=False) for method in ("GET", "POST")]
    async with route_client(*routes, service=service) as made:
        yield made


@pytest.mark.parametrize(
    ("what", "status", "kind"),
    [
        ("unauthenticated", 401, "unauthenticated"),
        ("store", 500, "store_failed"),
        ("defect", 500, "internal"),
    ],
)
async def test_whatever_is_raised_is_answered_in_one_shape(
    client: TestClient[Any, Any], what: str, status: int, kind: str
) -> None:
    async with client.get(f"/{what}") as answer:
        assert answer.status == status
        body = await answer.json()
    assert list(body) == ["error"]
    assert body["error"]["kind"] == kind
    assert set(body["error"]) == {"kind", "message"}
    assert body["error"]["message"]


async def test_a_401_names_every_scheme(client: TestClient[Any, Any]) -> None:
    async with client.get("/unauthenticated") as answer:
        assert answer.headers.getall("WWW-Authenticate") == ['Basic realm="x"', 'Bearer realm="x"']
    async with client.get("/store") as answer:
        assert "WWW-Authenticate" not in answer.headers


async def test_no_query_and_no_header_is_logged(
    client: TestClient[Any, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        for what in ("store", "defect", "unauthenticated"):
            async with client.get(f"/{what}?api_key=sesame", headers={"Authorization": "Bearer sesame"}):
                pass
    assert "GET /store in no domain: The store did not answer." in caplog.text
    assert "ZeroDivisionError" in caplog.text
    # aiohttp's own log of requests is switched off in the server, not in a test's
    ours = [record for record in caplog.records if record.name.startswith("hsparse")]
    assert len(ours) == 2
    assert not any("sesame" in logging.Formatter().format(record) for record in ours)


async def test_a_new_line_in_a_path_makes_no_new_line_in_the_log(
    client: TestClient[Any, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        async with client.get("/store%0aforged"):
            pass
    assert not any("\n" in record.getMessage() for record in caplog.records)


async def test_only_100_continue_can_be_expected(rest: RestClient) -> None:
    reply = await rest("POST", "/groups", {}, headers={"Expect": "a miracle"})
    assert reply.status == 417
    assert reply["error"]["message"].startswith("The Expect header")
    assert (await rest("POST", "/groups", {}, headers={"Expect": "100-Continue"})).status == 201


@pytest.mark.parametrize("path", ["/nope", "/groups/a/b/c", "/datasets/d-x/values", "/about/"])
async def test_an_unknown_path_says_where_to_look(bare: RestClient, path: str) -> None:
    reply = await bare("GET", path)
    assert reply.status == 404
    assert reply["error"]["kind"] == "not_found"
    assert "/openapi.json" in reply["error"]["message"]


async def test_a_body_has_no_transfer_coding_but_chunked(rest: RestClient) -> None:
    _, _, port = rest.url.rpartition(":")
    head = "POST /groups?domain={} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {}\r\nConnection: close\r\n"
    for coding, status in ("gzip, chunked", b"400"), ("chunked", b"201"):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
        writer.write(head.format(rest.domain, rest.user).encode())
        writer.write(f"Transfer-Encoding: {coding}\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
        assert answer.split()[1] == status
        assert b"X-Content-Type-Options: nosniff" in answer


async def test_a_compressed_body_is_refused_as_such(rest: RestClient) -> None:
    reply = await rest("POST", "/groups", b"\x1f\x8b", headers={"Content-Encoding": "gzip"})
    assert reply.status == 400
    assert "must not be compressed" in reply["error"]["message"]
    assert (await rest("POST", "/groups", {}, headers={"Content-Encoding": "identity"})).status == 201


async def test_a_method_that_is_not_answered_says_which_are(bare: RestClient) -> None:
    reply = await bare("DELETE", "/about")
    assert reply.status == 405
    assert reply.headers["Allow"] == "GET, HEAD, OPTIONS"
    assert "it answers GET, HEAD, OPTIONS" in reply["error"]["message"]
    assert (await bare("PATCH", "/datasets/d-x/value")).headers[
        "Allow"
    ] == "DELETE, GET, HEAD, OPTIONS, POST, PUT"
