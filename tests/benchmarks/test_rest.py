"""The client against a server that answers what it is told to."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import numpy as np
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from benchmarks import rest as module
from benchmarks.rest import BINARY, Rest, UnexpectedAnswer, select


@dataclass
class Script:
    """Statuses to answer, then 200 for ever; and the requests that came."""

    statuses: list[int] = field(default_factory=list)
    seen: list[web.Request] = field(default_factory=list)
    body: bytes = b"{}"

    async def answer(self, request: web.Request) -> web.Response:
        await request.read()
        self.seen.append(request)
        status = self.statuses.pop(0) if self.statuses else 200
        return web.Response(status=status, body=self.body)


@pytest.fixture
async def script(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Script, Rest]]:
    monkeypatch.setattr(module, "BACKOFF", 0.0)
    script = Script()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", script.answer)
    async with TestServer(app) as server, Rest("it", str(server.make_url("/")), ("user", "word")) as rest:
        yield script, rest


async def test_a_5xx_is_sent_again_and_counted(script: tuple[Script, Rest]) -> None:
    server, rest = script
    server.statuses = [503, 500]
    assert await rest.send("GET", "/x") == b"{}"
    assert rest.refused == 2


async def test_a_server_that_stays_busy_is_a_failure(script: tuple[Script, Rest]) -> None:
    server, rest = script
    server.statuses = [503] * module.RETRIES
    with pytest.raises(UnexpectedAnswer, match="it: GET /x answered 503"):
        await rest.send("GET", "/x")
    assert len(server.seen) == module.RETRIES


@pytest.mark.parametrize("status", [400, 404, 410])
async def test_other_errors_are_not_tried_again(script: tuple[Script, Rest], status: int) -> None:
    server, rest = script
    server.statuses = [status]
    with pytest.raises(UnexpectedAnswer, match=str(status)):
        await rest.send("PUT", "/x", b"body")
    assert len(server.seen) == 1


async def test_a_domain_makes_its_folders_and_goes_with_every_request(script: tuple[Script, Rest]) -> None:
    server, rest = script
    server.statuses = [409, 201]
    server.body = b'{"root": "g-1"}'
    await rest.domain("/home/bench/run1")
    assert rest.root == "g-1"
    await rest.flush()
    domains = [request.headers["X-Hdf-domain"] for request in server.seen]
    assert domains == ["/home", "/home/bench", "/home/bench/run1", "/home/bench/run1"]
    assert all(request.headers["Authorization"] == "Basic dXNlcjp3b3Jk" for request in server.seen)


async def test_values_are_read_as_the_box_is_shaped(script: tuple[Script, Rest]) -> None:
    server, rest = script
    server.body = np.arange(6, dtype="<u2").tobytes()
    found = await rest.read("d-1", ((4, 0), (6, 3)), np.dtype("<u2"))
    assert found.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert server.seen[0].query["select"] == "[4:6,0:3]"
    assert server.seen[0].headers["Accept"] == BINARY


async def test_growing_tells_where_the_new_rows_begin(script: tuple[Script, Rest]) -> None:
    server, rest = script
    server.body = b'{"selection": "[20:25]"}'
    assert await rest.extend("d-1", 5) == 20


async def test_an_append_is_one_request(script: tuple[Script, Rest]) -> None:
    server, rest = script
    await rest.append_points("d-1", b"points", 5)
    (request,) = server.seen
    assert (request.method, request.path, request.query["append"]) == ("PUT", "/datasets/d-1/value", "5")


async def test_a_stream_is_passed_on_in_pieces(script: tuple[Script, Rest]) -> None:
    server, rest = script
    server.body = bytes(range(256)) * 4096
    pieces = [piece async for piece in rest.stream("/x", BINARY)]
    assert b"".join(pieces) == server.body
    server.statuses = [500]
    with pytest.raises(UnexpectedAnswer, match="500"):
        _ = [piece async for piece in rest.stream("/x", BINARY)]


def test_boxes_in_the_selection_syntax() -> None:
    assert select(((0, 5, 7), (1, 6, 9))) == "[0:1,5:6,7:9]"
