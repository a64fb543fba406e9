"""Spans: one request gives one tree, from the client over the service node and the data nodes to the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from aiohttp.test_utils import TestServer

import hsparse
from hsparse.clock import SystemClock
from hsparse.config import exports_spans
from hsparse.dn.server import create_node_app
from hsparse.dn.service import DataService
from hsparse.errors import NotFound, StoreFailed
from hsparse.model.acl import Principal
from hsparse.optional_module import OptionalModule
from hsparse.sn.policies.log import RequestLog
from hsparse.sn.service_settings import ServiceSettings
from hsparse.telemetry.open_telemetry import OpenTelemetryTracer, make_tracer, node_tracer
from hsparse.wire.message import DataNode
from hsparse.wire.remote_node import RemoteNode
from tests.support.rest_client import RestClient
from tests.testing.memory_store import MemoryStore

SECRET = "s3cr3t-t0ken"
SDK = OptionalModule("opentelemetry.sdk.trace", "otel")
EXPORT = OptionalModule("opentelemetry.sdk.trace.export", "otel")
MEMORY = OptionalModule("opentelemetry.sdk.trace.export.in_memory_span_exporter", "otel")
TRACE = OptionalModule("opentelemetry.trace", "otel")


@dataclass(slots=True)
class Spans:
    """Providers of one process each, that all export to one place."""

    exporter: Any = field(default_factory=lambda: MEMORY.load().InMemorySpanExporter())

    def provider(self) -> Any:
        made = SDK.load().TracerProvider(shutdown_on_exit=False)
        made.add_span_processor(EXPORT.load().SimpleSpanProcessor(self.exporter))
        return made

    def tracer(self) -> OpenTelemetryTracer:
        return OpenTelemetryTracer(self.provider())

    def taken(self) -> list[Any]:
        """Return the spans since the last time."""
        found = list(self.exporter.get_finished_spans())
        self.exporter.clear()
        return found


@dataclass(slots=True)
class Parts:
    """A service node and two data nodes, each behind HTTP, and their spans."""

    rest: RestClient
    spans: Spans


@pytest.fixture
async def parts() -> AsyncIterator[Parts]:
    spans, store, clock = Spans(), MemoryStore(), SystemClock()
    async with AsyncExitStack() as ending:
        nodes: dict[str, DataNode] = {}
        for name in ("dn-a", "dn-b"):
            service = DataService(store, clock, id=name)
            ending.push_async_callback(service.close)
            app = create_node_app(service, SECRET, tracer=spans.tracer())
            server = await ending.enter_async_context(TestServer(app))
            nodes[name] = remote = RemoteNode(str(server.make_url("/")), SECRET)
            ending.push_async_callback(remote.close)
        user = Principal("admin", admin=True)
        settings = ServiceSettings(min_chunk_size=1, single_user="admin")
        rest = await RestClient(
            nodes,
            clock,
            user,
            settings=settings,
            log=lambda metrics: RequestLog(clock, metrics, tracer=spans.tracer()),
        ).open()
        ending.push_async_callback(rest.close)
        rest.domain = "/spans"
        assert (await rest("PUT", "/", {})).status == 201
        yield Parts(rest, spans)


def tree(spans: list[Any]) -> dict[str, list[str]]:
    """Return the names of the spans below each name; asserts that there is one root, and one trace."""
    by_id = {span.context.span_id: span for span in spans}
    roots = [span for span in spans if span.parent is None]
    assert (len(roots), len({span.context.trace_id for span in spans})) == (1, 1)
    below: dict[str, list[str]] = {"": [roots[0].name]}
    for span in spans:
        if span.parent is not None:
            below.setdefault(by_id[span.parent.span_id].name, []).append(span.name)
    return {name: sorted(names) for name, names in below.items()}


async def make_dataset(rest: RestClient) -> str:
    layout = {"class": "H5D_CHUNKED", "dims": [10]}
    body = {"type": "H5T_STD_I32LE", "shape": [40], "creationProperties": {"layout": layout}}
    return str((await rest("POST", "/datasets", body))["id"])


async def test_a_request_is_one_tree_over_http(parts: Parts) -> None:
    id = await make_dataset(parts.rest)
    parts.spans.taken()
    values = np.arange(40, dtype="<i4").tobytes()
    headers = {"X-Request-ID": "known-id", "X-Api-Key": SECRET}
    path = f"/datasets/{id}/value"
    assert (await parts.rest("PUT", path, values, headers=headers, nonce=SECRET)).status == 200
    spans = parts.spans.taken()
    found = tree(spans)
    request = "PUT /datasets/{id}/value"
    assert (found[""], set(found[request])) == ([request], {"send ReadObjects", "send WriteChunks"})
    assert set(found["send WriteChunks"]) == {"WriteChunks"}
    assert found["WriteChunks"].count("store put") == 4
    (root,) = [span for span in spans if span.parent is None]
    facts = dict(root.attributes)
    assert (facts["hsparse.request_id"], facts["http.response.status_code"]) == ("known-id", 200)
    assert (facts["enduser.id"], facts["hsparse.domain"]) == ("admin", "/spans")
    assert facts["url.path"] == path
    assert {s.attributes["hsparse.request_id"] for s in spans if s.name == "WriteChunks"} == {"known-id"}
    assert all(SECRET not in span.to_json() for span in spans)


async def test_the_clients_span_is_the_parent(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await parts.rest("PUT", "/acls/default", {"read": True})).status == 201
    provider, url = parts.spans.provider(), f"{parts.rest.url}/spans"
    monkeypatch.setattr(TRACE.load(), "get_tracer", provider.get_tracer)
    parts.spans.taken()
    with provider.get_tracer("application").start_as_current_span("analysis"):
        file = await asyncio.to_thread(hsparse.open, url)
        assert isinstance(file, hsparse.File)
        assert await asyncio.to_thread(list, file) == []
        file.close()
    found = tree(parts.spans.taken())
    assert (found[""], set(found["analysis"])) == (["analysis"], {"hsparse GET"})
    assert {"GET /", "GET /groups/{id}/links"} <= set(found["hsparse GET"])


async def test_failures_have_a_kind_and_no_message(parts: Parts) -> None:
    parts.spans.taken()
    missing = "d-00000000-00000000-0000-000000-000000"
    assert (await parts.rest("GET", f"/datasets/{missing}", comment=SECRET)).status in (400, 404)
    spans = parts.spans.taken()
    assert tree(spans)[""] == ["GET /datasets/{id}"]
    (root,) = [span for span in spans if span.parent is None]
    assert root.status.is_unset
    assert all(not span.events and SECRET not in span.to_json() for span in spans)


async def test_probes_have_no_spans(parts: Parts) -> None:
    parts.spans.taken()
    for path in ("/livez", "/readyz", "/metrics"):
        assert (await parts.rest("GET", path)).status == 200
    assert parts.spans.taken() == []


def test_a_failure_is_an_error_by_its_kind() -> None:
    spans = Spans()
    tracer = spans.tracer()
    for error in (NotFound("no secret"), StoreFailed("no secret"), "503"):
        tracer.begin("x", {}, {}).end(error)
    tracer.begin("x", {"traceparent": "nonsense"}, {}).end()
    found = [
        (span.attributes.get("error.type"), span.status.is_ok or span.status.is_unset)
        for span in spans.taken()
    ]
    assert found == [("not_found", True), ("store_failed", False), ("503", False), (None, True)]


@pytest.mark.parametrize(
    ("variables", "asked"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, False),
        ({"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, False),
    ],
)
def test_the_environment_says_whether_spans_are_exported(
    variables: dict[str, str], asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = "EXPORTER_OTLP_ENDPOINT EXPORTER_OTLP_TRACES_ENDPOINT TRACES_EXPORTER SDK_DISABLED"
    for name in names.split():
        monkeypatch.delenv(f"OTEL_{name}", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert exports_spans() is asked
    if not asked:
        with node_tracer("hsparse") as tracer:
            assert tracer is None


def test_spans_go_to_otlp_named_as_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    for name in ("hsparse-dn", "lab"):
        with closing(make_tracer("hsparse-dn")) as tracer:
            assert tracer._provider.resource.attributes["service.name"] == name
        monkeypatch.setenv("OTEL_SERVICE_NAME", "lab")
