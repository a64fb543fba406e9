"""Bodies that come and answers that go: memory, streams, and clients that leave or wait."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
from aiohttp import ClientError, web
from aiohttp.test_utils import TestClient
from hypothesis import given
from hypothesis import strategies as st

from hsparse.clock import SystemClock
from hsparse.concurrency.memory_budget import MemoryBudget
from hsparse.errors import Conflict
from hsparse.model.acl import Principal
from hsparse.setting import MIB
from hsparse.sn.app import create_app
from hsparse.sn.body_memory import FIRST_STEP_BYTES, BodyBudget, BodyMemory
from hsparse.sn.http import stream
from hsparse.sn.http.request import BINARY_TYPE, read_json
from hsparse.sn.http.stream import PART_BYTES, respond_stream
from hsparse.sn.request import Request
from hsparse.sn.route import Route
from hsparse.sn.server import AppRunner
from hsparse.sn.service_settings import ServiceSettings
from hsparse.sn.values.request_selection import pack_points
from tests.support.memory_node import MemoryNode
from tests.support.rest_client import RemoteRest, named_service, route_client


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
    server: Server, method: bytes, end: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
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


def serving(pieces: AsyncGenerator[bytes, None], length: int | None = None) -> TestClient[Any, Any]:
    async def handle(request: Request) -> web.StreamResponse:
        return await respond_stream(request, BINARY_TYPE, pieces, length)

    return route_client(Route("GET", "/", handle, None))


async def numbered(count: int, size: int = 10) -> AsyncGenerator[bytes, None]:
    for number in range(count):
        yield bytes([number]) * size


async def test_pieces_come_in_order() -> None:
    async with serving(numbered(5), 50) as client, client.get("/") as reply:
        assert reply.content_length == 50
        assert await reply.read() == b"".join(bytes([n]) * 10 for n in range(5))


async def test_nothing_at_all_is_an_empty_answer() -> None:
    async with serving(numbered(0)) as client, client.get("/") as reply:
        assert await reply.read() == b""


async def test_a_failure_before_the_first_piece_is_an_error() -> None:
    async def failing() -> AsyncGenerator[bytes, None]:
        raise Conflict("There is another.")
        yield b""

    async with serving(failing()) as client, client.get("/") as reply:
        assert reply.status == 409


async def test_a_late_failure_breaks_the_connection() -> None:
    async def failing() -> AsyncGenerator[bytes, None]:
        yield b"x" * 10
        raise ZeroDivisionError

    async with serving(failing()) as client:
        with pytest.raises(ClientError):
            async with client.get("/") as reply:
                await reply.read()


async def test_a_small_answer_is_sent_at_once_with_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MAX_WHOLE_BYTES", 50)
    async with serving(numbered(5)) as client, client.get("/") as reply:
        assert reply.content_length == len(await reply.read()) == 50
    async with serving(numbered(6)) as client, client.get("/") as reply:
        assert reply.content_length is None
        assert len(await reply.read()) == 60


@pytest.mark.parametrize("length", [None, 1000])
async def test_a_head_generates_one_piece_and_sends_none(length: int | None) -> None:
    generated = 0

    async def pieces() -> AsyncGenerator[bytes, None]:
        nonlocal generated
        while generated < 100:
            generated += 1
            yield bytes(10)

    async with serving(pieces(), length) as client:
        answer = await client.head("/")
        assert (answer.status, await answer.read(), generated) == (200, b"", 1)
        assert answer.headers.get("Content-Length") == (None if length is None else str(length))
        assert (await client.head("/nowhere")).status == 404, "the connection goes on"


class Looks(MemoryBudget):
    """A budget that counts how often it is asked whether anyone waits."""

    def __init__(self) -> None:
        super().__init__(1)
        self.looks = 0
        self.looked = asyncio.Event()

    @property
    def is_waited_for(self) -> bool:
        self.looks += 1
        self.looked.set()
        return super().is_waited_for


@pytest.mark.parametrize("of_answers", [True, False], ids=["answers", "another"])
async def test_a_slow_client_is_let_go_once_others_wait_for_memory(
    of_answers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "CROWDED_PART_SECONDS", 0.02)
    budget, ended = Looks(), asyncio.Event()

    async def endless() -> AsyncGenerator[bytes, None]:
        while True:
            yield b"x" * stream.PART_BYTES

    async def handle(request: Request) -> web.StreamResponse:
        hold = budget.hold(1) if of_answers else stream.hold_until_sent(request, budget, 1)
        try:
            async with hold:
                return await respond_stream(request, BINARY_TYPE, endless())
        finally:
            ended.set()

    clock = SystemClock()
    service = named_service(MemoryNode(clock), clock)
    service.answers = budget if of_answers else MemoryBudget(1)
    async with route_client(Route("GET", "/", handle, None), service=service) as client:
        _, writer = await asyncio.open_connection(client.host, client.port, limit=1024)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        while budget.looks < 3:
            await asyncio.wait_for(budget.looked.wait(), 20)
            budget.looked.clear()
        assert not ended.is_set()  # nobody waits: it has the minute that anyone has
        async with asyncio.timeout(20), budget.hold(1):
            assert ended.is_set()
        writer.close()


SILENT = 20
PUT = b"PUT /body HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n"


class BodyServer:
    """A server with little memory for bodies, which answers how long they are."""

    def __init__(self) -> None:
        clock = SystemClock()
        settings = ServiceSettings(single_user=None, request_memory=MIB, requests_at_once=2)
        self.service = named_service(MemoryNode(clock), clock, Principal("ann"), settings=settings)
        self.begun = asyncio.Semaphore(0)
        self.ended = asyncio.Semaphore(0)
        routes = (Route("PUT", "/body", self._receive, None), Route("PUT", "/value", self._parse, None))
        self.runner = AppRunner(create_app(self.service, routes))

    @property
    def address(self) -> tuple[str, int]:
        return self.runner.addresses[0][0], self.runner.addresses[0][1]

    async def _receive(self, request: Request) -> web.StreamResponse:
        self.begun.release()
        try:
            return web.json_response({"length": len(await request.body())})
        finally:
            self.ended.release()

    async def _parse(self, request: Request) -> web.StreamResponse:
        await read_json(request, pack_points)
        return web.json_response({"held": self.service.bodies.values.used > 0})


@pytest.fixture
async def body_server() -> AsyncIterator[BodyServer]:
    made = BodyServer()
    await made.runner.setup()
    await web.TCPSite(made.runner, "127.0.0.1", 0).start()
    yield made
    await made.runner.cleanup()


async def test_bodies_that_are_announced_and_not_sent_keep_nobody_waiting(body_server: BodyServer) -> None:
    silent = [await asyncio.open_connection(*body_server.address) for _ in range(SILENT)]
    for _, writer in silent:
        writer.write(PUT)
        await body_server.begun.acquire()
    assert body_server.service.bodies.used == 0
    rest = RemoteRest("http://{}:{}".format(*body_server.address))
    for length in (10, 300_000, 1_000_000):
        assert (await rest("PUT", "/body", bytes(length)))["length"] == length
    await rest.close()
    for _, writer in silent:
        writer.close()
        await body_server.ended.acquire()


async def test_a_body_that_a_disconnect_cuts_is_no_defect(
    body_server: BodyServer, caplog: pytest.LogCaptureFixture
) -> None:
    _, writer = await asyncio.open_connection(*body_server.address)
    writer.write(PUT + b"a" * 1000)
    await body_server.begun.acquire()
    with caplog.at_level(logging.WARNING):
        writer.close()
        await body_server.ended.acquire()
        await asyncio.sleep(0)
    assert not caplog.records
    assert body_server.service.bodies.used == 0


@given(
    sizes=st.lists(st.integers(1, 40 * FIRST_STEP_BYTES), min_size=1, max_size=12),
    limit=st.integers(1, 60 * FIRST_STEP_BYTES),
)
async def test_bodies_that_grow_side_by_side_are_all_finished(sizes: list[int], limit: int) -> None:
    budget = BodyBudget(limit)

    async def receive(size: int) -> None:
        async with aclosing(BodyMemory(budget)) as memory:
            for there in range(0, size + FIRST_STEP_BYTES, FIRST_STEP_BYTES):
                await memory.grow(min(there, size), size)
                assert budget.used <= limit
                await asyncio.sleep(0)

    await asyncio.gather(*(receive(size) for size in sizes))
    assert budget.used == 0


async def test_values_of_json_wait_for_room() -> None:
    budget = BodyBudget(4 * MIB)
    async with aclosing(BodyMemory(budget)) as first, aclosing(BodyMemory(budget)) as second:
        await first.grow(MIB, MIB)
        await first.hold_value(100 * MIB)
        assert budget.values.used == 2 * MIB
        assert not second.has_room_for_value(1)
        waiting = asyncio.ensure_future(second.hold_value(MIB))
        await asyncio.sleep(0)
        assert not waiting.done()
        await first.drop_value()
        await waiting
        assert budget.values.used == MIB
        assert budget.used == MIB
    assert budget.values.used == budget.used == 0


async def test_only_values_of_many_items_hold_memory(body_server: BodyServer) -> None:
    rest = RemoteRest("http://{}:{}".format(*body_server.address))
    for value, held in (([1] * 100_000, True), ({"points": [1] * 100_000}, False), (["x" * 100_000], False)):
        assert (await rest("PUT", "/value", value))["held"] is held
        assert body_server.service.bodies.values.used == 0
    await rest.close()


async def test_a_body_takes_no_more_than_twice_what_has_arrived() -> None:
    budget = BodyBudget(200 * MIB)
    async with aclosing(BodyMemory(budget)) as memory:
        for there in range(FIRST_STEP_BYTES, 20 * FIRST_STEP_BYTES, 1000):
            await memory.grow(there, 90 * MIB)
            assert there <= budget.used <= 2 * there
        await memory.grow(90 * MIB, 90 * MIB)
        assert budget.used == 90 * MIB
