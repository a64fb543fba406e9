"""The turn of a request: deadlines, places that are given up, and how often a user may ask."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from hsparse.clock import SystemClock
from hsparse.errors import RateLimited
from hsparse.model.acl import Principal
from hsparse.sn.app import create_app
from hsparse.sn.body_memory import FIRST_STEP_BYTES
from hsparse.sn.http import stream
from hsparse.sn.http.stream import respond_stream
from hsparse.sn.policies import authentication as rate_limit
from hsparse.sn.policies.authentication import RateLimit
from hsparse.sn.request import Request
from hsparse.sn.route import Route
from hsparse.sn.server import AppRunner
from hsparse.sn.service_settings import ServiceSettings
from tests.support.memory_node import MemoryNode
from tests.support.rest_client import ROUTES, RemoteRest, Reply, RestClient, named_service
from tests.testing.manual_clock import ManualClock

ANN = {"Authorization": "ann"}


class Node:
    """A service node of one place, with a request that waits for `gate`, and a stream that does after it has begun."""

    def __init__(self) -> None:
        clock = SystemClock()
        settings = ServiceSettings(single_user=None, requests_at_once=1)
        users = Principal("ann", admin=True), Principal("bob", admin=True)
        self.data_node = MemoryNode(clock)
        self.service = named_service(self.data_node, clock, *users, settings=settings)
        self.gate, self.reached = asyncio.Event(), asyncio.Event()
        routes = (
            Route("GET", "/held", self._hold, None),
            Route("GET", "/stream", self._stream, None),
            Route("PUT", "/body", self._receive, None),
        )
        self.runner = AppRunner(create_app(self.service, (*routes, *ROUTES)))

    async def _hold(self, request: Request) -> web.StreamResponse:
        self.reached.set()
        await self.gate.wait()
        return web.json_response({})

    async def _receive(self, request: Request) -> web.StreamResponse:
        return web.json_response({"length": len(await request.body())})

    async def _stream(self, request: Request) -> web.StreamResponse:
        async def pieces() -> AsyncIterator[bytes]:
            yield b"first"
            self.reached.set()
            await self.gate.wait()
            yield b"last"

        return await respond_stream(request, "text/plain", pieces())  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stream answers of any size."""
    monkeypatch.setattr(stream, "MAX_WHOLE_BYTES", 0)


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    made = Node()
    await made.runner.setup()
    await web.TCPSite(made.runner, "127.0.0.1", 0).start()
    yield made
    made.gate.set()
    await made.runner.cleanup()
    await made.data_node.close()


@pytest.fixture
async def rest(node: Node) -> AsyncIterator[RemoteRest]:
    client = RemoteRest(f"http://127.0.0.1:{node.runner.addresses[0][1]}")
    yield client
    await client.close()


def send(rest: RemoteRest, path: str, headers: dict[str, str] | None = None) -> asyncio.Task[Reply]:
    async def request() -> Reply:
        return await rest("GET", path, headers={**ANN, **(headers or {})})

    return asyncio.create_task(request())


async def until(condition: Callable[[], object]) -> None:
    """Let the event loop run until a condition holds."""
    while not condition():  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0)


async def test_what_shows_the_state_never_waits(node: Node, rest: RemoteRest) -> None:
    held = send(rest, "/held")
    await node.reached.wait()
    late = send(rest, "/domains")
    await until(lambda: node.service.admission.waiting)
    for path in ("/about", "/info", "/livez", "/readyz", "/metrics"):
        assert (await rest("GET", path, headers=ANN)).status == 200
    assert not late.done()
    node.gate.set()
    assert (await held).status == (await late).status == 200


async def test_a_request_is_refused_when_its_time_is_over(node: Node, rest: RemoteRest) -> None:
    held = send(rest, "/held")
    await node.reached.wait()
    late = await send(rest, "/domains", {"Request-Timeout": "0.01"})
    assert (late.status, late.body["error"]["kind"]) == (503, "busy")
    assert int(late.headers["Retry-After"]) >= 1
    text = (await rest("GET", "/metrics", headers=ANN)).body.decode()
    assert 'hsparse_requests_refused_total{reason="deadline"} 1.0' in text
    node.gate.set()
    assert (await held).status == 200


async def test_a_read_is_given_up_when_its_client_waits_no_longer(node: Node, rest: RemoteRest) -> None:
    late = await send(rest, "/held", {"Request-Timeout": "0.05"})
    assert (late.status, late.body["error"]["kind"]) == (503, "busy")
    assert "Request-Timeout" in late.body["error"]["message"]


@pytest.mark.parametrize("text", ["soon", "-1", "0", "1e3", "nan", ""])
async def test_a_deadline_is_a_number_of_seconds(rest: RemoteRest, text: str) -> None:
    reply = await send(rest, "/domains", {"Request-Timeout": text})
    assert (reply.status, reply.body["error"]["kind"]) == (400, "bad_request")


async def test_a_client_that_leaves_frees_its_turn(node: Node, rest: RemoteRest) -> None:
    held = send(rest, "/held")
    await node.reached.wait()
    gone = send(rest, "/domains")
    await until(lambda: node.service.admission.waiting)
    gone.cancel()
    await asyncio.wait([gone])
    other = send(rest, "/about")
    assert (await other).status == 200
    node.gate.set()
    assert (await held).status == 200
    assert (await send(rest, "/domains")).status == 200
    assert node.service.admission.running == 0


async def test_a_stream_has_no_place_once_it_has_begun(node: Node, rest: RemoteRest) -> None:
    stream = send(rest, "/stream")
    await node.reached.wait()
    assert (await send(rest, "/domains")).status == 200
    assert not stream.done()
    node.gate.set()
    assert (await stream).body == b"firstlast"


async def test_a_body_that_has_not_arrived_takes_no_place(node: Node, rest: RemoteRest) -> None:
    reader, writer = await asyncio.open_connection(*node.runner.addresses[0][:2])
    writer.write(
        b"PUT /body HTTP/1.1\r\nHost: a\r\nAuthorization: ann\r\nContent-Length: %d\r\nConnection: close\r\n\r\nab"
        % (2 * FIRST_STEP_BYTES)
    )
    await until(lambda: node.service.bodies.used)
    assert (await send(rest, "/domains")).status == 200
    writer.write(bytes(2 * FIRST_STEP_BYTES - 2))
    answer: Any = await reader.read()
    assert answer.endswith(b'{"length": %d}' % (2 * FIRST_STEP_BYTES))
    writer.close()
    await writer.wait_closed()


def granted(limit: RateLimit, who: str = "ann") -> bool:
    try:
        limit.take(who)
    except RateLimited:
        return False
    return True


def test_a_burst_then_the_rate() -> None:
    clock = ManualClock()
    limit = RateLimit(2, 5, clock)
    assert [granted(limit) for _ in range(7)] == [True] * 5 + [False] * 2
    assert granted(limit, "bob"), "one user's requests are not another's"
    clock.time += 0.5
    assert [granted(limit) for _ in range(2)] == [True, False]
    clock.time += 1000
    assert [granted(limit) for _ in range(7)] == [True] * 5 + [False] * 2


def test_a_burst_is_ten_seconds_of_the_rate_if_not_said() -> None:
    limit = RateLimit(0.25, 0, ManualClock())
    assert [granted(limit) for _ in range(4)] == [True] * 3 + [False]


def test_what_is_told_is_the_limit_and_when_to_come_again() -> None:
    limit = RateLimit(0.5, 1, ManualClock())
    limit.take("ann")
    with pytest.raises(
        RateLimited, match=r"0\.5 requests a second, 1 at once .* try again in 2 seconds"
    ) as caught:
        limit.take("ann")
    assert caught.value.retry_after == 2


@given(st.lists(st.floats(0, 3), max_size=60))
def test_no_more_than_burst_and_rate_allow(pauses: list[float]) -> None:
    clock = ManualClock()
    limit = RateLimit(2, 3, clock)
    start, count = clock.time, 0
    for pause in pauses:
        clock.time += pause
        count += granted(limit)
        assert count <= 3 + 2 * (clock.time - start) + 1e-6


def test_users_are_forgotten_beyond_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limit, "MAX_BUCKETS", 2)
    limit = RateLimit(1, 1, ManualClock())
    for who in ("a", "b", "a", "c"):
        granted(limit, who)
    assert not granted(limit, "a")
    assert not granted(limit, "c")
    assert granted(limit, "b"), "the one longest not seen"


@pytest.fixture
async def client() -> AsyncIterator[RestClient]:
    clock, users = ManualClock(), (Principal("ann"), Principal("bob"))
    settings = ServiceSettings(rate_limit=1, rate_burst=3)
    async with RestClient(MemoryNode(clock), clock, *users, settings=settings) as rest:
        yield rest


async def test_over_http(client: RestClient) -> None:
    assert [(await client("GET", "/about")).status for _ in range(3)] == [200] * 3
    reply = await client("GET", "/about")
    assert reply.status == 429
    assert reply.headers["Retry-After"] == "1"
    assert reply["error"]["kind"] == "rate_limited"
    assert "1 requests a second, 3 at once" in reply["error"]["message"]
    assert (await client("GET", "/about", user="bob")).status == 200
    assert [(await client("GET", "/about", user="nobody")).status for _ in range(4)] == [401] * 3 + [429]
    client.user = None
    assert (await client("GET", "/about")).status == 429, "counted by the address, as wrong credentials are"
    clock = client.service.clock
    assert isinstance(clock, ManualClock)
    clock.time += 3
    assert [(await client("GET", "/about")).status for _ in range(4)] == [200] * 3 + [429]
