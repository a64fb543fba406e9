"""Errors in one shape, the ids of requests, and what is logged of them."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import hdrs, web
from aiohttp.test_utils import TestClient

from hsparse import __version__
from hsparse.clock import SystemClock
from hsparse.errors import StoreFailed, Unauthenticated
from hsparse.sn.policies import log as request_log
from hsparse.sn.policies.log import AccessFormat, RequestLog, access_json, access_text
from hsparse.sn.request import Request
from hsparse.sn.route import Route
from hsparse.wire.message import DataNode
from tests.sn.conftest import USERS
from tests.support.memory_node import MemoryNode
from tests.support.rest_client import RestClient, named_service, route_client
from tests.testing.manual_clock import ManualClock


class SlowClock(ManualClock):
    """A clock that goes on by a quarter of a second at each look at its monotonic time."""

    def monotonic(self) -> float:
        self.time += 0.25
        return self.time


@pytest.fixture
def lines() -> list[str]:
    return []


async def logged_client(node: DataNode, lines: list[str], form: AccessFormat) -> AsyncIterator[RestClient]:
    """Give a client of a server whose access log is `lines`, and for which every request is slow."""
    clock = SlowClock()
    client = RestClient(
        node,
        clock,
        *USERS,
        log=lambda metrics: RequestLog(clock, metrics, write=lines.append, form=form, slow=0.1),
    )
    yield await client.open()
    await client.close()
    await node.close()


@pytest.fixture
async def logged(node: DataNode, lines: list[str]) -> AsyncIterator[RestClient]:
    async for client in logged_client(node, lines, access_text):
        yield client


@pytest.fixture
async def json_logged(node: DataNode, lines: list[str]) -> AsyncIterator[RestClient]:
    async for client in logged_client(node, lines, access_json):
        yield client


async def test_every_answer_has_an_id_and_the_version(bare: RestClient) -> None:
    ids = set()
    for method, path in (("GET", "/about"), ("GET", "/nope"), ("OPTIONS", "/"), ("GET", "/?domain=/none")):
        reply = await bare(method, path)
        ids.add(reply.headers["X-Request-ID"])
        assert reply.headers["Server"] == f"hsparse/{__version__}"
    reply = await bare("POST", "/", b"x", headers={hdrs.EXPECT: "a miracle"})
    assert reply.status == 417
    ids.add(reply.headers["X-Request-ID"])
    assert len(ids) == 5


async def test_probes_are_not_in_the_access_log(logged: RestClient, lines: list[str]) -> None:
    for path in ("/livez", "/readyz", "/metrics", "/about"):
        assert (await logged("GET", path)).status == 200
    assert [line.split()[4] for line in lines] == ["/about"]


async def test_a_client_may_send_the_id(bare: RestClient) -> None:
    async def answered(id: str) -> str:
        return (await bare("GET", "/about", headers={"X-Request-ID": id})).headers["X-Request-ID"]

    assert await answered("run-7.step/3") == "run-7.step/3"
    assert await answered("two words") != "two words"
    assert await answered("x" * 129) != "x" * 129


async def test_lines_of_text(logged: RestClient, lines: list[str]) -> None:
    await logged("PUT", "/", {}, domain="/home/test_user1/a file.h5")
    await logged("GET", "/about", user=None, headers={"X-Request-ID": "mine"})
    await logged("GET", "/groups", user="nobody", domain="/home/test_user1/a file.h5", api_key="sesame")
    await logged("GET", "/a%20b%0ac/nope")
    words = [line.split() for line in lines]
    assert all(line.count("\n") == 1 for line in lines)
    assert [one[1:6] for one in words] == [
        ["test_user1", "PUT", "/home/test_user1/a%20file.h5", "/", "201"],
        ["anonymous", "GET", "-", "/about", "200"],
        ["-", "GET", "-", "/groups", "401"],
        ["-", "GET", "-", "/a%20b%0Ac/nope", "404"],
    ]
    assert all(one[0].endswith("Z") and int(one[6]) > 0 and float(one[7]) > 0 for one in words)
    assert words[1][8] == "mine"
    assert "sesame" not in "".join(lines)


async def test_lines_of_json(json_logged: RestClient, lines: list[str]) -> None:
    logged = json_logged
    domain = "/home/test_user1/x.h5"
    reply = await logged("PUT", "/", {}, domain=domain)
    (item,) = map(json.loads, lines)
    assert {key: item[key] for key in ("user", "method", "domain", "path", "status")} == {
        "user": "test_user1",
        "method": "PUT",
        "domain": domain,
        "path": "/",
        "status": 201,
    }
    assert item["request"] == reply.headers["X-Request-ID"]
    assert item["bytes"] == int(reply.headers["Content-Length"])


async def test_slow_requests_are_logged_with_what_was_done(
    logged: RestClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, request_log.__name__):
        await logged("PUT", "/", {}, domain="/home/test_user1/x.h5", api_key="sesame")
    (record,) = caplog.records
    said = record.getMessage()
    assert said.startswith("Slow request: PUT / in /home/test_user1/x.h5 by test_user1 took ")
    assert said.endswith(" conflicts")
    assert "sesame" not in said


async def test_nothing_is_logged_by_default(bare: RestClient, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "hsparse"):
        await bare("GET", "/about")
    assert [one for one in caplog.records if one.name.startswith("hsparse")] == []


async def test_errors_of_the_server_name_domain_object_and_id(
    bare: RestClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare.domain = "/home/test_user1/x.h5"
    root = (await bare("PUT", "/", {}))["root"]

    async def fail(*ids: str) -> None:
        raise StoreFailed("The store did not answer.") if ids == (bare.domain,) else ZeroDivisionError

    monkeypatch.setattr(bare.service.owners, "read", fail)
    await bare("GET", f"/groups/{root}", headers={"X-Request-ID": "mine"})
    assert f"GET /groups/{root} in '{bare.domain}': The store did not answer." in caplog.text
    reply = await bare("GET", f"/groups/{root}", headers={"X-Request-ID": "mine"}, domain="/other\\x")
    assert reply["error"]["message"].endswith("details, by the id mine.")
    assert f"GET /groups/{root} in '/other\\\\x' failed" in caplog.text


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
