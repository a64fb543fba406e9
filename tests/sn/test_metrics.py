from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import ClientConnectionError, ClientPayloadError, web
from aiohttp.test_utils import TestClient
from prometheus_client.parser import text_string_to_metric_families

from hsparse.errors import NotFound
from hsparse.sn.about import get_metrics
from hsparse.sn.app import create_app
from hsparse.sn.http.stream import MAX_WHOLE_BYTES, respond_stream
from hsparse.sn.metrics import METRICS
from hsparse.sn.request import Request
from hsparse.sn.route import Route
from tests.support.memory_node import MemoryNode
from tests.support.rest_client import AppServer, named_service
from tests.testing.manual_clock import ManualClock

Client = TestClient[Any, Any]


class Rig:
    """A service node with one route of each kind of answer, and a clock its handlers move."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.service = named_service(MemoryNode(self.clock), self.clock)
        self.metrics = self.service.metrics
        self.inside = asyncio.Event()
        self.leave = asyncio.Event()
        self.routes = (
            Route("PUT", "/things/{id}", self.thing, None),
            Route("GET", "/things/{id}", self.thing, None),
            Route("GET", "/wait", self.wait, None),
            Route("GET", "/stream", self.stream, None),
            Route("GET", "/break", self.broken, None),
            Route("GET", "/refuse", self.refuse, None),
            Route("GET", "/bug", self.bug, None),
            Route("GET", "/metrics", get_metrics, None),
        )

    async def thing(self, request: Request) -> web.Response:
        self.clock.time += 0.2
        return web.Response(body=await request.body() + b"!!!", status=201)

    async def wait(self, request: Request) -> web.Response:
        self.inside.set()
        await self.leave.wait()
        return web.Response()

    async def stream(self, request: Request) -> web.StreamResponse:
        async def pieces() -> AsyncGenerator[bytes, None]:
            for _ in range(3):
                yield b"x" * MAX_WHOLE_BYTES

        return await respond_stream(request, "text/plain", pieces())

    async def broken(self, request: Request) -> web.StreamResponse:
        async def pieces() -> AsyncGenerator[bytes, None]:
            yield b"x" * (MAX_WHOLE_BYTES + 1)
            raise NotFound("There is no more.")

        return await respond_stream(request, "text/plain", pieces())

    async def refuse(self, request: Request) -> web.Response:
        raise NotFound("There is no such thing.")

    async def bug(self, request: Request) -> web.Response:
        raise ZeroDivisionError


@asynccontextmanager
async def client_of(rig: Rig) -> AsyncIterator[Client]:
    async with TestClient(AppServer(create_app(rig.service, rig.routes))) as client:
        yield client


def samples(rig: Rig) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    families = text_string_to_metric_families(rig.metrics.text().decode())
    return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


def value(rig: Rig, name: str, **labels: str) -> float | None:
    return samples(rig).get((name, frozenset(labels.items())))


async def test_a_request_is_counted_by_template_method_and_status() -> None:
    rig = Rig()
    async with client_of(rig) as client:
        for id in ("a", "b"):
            async with client.put(f"/things/{id}", data=b"12345") as response:
                assert await response.read() == b"12345!!!"
    labels = {"route": "/things/{id}", "method": "PUT"}
    assert value(rig, "hsparse_requests_total", **labels, status="201") == 2
    assert value(rig, "hsparse_request_bytes_total", **labels) == 10
    assert value(rig, "hsparse_response_bytes_total", **labels) == 16
    assert value(rig, "hsparse_request_seconds_count", **labels) == 2
    assert value(rig, "hsparse_request_seconds_sum", **labels) == pytest.approx(0.4)
    assert value(rig, "hsparse_request_seconds_bucket", **labels, le="0.1") == 0
    assert value(rig, "hsparse_request_seconds_bucket", **labels, le="0.25") == 2


async def test_a_streamed_answer_counts_what_was_sent() -> None:
    rig = Rig()
    async with client_of(rig) as client, client.get("/stream") as response:
        assert len(await response.read()) == 3 * MAX_WHOLE_BYTES
    assert value(rig, "hsparse_response_bytes_total", route="/stream", method="GET") == 3 * MAX_WHOLE_BYTES


async def test_a_head_request_has_no_body_out() -> None:
    rig = Rig()
    async with client_of(rig) as client, client.head("/things/a"):
        pass
    assert value(rig, "hsparse_response_bytes_total", route="/things/{id}", method="HEAD") == 0


async def test_errors_are_counted_with_their_status() -> None:
    rig = Rig()
    async with client_of(rig) as client:
        async with client.get("/refuse") as response:
            size = len(await response.read())
        async with client.post("/refuse"):
            pass
    assert value(rig, "hsparse_requests_total", route="/refuse", method="GET", status="404") == 1
    assert value(rig, "hsparse_response_bytes_total", route="/refuse", method="GET") == size
    assert value(rig, "hsparse_requests_total", route="/refuse", method="POST", status="405") == 1


async def test_an_error_nobody_caught_is_a_500() -> None:
    rig = Rig()
    async with client_of(rig) as client, client.get("/bug") as response:
        assert response.status == 500
    assert value(rig, "hsparse_requests_total", route="/bug", method="GET", status="500") == 1


async def test_paths_and_methods_clients_make_up_are_one_label() -> None:
    rig = Rig()
    async with client_of(rig) as client:
        for number in range(5):
            async with client.get(f"/made/up/{number}"):
                pass
        for method in ("PROPFIND", "MKCOL", "LOCK", "REPORT"):  # the parser lets only known ones in
            async with client.request(method, "/things/a"):
                pass
    assert value(rig, "hsparse_requests_total", route="other", method="GET", status="404") == 5
    assert value(rig, "hsparse_requests_total", route="/things/{id}", method="other", status="405") == 4


async def test_a_broken_connection_is_counted_as_aborted() -> None:
    rig = Rig()
    async with client_of(rig) as client:
        with pytest.raises((ClientPayloadError, ClientConnectionError)):
            async with client.get("/break") as response:
                await response.read()
    assert value(rig, "hsparse_requests_total", route="/break", method="GET", status="aborted") == 1
    assert value(rig, "hsparse_response_bytes_total", route="/break", method="GET") == MAX_WHOLE_BYTES + 1
    assert value(rig, "hsparse_requests_in_flight") == 0


async def test_requests_in_flight() -> None:
    rig = Rig()
    async with client_of(rig) as client:
        assert value(rig, "hsparse_requests_in_flight") == 0
        waiting = asyncio.ensure_future(client.get("/wait"))
        await rig.inside.wait()
        assert value(rig, "hsparse_requests_in_flight") == 1
        rig.leave.set()
        (await waiting).release()
    assert value(rig, "hsparse_requests_in_flight") == 0


async def test_metrics_are_served_in_the_text_format() -> None:
    rig = Rig()
    async with client_of(rig) as client:
        async with client.get("/things/a"):
            pass
        async with client.get("/metrics") as response:
            assert response.status == 200
            assert response.content_type == "text/plain"
            text = await response.text()
    names = {family.name for family in text_string_to_metric_families(text)}
    for metric in METRICS:
        assert metric.name.removesuffix("_total") in names
        assert f"# HELP {metric.name} {metric.help}" in text


def test_two_applications_count_apart() -> None:
    first, second = Rig(), Rig()
    first.metrics.in_flight.inc()
    assert value(first, "hsparse_requests_in_flight") == 1
    assert value(second, "hsparse_requests_in_flight") == 0


def test_the_table_names_every_metric_once_and_explains_it() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    registered = {
        f"{f.name}_total" if f.type == "counter" else f.name for f in Rig().metrics._registry.collect()
    }
    assert registered == set(names)
    for metric in METRICS:
        assert metric.name.startswith("hsparse_")
        assert metric.help.endswith(".")
