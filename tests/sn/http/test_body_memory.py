"""Memory for bodies: what is announced and not sent takes none, and bodies that grow side by side are all finished."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from hsparse.clock import SystemClock
from hsparse.model.acl import Principal
from hsparse.setting import MIB
from hsparse.sn.app import create_app
from hsparse.sn.body_memory import FIRST_STEP_BYTES, BodyBudget, BodyMemory
from hsparse.sn.http.request import read_json
from hsparse.sn.request import Request
from hsparse.sn.route import Route
from hsparse.sn.server import AppRunner
from hsparse.sn.service_settings import ServiceSettings
from hsparse.sn.values.request_selection import pack_points
from tests.support.memory_node import MemoryNode
from tests.support.rest_client import RemoteRest, named_service

SILENT = 20
PUT = b"PUT /body HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n"


class Server:
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
async def server() -> AsyncIterator[Server]:
    made = Server()
    await made.runner.setup()
    await web.TCPSite(made.runner, "127.0.0.1", 0).start()
    yield made
    await made.runner.cleanup()


async def test_bodies_that_are_announced_and_not_sent_keep_nobody_waiting(server: Server) -> None:
    silent = [await asyncio.open_connection(*server.address) for _ in range(SILENT)]
    for _, writer in silent:
        writer.write(PUT)
        await server.begun.acquire()
    assert server.service.bodies.used == 0
    rest = RemoteRest("http://{}:{}".format(*server.address))
    for length in (10, 300_000, 1_000_000):
        assert (await rest("PUT", "/body", bytes(length)))["length"] == length
    await rest.close()
    for _, writer in silent:
        writer.close()
        await server.ended.acquire()


async def test_a_body_that_a_disconnect_cuts_is_no_defect(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    _, writer = await asyncio.open_connection(*server.address)
    writer.write(PUT + b"a" * 1000)
    await server.begun.acquire()
    with caplog.at_level(logging.WARNING):
        writer.close()
        await server.ended.acquire()
        await asyncio.sleep(0)
    assert not caplog.records
    assert server.service.bodies.used == 0


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


async def test_only_values_of_many_items_hold_memory(server: Server) -> None:
    rest = RemoteRest("http://{}:{}".format(*server.address))
    for value, held in (([1] * 100_000, True), ({"points": [1] * 100_000}, False), (["x" * 100_000], False)):
        assert (await rest("PUT", "/value", value))["held"] is held
        assert server.service.bodies.values.used == 0
    await rest.close()


async def test_a_body_takes_no_more_than_twice_what_has_arrived() -> None:
    budget = BodyBudget(200 * MIB)
    async with aclosing(BodyMemory(budget)) as memory:
        for there in range(FIRST_STEP_BYTES, 20 * FIRST_STEP_BYTES, 1000):
            await memory.grow(there, 90 * MIB)
            assert there <= budget.used <= 2 * there
        await memory.grow(90 * MIB, 90 * MIB)
        assert budget.used == 90 * MIB
