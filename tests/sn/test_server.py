"""What is not HTTP: refused in JSON, and not repeated in a log."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from hsparse import __version__
from hsparse.clock import SystemClock
from hsparse.sn.app import create_app
from hsparse.sn.request import Request
from hsparse.sn.route import Route
from hsparse.sn.server import MAX_HEADER, AppRunner
from tests.support.memory_node import MemoryNode
from tests.support.rest_client import named_service

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
