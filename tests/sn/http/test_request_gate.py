"""Requests that ask for their turns, and are refused, before they are parsed: over real connections, bytes by bytes."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from aiohttp import web

from hsparse.clock import SystemClock
from hsparse.concurrency import admission
from hsparse.concurrency.admission import Place
from hsparse.dn.service import DataService
from hsparse.model.acl import Principal
from hsparse.sn.app import create_app
from hsparse.sn.context import Context
from hsparse.sn.http.gated_connection import MOST_KEPT
from hsparse.sn.http.request_log import RequestLog
from hsparse.sn.routes import ROUTES, Route
from hsparse.sn.server import ServerRunner
from hsparse.sn.service_settings import ServiceSettings
from hsparse.storage.memory import MemoryStore
from tests.support.rest_client import named_service

WAIT = 10
"""Seconds after which an answer that does not come fails a test."""

LONGEST = 2
"""How many may wait before one that is not refused."""


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


class Connection:
    """A client that sends bytes as they are."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self, *, head: bool = False) -> Answer:
        """Read the next answer; one to HEAD has no body."""
        async with asyncio.timeout(WAIT):
            lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = dict(line.split(": ", 1) for line in lines[1:-2])
            length = 0 if head else int(headers["Content-Length"])
            return Answer(int(lines[0].split()[1]), headers, await self.reader.readexactly(length))

    async def ask(self, data: bytes) -> Answer:
        self.send(data)
        return await self.answer(head=data.startswith(b"HEAD"))


class Node:
    """A service node of one place, whose handlers answer with what they got; `lines` are its access log."""

    def __init__(self) -> None:
        clock = SystemClock()
        settings = ServiceSettings(single_user=None, requests_at_once=1)
        users = Principal("ann", admin=True), Principal("bob", admin=True)
        self.lines: list[str] = []
        self.data_node = DataService(MemoryStore(), clock)
        request_log = RequestLog(clock, write=self.lines.append)
        self.service = named_service(self.data_node, clock, *users, settings=settings, log=request_log)
        routes = Route("GET", "/echo", self._echo, None), Route("PUT", "/echo", self._echo, None)
        self.runner = ServerRunner(create_app(self.service, (*routes, *ROUTES)))
        self.writers: list[asyncio.StreamWriter] = []

    async def _echo(self, context: Context) -> web.StreamResponse:
        body = bytes(await context.body()) if context.request.body_exists else b""
        return web.Response(body=context.request.query_string.encode() + b":" + body)

    async def connect(self) -> Connection:
        reader, writer = await asyncio.open_connection(*self.runner.addresses[0][:2])
        self.writers.append(writer)
        return Connection(reader, writer)

    async def waiting(self, count: int) -> None:
        """Wait until so many requests wait for their turns."""
        async with asyncio.timeout(WAIT):
            while self.service.admission.waiting != count:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0)

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[Place]:
        """Take the one place while the context lasts."""
        place = await self.service.admission.enter("somebody")
        try:
            yield place
        finally:
            place.leave()

    @asynccontextmanager
    async def full(self, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
        """Take the place, and fill the queue with requests of ann's."""
        monkeypatch.setattr(admission, "BURST", -1.0)
        monkeypatch.setattr(admission, "QUEUE", -1.0)
        monkeypatch.setattr(admission, "MANY", LONGEST + 1)
        client = await self.connect()
        assert (await client.ask(request("GET"))).status == 200  # its credential is known from now on
        async with self.taken():
            turns = [self.service.admission.ask("ann") for _ in range(LONGEST)]
            yield
            for turn in turns:
                assert not isinstance(turn, Place)
                turn.withdraw()


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    made = Node()
    await made.runner.setup()
    await web.TCPSite(made.runner, "127.0.0.1", 0).start()
    yield made
    for writer in made.writers:
        writer.close()
    await made.runner.cleanup()
    await made.data_node.close()


def request(method: str, body: bytes = b"", *fields: str, path: str = "/echo", user: str = "ann") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: a", f"Authorization: {user}", *fields]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def chunked(body: bytes, *, path: str = "/echo") -> bytes:
    head = request("PUT", b"", "Transfer-Encoding: chunked", path=path)
    return head + f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n"


async def test_a_refusal_is_what_the_middlewares_answer(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = request("GET", b"", "X-Request-ID: 7", "Accept-Encoding: gzip")
    async with node.full(monkeypatch):
        early = await (await node.connect()).ask(sent)
        client = await node.connect()
        client.send(sent[:9])  # in pieces, so that it is parsed
        await asyncio.sleep(0.01)
        late = await client.ask(sent[9:])
    assert (early.status, early.headers["X-Request-ID"]) == (503, "7")
    assert int(early.headers["Retry-After"]) >= 1
    for answer in (early, late):
        assert answer.headers.pop("Date")
        answer.body = re.sub(rb"\d+(\.\d+)?", b"N", answer.body)
    assert early == late
    first, second = node.lines[-2:]
    assert first.split()[1:7] == ["ann", "GET", "-", "/echo", "503", early.headers["Content-Length"]]
    assert second.split()[1:7] == first.split()[1:7]
    metrics = (await (await node.connect()).ask(request("GET", path="/metrics"))).body.decode()
    assert 'hsparse_requests_refused_total{reason="overload"} 2.0' in metrics
    assert 'hsparse_requests_total{method="GET",route="other",status="503"} 1.0' in metrics
    assert 'hsparse_requests_total{method="GET",route="/echo",status="503"} 1.0' in metrics


async def test_a_connection_goes_on_after_a_refusal(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await node.connect()
    async with node.full(monkeypatch):
        refused = [
            await client.ask(request("GET")),
            await client.ask(request("PUT", b"abc")),
            await client.ask(request("HEAD")),
            await client.ask(request("GET", b"", "Origin: http://a")),
        ]
        for path in ("/about", "/info", "/livez", "/readyz", "/metrics"):
            assert (await client.ask(request("GET", path=path))).status == 200
        assert (await client.ask(request("OPTIONS"))).status == 200
        assert [one.status for one in refused] == [503] * 4
        client.send(request("PUT", b"abcdef")[:-3])
        assert (await client.answer()).status == 503
        client.send(b"def")
        assert (await client.ask(request("GET"))).status == 503
    answer = await client.ask(request("PUT", b"def", path="/echo?abc"))
    assert (answer.status, answer.body) == (200, b"abc:def")
    assert node.service.admission.running == 0


async def test_who_waits_to_send_a_body_is_told_of_the_refusal(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await node.connect()
    async with node.full(monkeypatch):
        client.send(request("PUT", b"abc", "Expect: 100-continue")[:-3])
        line = await client.reader.readuntil(b"\r\n\r\n")
        assert line == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.send(b"abc")
        assert (await client.answer()).status == 503
    assert (await client.ask(request("GET"))).status == 200


async def test_a_request_that_waited_is_answered_whole(node: Node) -> None:
    client, body = await node.connect(), random.Random(1).randbytes(4 * MOST_KEPT)
    async with node.taken():
        client.send(request("PUT", body))
        await node.waiting(1)
        await asyncio.sleep(0.01)
    answer = await client.answer()
    assert (answer.status, answer.body) == (200, b":" + body)
    assert float(node.lines[-1].split()[7]) >= 10  # milliseconds, with the wait
    assert (await client.ask(request("GET"))).status == 200


async def test_requests_in_one_piece_are_answered_in_turn(node: Node) -> None:
    client = await node.connect()
    async with node.taken():
        client.send(request("GET", path="/echo?1"))
        await node.waiting(1)
        client.send(request("GET", path="/echo?2") + request("PUT", b"x", path="/echo?3"))
        await asyncio.sleep(0.01)
    assert [(await client.answer()).body for _ in range(3)] == [b"1:", b"2:", b"3:x"]
    assert node.service.admission.running == 0


async def test_a_client_that_leaves_frees_its_turn(node: Node) -> None:
    client = await node.connect()
    async with node.taken():
        client.send(request("GET"))
        await node.waiting(1)
        client.writer.close()
        await node.waiting(0)
    assert node.service.admission.running == 0


@pytest.mark.parametrize(("user", "status"), [("bob", 200), ("nobody", 401)])
async def test_the_turn_is_that_of_the_credential_s_user(
    node: Node, monkeypatch: pytest.MonkeyPatch, user: str, status: int
) -> None:
    client = await node.connect()
    await client.ask(request("GET", user=user))
    async with node.full(monkeypatch):
        assert (await client.ask(request("GET"))).status == 503
        client.send(request("GET", user=user))
        await node.waiting(LONGEST + 1)
    assert (await client.answer()).status == status


@pytest.mark.parametrize(
    "sent",
    [
        request("GET", path="/no/such"),
        request("GET", user="nobody"),
        request("GET", b"", "Request-Timeout: soon"),
        request("GET", path="/groups/g-1"),
    ],
)
async def test_what_is_refused_for_itself_leaves_its_place(node: Node, sent: bytes) -> None:
    client = await node.connect()
    async with node.taken():
        client.send(sent)
        await node.waiting(1)
    assert 400 <= (await client.answer()).status < 500
    assert (await client.ask(request("GET"))).status == 200
    assert node.service.admission.running == 0


async def test_a_deadline_counts_from_when_the_request_came(node: Node) -> None:
    client = await node.connect()
    async with node.taken():
        answer = await client.ask(request("GET", b"", "Request-Timeout: 0.01"))
    assert (answer.status, int(answer.headers["Retry-After"])) == (503, 1)
    assert (await client.ask(request("GET"))).status == 200


async def test_a_request_that_waits_is_answered_before_the_server_stops(node: Node) -> None:
    client = await node.connect()
    async with node.taken() as place:
        client.send(request("PUT", b"abc"))
        await node.waiting(1)
        stopping = asyncio.create_task(node.runner.cleanup())
        await asyncio.sleep(0.01)
        place.leave()
        assert (await client.answer()).body == b":abc"
        await stopping


def pieces(data: bytes, generator: random.Random) -> list[bytes]:
    cuts = sorted(generator.sample(range(len(data)), generator.randrange(4)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


MADE: tuple[Callable[[str], tuple[bytes, bytes]], ...] = (
    lambda name: (request("GET", path=f"/echo?{name}"), f"{name}:".encode()),
    lambda name: (request("PUT", b"body", path=f"/echo?{name}"), f"{name}:body".encode()),
    lambda name: (chunked(b"body", path=f"/echo?{name}"), f"{name}:body".encode()),
    lambda name: (request("GET", path="/livez"), b""),
)


@pytest.mark.parametrize("seed", range(10))
async def test_however_requests_are_cut_into_pieces_each_is_answered(node: Node, seed: int) -> None:
    generator = random.Random(seed)
    made = [generator.choice(MADE)(f"{number}") for number in range(12)]
    client = await node.connect()
    for first in range(0, len(made), 3):
        some = made[first : first + 3]
        async with node.taken():
            for piece in pieces(b"".join(sent for sent, _ in some), generator):
                client.send(piece)
                await asyncio.sleep(0.002)
        for _, expected in some:
            answer = await client.answer()
            assert answer.status == 200
            assert answer.body.startswith(expected)
    assert (node.service.admission.running, node.service.admission.waiting) == (0, 0)


async def test_a_node_that_ends_soon_closes_each_connection_with_its_answer(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = [await node.connect() for _ in range(6)]
    assert (await clients[0].ask(request("GET", path="/readyz"))).status == 200
    async with node.full(monkeypatch):
        node.service.end_soon()
        answers = [
            await client.ask(request("GET", path=path))
            for client, path in zip(clients, ("/readyz", "/livez", "/about", "/echo"), strict=False)
        ]
    clients[4].send(request("PUT", b"abc")[:-3])
    clients[4].send(b"abc")
    answers += [await clients[4].answer(), await clients[5].ask(request("GET", path="/echo?1"))]
    assert [one.status for one in answers] == [503, 200, 200, 503, 200, 200]
    assert {one.headers["Connection"] for one in answers} == {"close"}
    assert int(answers[0].headers["Retry-After"]) >= 1
    assert [await client.reader.read() for client in clients] == [b""] * 6
