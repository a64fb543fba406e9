"""What the server says of itself and counts, and what is not HTTP: refused in JSON, and not repeated in a log."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientConnectionError, ClientPayloadError, web
from aiohttp.test_utils import TestClient
from prometheus_client.parser import text_string_to_metric_families

from hsparse import __version__
from hsparse.clock import SystemClock
from hsparse.errors import Misconfigured, NotFound
from hsparse.sn.about import get_metrics
from hsparse.sn.app import create_app
from hsparse.sn.auth.authenticator import SchemeAuthenticator
from hsparse.sn.auth.password_authenticator import PasswordAuthenticator
from hsparse.sn.auth.password_file import PasswordFile
from hsparse.sn.data_nodes.owners import FixedNodes, Owners
from hsparse.sn.http.stream import MAX_WHOLE_BYTES, respond_stream
from hsparse.sn.metrics import METRICS
from hsparse.sn.request import Request
from hsparse.sn.route import Route
from hsparse.sn.server import MAX_HEADER, AppRunner
from tests.sn.conftest import USERS
from tests.support.memory_node import MemoryNode
from tests.support.rest_client import AppServer, RestClient, named_service
from tests.testing.manual_clock import ManualClock


async def test_about_needs_no_user(bare: RestClient) -> None:
    about = await bare("GET", "/about", user=None)
    assert about.status == 200
    assert about["hsds_version"].startswith("1.")
    assert about["hsparse_version"] == __version__
    assert (about["state"], about["node_count"], about["dn_ids"]) == ("READY", 1, ["dn-001"])
    assert (about["username"], about["isadmin"]) == ("anonymous", False)
    assert (await bare("GET", "/about", user="admin"))["isadmin"] is True


async def test_only_an_admin_sees_the_users(bare: RestClient) -> None:
    users = (await bare("GET", "/users", user="admin"))["users"]
    assert users == [
        {"userName": user.name, "admin": user.admin, "groups": sorted(user.groups)} for user in USERS
    ]
    for user in ("test_user1", None):
        assert (await bare("GET", "/users", user=user)).status in (401, 403)


async def test_info(bare: RestClient) -> None:
    info = await bare("GET", "/info")
    assert {key: info["node"][key] for key in ("type", "state", "node_count")} == {
        "type": "sn",
        "state": "READY",
        "node_count": 1,
    }
    assert info["data_nodes"][0]["id"] == "dn-001"


async def test_a_node_whose_password_file_cannot_be_used_is_not_ready(
    bare: RestClient, tmp_path: Path
) -> None:
    (tmp_path / "passwords").write_text("ada\n")
    passwords = PasswordAuthenticator(PasswordFile(tmp_path / "passwords"), SystemClock())
    bare.service.authenticator = SchemeAuthenticator(passwords=passwords)
    reply = await bare("GET", "/readyz", user=None)
    assert reply.status == 503
    assert reply["error"]["message"] == "The server's password file cannot be used; its log says why."


async def test_a_node_that_may_not_use_the_data_nodes_is_not_ready(bare: RestClient) -> None:
    assert (await bare("GET", "/readyz", user=None)).body == {"state": "READY"}
    bare.service.owners = Owners(FixedNodes({}, lambda: Misconfigured("Another token.")))
    reply = await bare("GET", "/readyz", user=None)
    assert (reply.status, reply["error"]["message"]) == (503, "Another token.")
    assert (await bare("GET", "/about", user=None))["state"] == "WAITING"
    assert (await bare("GET", "/livez", user=None)).status == 200


Client = TestClient[Any, Any]


class Rig:
    """A service node with one route of each kind of answer, and a clock its handlers move."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.service = named_service(MemoryNode(self.clock), self.clock)
        self.metrics = self.service.metrics
        self.inside = asyncio.Event()
        self.leave = asyncio.Event()
        self.routes = (
            Route("PUT", "/things/{id}", self.thing, None),
            Route("GET", "/things/{id}", self.thing, None),
            Route("GET", "/wait", self.wait, None),
            Route("GET", "/stream", self.stream, None),
            Route("GET", "/break", self.broken, None),
            Route("GET", "/refuse", self.refuse, None),
            Route("GET", "/bug", self.bug, None),
            Route("GET", "/metrics", get_metrics, None),
        )

    async def thing(self, request: Request) -> web.Response:
        self.clock.time += 0.2
        return web.Response(body=await request.body() + b"!!!", status=201)

    async def wait(self, request: Request) -> web.Response:
        self.inside.set()
        await self.leave.wait()
        return web.Response()

    async def stream(self, request: Request) -> web.StreamResponse:
        async def pieces() -> AsyncGenerator[bytes, None]:
            for _ in range(3):
                yield b"x" * MAX_WHOLE_BYTES

        return await respond_stream(request, "text/plain", pieces())

    async def broken(self, request: Request) -> web.StreamResponse:
        async def pieces() -> AsyncGenerator[bytes, None]:
            yield b"x" * (MAX_WHOLE_BYTES + 1)
            raise NotFound("There is no more.")

        return await respond_stream(request, "text/plain", pieces())

    async def refuse(self, request: Request) -> web.Response:
        raise NotFound("There is no such thing.")

    async def bug(self, request: Request) -> web.Response:
        raise ZeroDivisionError


@asynccontextmanager
async def client_of(rig: Rig) -> AsyncIterator[Client]:
    async with TestClient(AppServer(create_app(rig.service, rig.routes))) as client:
        yield client


def samples(rig: Rig) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    families = text_string_to_metric_families(rig.metrics.text().decode())
    return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


def counted(rig: Rig, name: str, **labels: str) -> float | None:
    return samples(rig).get((name, frozenset(labels.items())))


async def test_a_request_is_counted_by_template_method_and_status() -> None:
    rig = Rig()
    async with client_of(rig) as client:
        for id in ("a", "b"):
            async with client.put(f"/things/{id}", data=b"12345") as response:
                assert await response.read() == b"12345!!!"
    labels = {"route": "/things/{id}", "method": "PUT"}
    assert counted(rig, "hsparse_requests_total", **labels, status="201") == 2
    assert counted(rig, "hsparse_request_bytes_total", **labels) == 10
    assert counted(rig, "hsparse_response_bytes_total", **labels) == 16
    assert counted(rig, "hsparse_request_seconds_count", **labels) == 2
    assert counted(rig, "hsparse_request_seconds_sum", **labels) == pytest.approx(0.4)
    assert counted(rig, "hsparse_request_seconds_bucket", **labels, le="0.1") == 0
    assert counted(rig, "hsparse_request_seconds_bucket", **labels, le="0.25") == 2


async def test_a_streamed_answer_counts_what_was_sent() -> None:
    rig = Rig()
    async with client_of(rig) as client, client.get("/stream") as response:
        assert len(await response.read()) == 3 * MAX_WHOLE_BYTES
    assert counted(rig, "hsparse_response_bytes_total", route="/stream", method="GET") == 3 * MAX_WHOLE_BYTES


async def test_a_head_request_has_no_body_out() -> None:
    rig = Rig()
    async with client_of(rig) as client, client.head("/things/a"):
        pass
    assert counted(rig, "hsparse_response_bytes_total", route="/things/{id}", method="HEAD") == 0


async def test_errors_are_counted_with_their_status() -> None:
    rig = Rig()
    async with client_of(rig) as client:
        async with client.get("/refuse") as response:
            size = len(await response.read())
        async with client.post("/refuse"):
            pass
    assert counted(rig, "hsparse_requests_total", route="/refuse", method="GET", status="404") == 1
    assert counted(rig, "hsparse_response_bytes_total", route="/refuse", method="GET") == size
    assert counted(rig, "hsparse_requests_total", route="/refuse", method="POST", status="405") == 1


async def test_an_error_nobody_caught_is_a_500() -> None:
    rig = Rig()
    async with client_of(rig) as client, client.get("/bug") as response:
        assert response.status == 500
    assert counted(rig, "hsparse_requests_total", route="/bug", method="GET", status="500") == 1


async def test_paths_and_methods_clients_make_up_are_one_label() -> None:
    rig = Rig()
    async with client_of(rig) as client:
        for number in range(5):
            async with client.get(f"/made/up/{number}"):
                pass
        for method in ("PROPFIND", "MKCOL", "LOCK", "REPORT"):  # the parser lets only known ones in
            async with client.request(method, "/things/a"):
                pass
    assert counted(rig, "hsparse_requests_total", route="other", method="GET", status="404") == 5
    assert counted(rig, "hsparse_requests_total", route="/things/{id}", method="other", status="405") == 4


async def test_a_broken_connection_is_counted_as_aborted() -> None:
    rig = Rig()
    async with client_of(rig) as client:
        with pytest.raises((ClientPayloadError, ClientConnectionError)):
            async with client.get("/break") as response:
                await response.read()
    assert counted(rig, "hsparse_requests_total", route="/break", method="GET", status="aborted") == 1
    assert counted(rig, "hsparse_response_bytes_total", route="/break", method="GET") == MAX_WHOLE_BYTES + 1
    assert counted(rig, "hsparse_requests_in_flight") == 0


async def test_requests_in_flight() -> None:
    rig = Rig()
    async with client_of(rig) as client:
        assert counted(rig, "hsparse_requests_in_flight") == 0
        waiting = asyncio.ensure_future(client.get("/wait"))
        await rig.inside.wait()
        assert counted(rig, "hsparse_requests_in_flight") == 1
        rig.leave.set()
        (await waiting).release()
    assert counted(rig, "hsparse_requests_in_flight") == 0


async def test_metrics_are_served_in_the_text_format() -> None:
    rig = Rig()
    async with client_of(rig) as client:
        async with client.get("/things/a"):
            pass
        async with client.get("/metrics") as response:
            assert response.status == 200
            assert response.content_type == "text/plain"
            text = await response.text()
    names = {family.name for family in text_string_to_metric_families(text)}
    for metric in METRICS:
        assert metric.name.removesuffix("_total") in names
        assert f"# HELP {metric.name} {metric.help}" in text


def test_two_applications_count_apart() -> None:
    first, second = Rig(), Rig()
    first.metrics.in_flight.inc()
    assert counted(first, "hsparse_requests_in_flight") == 1
    assert counted(second, "hsparse_requests_in_flight") == 0


def test_the_table_names_every_metric_once_and_explains_it() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    registered = {
        f"{f.name}_total" if f.type == "counter" else f.name for f in Rig().metrics._registry.collect()
    }
    assert registered == set(names)
    for metric in METRICS:
        assert metric.name.startswith("hsparse_")
        assert metric.help.endswith(".")


SECRET = "sesame" * 4


async def hello(request: Request) -> web.Response:
    return web.json_response({"length": len(request.http.headers.get("Authorization", ""))})


@pytest.fixture
async def port() -> AsyncIterator[int]:
    clock = SystemClock()
    service = named_service(MemoryNode(clock), clock)
    route = Route("GET", "/", hello, None, queued=False, authenticated=False)
    runner = AppRunner(create_app(service, (route,)))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield runner.addresses[0][1]
    await runner.cleanup()


async def send(port: int, data: bytes) -> tuple[int, Any]:
    """Send bytes; return the status and the JSON that come back before the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"application/json" in head
    if not head.startswith(b"HTTP/1.1 200"):
        assert f"Server: hsparse/{__version__}\r\n".encode() in head
        assert b"X-Request-ID: " in head
    return int(head.split()[1]), json.loads(body)


HOSTILE = {
    "not http": f"{SECRET}\r\n\r\n".encode(),
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "a header without a colon": f"GET / HTTP/1.1\r\nHost: x\r\nAuthorization {SECRET}\r\n\r\n".encode(),
    "a header with a control character": f"GET / HTTP/1.1\r\nHost: x\r\nA\x01: {SECRET}\r\n\r\n".encode(),
    "two lengths": b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
    "a length that is none": b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    "a header too long": f"GET / HTTP/1.1\r\nHost: x\r\nA: {SECRET}{'a' * MAX_HEADER}\r\n\r\n".encode(),
    "a target too long": f"GET /?{SECRET}{'a' * MAX_HEADER} HTTP/1.1\r\nHost: x\r\n\r\n".encode(),
    "a credential too long": (
        f"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {SECRET}{'a' * MAX_HEADER}\r\n\r\n".encode()
    ),
    "too many headers": b"GET / HTTP/1.1\r\nHost: x\r\n" + b"B: c\r\n" * 128 + b"\r\n",
    "no host": f"GET / HTTP/1.1\r\nA: {SECRET}\r\n\r\n".encode(),
    "a version that is none": f"GET / HTTP/9.9{SECRET}\r\nHost: x\r\n\r\n".encode(),
}


TOLD = {
    "tls": "without TLS",
    "a header too long": "A header, name and value, has more than 32768 bytes",
    "a target too long": "The request line has more than 16384 bytes",
    "a credential too long": "The header Authorization has more than 32768 bytes",
    "too many headers": "at most 128 headers",
    "no host": "Missing 'Host' header",
}
"""What sentences say of what is wrong."""


@pytest.mark.parametrize("name", HOSTILE)
async def test_what_is_not_http_is_a_bad_request(
    port: int, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        status, body = await send(port, HOSTILE[name])
    assert status == 400
    assert body["error"]["kind"] == "bad_request"
    assert body["error"]["message"].endswith((".", "?"))
    assert TOLD.get(name, "") in body["error"]["message"]
    assert SECRET not in caplog.text
    assert SECRET not in json.dumps(body)


async def test_a_long_token_fits_in_a_header(port: int) -> None:
    head = f"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {'a' * 16_000}\r\n\r\n"
    assert await send(port, head.encode()) == (200, {"length": 16_007})
