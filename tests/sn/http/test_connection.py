"""What is given up when the client is gone or waits too long, and what goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator

import pytest
from aiohttp import web

from hsparse.clock import SystemClock
from hsparse.model.acl import Principal
from hsparse.sn.app import create_app
from hsparse.sn.http import stream
from hsparse.sn.http.stream import PART_BYTES, respond_stream
from hsparse.sn.request import Request
from hsparse.sn.route import Route
from hsparse.sn.server import AppRunner
from hsparse.sn.service_settings import ServiceSettings
from tests.support.memory_node import MemoryNode
from tests.support.rest_client import named_service


class Server:
    """A server whose handlers wait for `gate`, and tell of what happens to them."""

    def __init__(self, settings: ServiceSettings) -> None:
        clock = SystemClock()
        service = named_service(MemoryNode(clock), clock, Principal("ann"), settings=settings)
        self.gate, self.reached = asyncio.Event(), asyncio.Event()
        self.given_up, self.finished = asyncio.Event(), asyncio.Event()
        self.timers: list[object] = []
        self.requests: list[Request] = []
        routes = (
            Route("GET", "/held", self._hold, None),
            Route("PUT", "/held", self._hold, None),
            Route("GET", "/stream", self._stream, None),
            Route("GET", "/endless", self._endless, None),
            Route("POST", "/endless", self._endless, None),
        )
        self.service = service
        self.runner = AppRunner(create_app(service, routes))

    async def connect(self, request: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.runner.addresses[0][1])
        writer.write(request + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return reader, writer

    async def _wait(self) -> None:
        self.reached.set()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.given_up.set()
            raise
        self.finished.set()

    async def _hold(self, request: Request) -> web.StreamResponse:
        self.requests.append(request)
        await self._wait()
        return web.Response()

    async def _stream(self, request: Request) -> web.StreamResponse:
        async def pieces() -> AsyncGenerator[bytes, None]:
            yield b"first"
            yield b"second"
            assert request.read_limit is not None
            self.timers.append(request.read_limit.when())
            await self._wait()

        return await respond_stream(request, "text/plain", pieces())

    async def _endless(self, request: Request) -> web.StreamResponse:
        async def pieces() -> AsyncGenerator[bytes, None]:
            try:
                while True:
                    yield bytes(PART_BYTES)
            finally:
                self.given_up.set()

        return await respond_stream(request, "text/plain", pieces())


@pytest.fixture(autouse=True)
def streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stream answers of any size."""
    monkeypatch.setattr(stream, "MAX_WHOLE_BYTES", 0)


@pytest.fixture
def settings() -> ServiceSettings:
    return ServiceSettings(single_user=None)


@pytest.fixture
async def server(settings: ServiceSettings) -> AsyncIterator[Server]:
    made = Server(settings)
    await made.runner.setup()
    await web.TCPSite(made.runner, "127.0.0.1", 0).start()
    yield made
    made.gate.set()
    await made.runner.cleanup()


@pytest.mark.parametrize("path", [b"/held", b"/stream"])
async def test_what_only_reads_is_given_up_with_its_client(server: Server, path: bytes) -> None:
    _, writer = await server.connect(b"GET " + path)
    await server.reached.wait()
    writer.close()
    await server.given_up.wait()


@pytest.mark.parametrize("method", [b"GET", b"POST"])
@pytest.mark.parametrize("end", ["close", "abort", "takes nothing"])
async def test_a_client_that_hangs_up_in_an_answer_is_no_defect(
    server: Server,
    method: bytes,
    end: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if end == "takes nothing":
        monkeypatch.setattr(stream, "PART_SECONDS", 0.05)
    reader, writer = await server.connect(method + b" /endless")
    await reader.readexactly(3 * PART_BYTES)
    with caplog.at_level(logging.WARNING):
        if end == "abort":
            writer.transport.abort()
        elif end == "close":
            writer.close()
        await server.given_up.wait()
        await server.runner.cleanup()
    writer.close()
    assert not caplog.records
    counts = [line for line in server.service.metrics.text().decode().splitlines() if "/endless" in line]
    assert any('status="aborted"' in line for line in counts), counts
    assert not any('status="500"' in line for line in counts)


async def test_a_change_goes_on_without_its_client(server: Server) -> None:
    _, writer = await server.connect(b"PUT /held")
    await server.reached.wait()
    writer.close()
    await writer.wait_closed()
    while any(one.transport for one in server.runner.server.connections):  # type: ignore[union-attr]  # noqa: ASYNC110
        await asyncio.sleep(0)
    server.gate.set()
    await server.finished.wait()
    assert not server.given_up.is_set()


@pytest.mark.parametrize("settings", [ServiceSettings(single_user=None, max_read_time=0.001)])
async def test_an_answer_must_begin_in_time(server: Server) -> None:
    reader, writer = await server.connect(b"GET /held")
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"max_read_time" in answer
    assert server.given_up.is_set()


async def test_a_request_that_is_answered_is_in_no_cycle(server: Server) -> None:
    reader, writer = await server.connect(b"GET /held")
    await server.reached.wait()
    assert server.requests[0].read_limit is not None
    server.gate.set()
    await reader.read()
    writer.close()
    assert server.requests[0].read_limit is None


async def test_an_answer_that_has_begun_takes_any_time(server: Server) -> None:
    reader, writer = await server.connect(b"GET /stream")
    await server.reached.wait()
    assert server.timers == [None]
    server.gate.set()
    assert b"second" in await reader.read()
    writer.close()
