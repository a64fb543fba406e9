"""The limit of connections: silent ones give way, those that are worked for do not."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from hsparse.clock import SystemClock
from hsparse.model.acl import Principal
from hsparse.sn.app import create_app
from hsparse.sn.context import Context
from hsparse.sn.http.connection_table import MOST, ConnectionTable, limit_by_files
from hsparse.sn.routes import Route
from hsparse.sn.server import ServerRunner
from tests.support.memory_node import MemoryNode
from tests.support.rest_client import named_service

GET = b"GET /%b HTTP/1.1\r\nHost: localhost\r\nConnection: %b\r\n\r\n"
PUT = b"PUT /body HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"
LIMIT = 4
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Server:
    """A server of few connections: `/held` waits for `gate`, `/body` for its body."""

    def __init__(self) -> None:
        clock = SystemClock()
        self.gate, self.begun = asyncio.Event(), asyncio.Semaphore(0)
        routes = (
            Route("GET", "/quick", self._quick, None),
            Route("GET", "/held", self._hold, None),
            Route("PUT", "/body", self._receive, None),
        )
        service = named_service(MemoryNode(clock), clock, Principal("ann"))
        self.runner = ServerRunner(create_app(service, routes), max_connections=LIMIT)
        self.opened: list[asyncio.StreamWriter] = []

    async def connect(self, request: bytes = b"") -> Streams:
        reader, writer = await asyncio.open_connection(*self.runner.addresses[0][:2])
        self.opened.append(writer)
        writer.write(request)
        return reader, writer

    async def _quick(self, context: Context) -> web.StreamResponse:
        return web.Response(text="quick")

    async def _hold(self, context: Context) -> web.StreamResponse:
        self.begun.release()
        await self.gate.wait()
        return web.Response(text="held")

    async def _receive(self, context: Context) -> web.StreamResponse:
        self.begun.release()
        return web.json_response({"length": len(await context.body())})


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    await made.runner.setup()
    await web.TCPSite(made.runner, "127.0.0.1", 0).start()
    yield made
    made.gate.set()
    for writer in made.opened:
        writer.close()
    await made.runner.cleanup()


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: "], ids=["nothing", "half a header"])
async def test_silent_connections_keep_nobody_out(server: Server, sent: bytes) -> None:
    for _ in range(3 * LIMIT):
        await server.connect(sent)
    reader, _ = await server.connect(GET % (b"quick", b"close"))
    assert (await reader.read()).endswith(b"quick")
    assert len(server.runner.table) <= LIMIT


async def test_clients_that_announce_bodies_keep_nobody_out(server: Server) -> None:
    for _ in range(2 * LIMIT):
        await server.connect(PUT)
        await server.begun.acquire()
    reader, _ = await server.connect(GET % (b"quick", b"close"))
    assert (await reader.read()).endswith(b"quick")


async def test_what_is_worked_on_does_not_give_way(server: Server) -> None:
    held = []
    for _ in range(LIMIT):
        held.append(await server.connect(GET % (b"held", b"close")))
        await server.begun.acquire()
    reader, _ = await server.connect()
    refused = await reader.read()
    assert refused.startswith(b"HTTP/1.1 503 ")
    assert b"Retry-After: 1\r\n" in refused
    assert b"max_connections" in refused
    server.gate.set()
    for reader, _ in held:
        assert (await reader.read()).endswith(b"held")


async def test_the_one_that_was_heard_of_last_stays(server: Server) -> None:
    kept = await server.connect()
    for _ in range(3 * LIMIT):
        kept[1].write(GET % (b"quick", b"keep-alive"))
        assert b"quick" in await kept[0].readuntil(b"quick")
        await server.connect()
    kept[1].write(GET % (b"quick", b"close"))
    assert (await kept[0].read()).endswith(b"quick")


@dataclass(eq=False)
class Made:
    """A connection in name."""

    waits: bool = True
    aborted: bool = False

    def abort(self) -> None:
        self.aborted = True


@given(
    st.lists(st.tuples(st.sampled_from(["add", "hear", "work", "remove"]), st.integers(0, 9))),
    st.integers(1, 5),
)
async def test_the_longest_silent_one_gives_way(steps: list[tuple[str, int]], limit: int) -> None:
    table, model = ConnectionTable(limit), []
    for step, which in steps:
        one = model[which % len(model)] if model else None
        if step == "add":
            silent = [other for other in model if other.waits]
            full, new = len(model) == limit, Made()
            assert table.add(new) == (not full or bool(silent))
            if full and silent:
                assert silent[0].aborted
                model.remove(silent[0])
            if not full or silent:
                model.append(new)
        elif one is not None and step == "work":
            one.waits = not one.waits
        elif one is not None:
            model.remove(one)
            (table.hear if step == "hear" else table.remove)(one)
            if step == "hear":
                model.append(one)
        assert len(table) == len(model)
        assert not any(other.aborted for other in model)


def test_the_limit_follows_from_the_files_that_the_process_may_open() -> None:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert 0 < limit_by_files() <= MOST
    assert soft == resource.RLIM_INFINITY or limit_by_files() < soft
