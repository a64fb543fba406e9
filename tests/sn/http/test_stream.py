"""Streamed answers: pieces in order, failures that break the connection, clients that take nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from aiohttp import ClientError, web
from aiohttp.test_utils import TestClient

from hsparse.clock import SystemClock
from hsparse.concurrency.memory_budget import MemoryBudget
from hsparse.errors import Conflict
from hsparse.sn.http import stream
from hsparse.sn.http.request import BINARY_TYPE
from hsparse.sn.http.stream import respond_stream
from hsparse.sn.request import Request
from hsparse.sn.route import Route
from tests.support.memory_node import MemoryNode
from tests.support.rest_client import named_service, route_client


@pytest.fixture(autouse=True)
def streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stream answers of any size."""
    monkeypatch.setattr(stream, "MAX_WHOLE_BYTES", 0)


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


async def test_a_client_that_takes_nothing_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "PART_SECONDS", 0.05)
    ended = asyncio.Event()

    async def endless() -> AsyncGenerator[bytes, None]:
        try:
            while True:
                yield b"x" * stream.PART_BYTES
        finally:
            ended.set()

    async with serving(endless()) as client:
        reader, writer = await asyncio.open_connection(client.host, client.port, limit=1024)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await writer.drain()
        await asyncio.wait_for(ended.wait(), 20)  # although we never read what its buffers hold
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await reader.readexactly(1 << 30)
        writer.close()


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
