"""Refusals before a request is parsed: only where one begins, and with all that an answer has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from hsparse.clock import SystemClock
from hsparse.concurrency.admission import BURST
from hsparse.dn.service import DataService
from hsparse.model.acl import Principal
from hsparse.sn.app import create_app
from hsparse.sn.http.early_rejection import parse_head
from hsparse.sn.server import ServerRunner
from hsparse.sn.service import Service
from hsparse.storage.memory import MemoryStore
from tests.support.rest_client import named_service

REQUEST = b"GET /domains HTTP/1.1\r\nHost: a\r\nAuthorization: ann\r\n\r\n"
STEPS = 20
"""Steps of the event loop in which bytes arrive that were sent."""
LAST = REQUEST.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")


@given(st.binary(max_size=20))
def test_the_length_of_a_request_is_that_of_its_head_and_body(body: bytes) -> None:
    data = b"PUT /a?b=c HTTP/1.1\r\nHost: a\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    head = parse_head(data)
    assert head is not None
    assert (head.method, head.target) == (b"PUT", b"/a?b=c")
    assert head.nbytes == len(data)


@pytest.mark.parametrize(
    "data",
    {
        "no request": b"\x16\x03\x01\r\n\r\n",
        "half a head": REQUEST[:-1],
        "bare line feeds": REQUEST.replace(b"Host: a\r\n", b"Host: a\n"),
        "chunked": REQUEST.replace(b"Host: a", b"Transfer-Encoding: chunked"),
        "two lengths": REQUEST.replace(b"Host: a", b"Content-Length: 0\r\nContent-Length: 5"),
        "a length that is none": REQUEST.replace(b"Host: a", b"Content-Length: +5"),
        "an expectation": REQUEST.replace(b"Host: a", b"Expect: 100-continue"),
        "an old version": REQUEST.replace(b"HTTP/1.1", b"HTTP/1.0"),
        "a preflight": REQUEST.replace(b"GET", b"OPTIONS"),
    }.values(),
)
def test_what_is_in_doubt_is_parsed(data: bytes) -> None:
    assert parse_head(data) is None


class Overloaded:
    """A service node all of whose places are taken, with a queue that has been there for long."""

    def __init__(self, service: Service, port: int) -> None:
        self.service = service
        self.port = port
        self._tasks: list[asyncio.Task[object]] = []

    async def begin(self) -> None:
        admission = self.service.admission
        for _ in range(admission.limit):
            await admission.enter("other")
        admission._mean = 1.0
        self._tasks = [asyncio.create_task(admission.enter("ann")) for _ in range(1000)]
        await asyncio.sleep(0)
        admission._waiting_since -= 2 * BURST

    def end(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def send(self, *pieces: bytes) -> bytes:
        """Send bytes, each piece when the server has read the one before; return all answers."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        for piece in pieces:
            writer.write(piece)
            for _ in range(STEPS):
                await asyncio.sleep(0)
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        return answer


@pytest.fixture
async def node() -> AsyncIterator[Overloaded]:
    data_node = DataService(MemoryStore(), SystemClock())
    service = named_service(data_node, SystemClock(), Principal("ann", admin=True))
    runner = ServerRunner(create_app(service))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made = Overloaded(service, cast(int, runner.addresses[0][1]))
    assert (await made.send(LAST)).startswith(b"HTTP/1.1 200")  # the credentials are known from now on
    await made.begin()
    yield made
    made.end()
    await runner.cleanup()
    await data_node.close()


async def test_a_refusal_is_an_answer_like_any_other(node: Overloaded) -> None:
    answer = await node.send(REQUEST, LAST.replace(b"Host: a", b"X-Request-ID: mine\r\nOrigin: http://page"))
    first, second = answer.split(b"HTTP/1.1 503 ")[1:]
    for one in (first, second):
        head, body = one.split(b"\r\n\r\n")
        assert b"\r\nRetry-After: " in head
        assert b"\r\nServer: hsparse/" in head
        assert b"\r\nContent-Length: %d\r\n" % len(body) in head + b"\r\n"
        assert b'"kind":"busy"' in body
        assert b"Access-Control-Allow-Origin: *" in head
    assert b"\r\nX-Request-ID: mine" in second
    text = node.service.metrics.text().decode()
    assert 'hsparse_requests_total{method="GET",route="other",status="503"} 2.0' in text
    assert 'hsparse_requests_refused_total{reason="overload"} 2.0' in text


@pytest.mark.parametrize("path", [b"/about", b"/livez", b"/readyz?a=b", b"/metrics"])
async def test_what_shows_the_state_is_answered(node: Overloaded, path: bytes) -> None:
    assert (await node.send(LAST.replace(b"/domains", path))).startswith(b"HTTP/1.1 200")


async def test_unknown_credentials_are_verified_first(node: Overloaded) -> None:
    assert (await node.send(LAST.replace(b"ann", b"eve"))).startswith(b"HTTP/1.1 401")


async def test_after_a_body_in_pieces_the_next_request_is_refused(node: Overloaded) -> None:
    put = b"PUT /about HTTP/1.1\r\nHost: a\r\nAuthorization: ann\r\nContent-Length: 4\r\n\r\n"
    answer = await node.send(put + b"ab", b"cd", LAST)
    assert [one[:3] for one in answer.split(b"HTTP/1.1 ")[1:]] == [b"405", b"503"]


async def test_what_may_be_the_rest_of_a_request_is_not_taken_for_one(node: Overloaded) -> None:
    """A header's value that looks like a request, and begins where the bytes are cut."""
    answer = await node.send(b"GET /about HTTP/1.1\r\nX-Trick: ", LAST)
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.count(b"HTTP/1.1 ") == 1
