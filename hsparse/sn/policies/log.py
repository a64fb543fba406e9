"""Request logging and metrics: ids, the access log, spans, and warnings about slow requests.

Logs have neither the query of a URL nor headers, because clients put secrets there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias
from urllib.parse import quote

import orjson
from aiohttp import hdrs, web

from hsparse.clock import Clock
from hsparse.concurrency.request_trace import (
    Attribute,
    RequestTrace,
    Span,
    Tracer,
    begin_trace,
    end_trace,
    valid_id,
)
from hsparse.sn.metrics import OTHER, Metrics, Series
from hsparse.sn.policies.policy import Next
from hsparse.sn.request import Request
from hsparse.sn.route import Route

log = logging.getLogger(__name__)

ID_HEADER = "X-Request-ID"
ABORTED = "aborted"
"""The status in the log of an answer whose connection was aborted."""
UNKNOWN = "-"
LONGEST_PATH = 2000
"""The maximum number of characters of a path in the log."""
LONGEST_METHOD = 20
PROBES = frozenset({"/livez", "/readyz", "/metrics"})
"""Paths that monitoring requests every few seconds; their requests have no spans and no lines in the access log."""


@dataclass(frozen=True, slots=True)
class AccessEntry:
    """A request in the access log: its `time` (Unix seconds), the `size` of the answer's body, and its duration."""

    time: float
    trace: RequestTrace
    method: str
    path: str
    status: str
    size: int
    seconds: float


AccessFormat: TypeAlias = Callable[[AccessEntry], str]


class RequestLog:
    """The outermost policy: gives each request an id, counts it, and logs it.

    `write`, if given, is called with each line of the access log, which `form` makes. A request that takes at least
    `slow` seconds is logged as a warning (0: never). `tracer`, if given, begins the span of each request.
    """

    def __init__(
        self,
        clock: Clock,
        metrics: Metrics,
        *,
        write: Callable[[str], Any] | None = None,
        form: AccessFormat | None = None,
        slow: float = 0.0,
        tracer: Tracer | None = None,
    ) -> None:
        self._clock = clock
        self._metrics = metrics
        self._write = write
        self._form = form or access_text
        self._slow = slow
        self._tracer = tracer
        self._prefix = clock.token(6).hex()
        self._count = 0
        self._series: dict[tuple[str, str, str], Series] = {}

    def applies(self, route: Route) -> bool:
        return True

    async def __call__(self, request: Request, next: Next) -> web.StreamResponse:
        trace = request.trace
        self._count += 1
        sent = valid_id(request.http.headers.get(ID_HEADER)) if ID_HEADER in request.http.headers else None
        trace.id = request.headers[ID_HEADER] = sent or f"{self._prefix}-{self._count}"
        is_probe = request.http.path in PROBES
        if self._tracer is not None and not is_probe:
            name = f"{request.http.method[:LONGEST_METHOD]} {request.route.path}"
            trace.span = self._tracer.begin(name, request.http.headers, {"hsparse.request_id": trace.id})
        token = begin_trace(trace)
        started = self._clock.monotonic()
        response: web.StreamResponse | None = None
        self._metrics.in_flight.inc()
        try:
            response = await next(request)
            return response
        finally:
            self._metrics.in_flight.dec()
            self._note(request, response, self._clock.monotonic() - started, is_probe=is_probe)
            end_trace(token)

    def _note(
        self, request: Request, response: web.StreamResponse | None, seconds: float, *, is_probe: bool
    ) -> None:
        """Count and log a request that was answered or aborted."""
        trace, http = request.trace, request.http
        status, size = ABORTED, request.sent
        if response is not None:
            status = str(response.status)
            size = size or (0 if http.method == hdrs.METH_HEAD else response.content_length or 0)
        method = http.method if http.method in hdrs.METH_ALL else OTHER
        key = request.route.path, method, status
        if (series := self._series.get(key)) is None:
            series = self._series[key] = self._metrics.series(*key)
        requests, latency, received, sent = series
        requests.inc()
        latency.observe(seconds)
        received.inc(http.content.total_bytes)
        sent.inc(size)
        if self._write is not None or trace.span is not None:
            self._note_access(request, status, size, seconds, is_probe=is_probe)
        if self._slow and seconds >= self._slow:
            _warn(http, trace, seconds)

    def _note_access(
        self, request: Request, status: str, size: int, seconds: float, *, is_probe: bool
    ) -> None:
        """Write a request's line to the access log unless it is a probe, and end its span."""
        trace, http = request.trace, request.http
        path, method = http.rel_url.raw_path[:LONGEST_PATH], http.method[:LONGEST_METHOD]
        entry = AccessEntry(self._clock.now(), trace, method, path, status, size, seconds)
        if self._write is not None and not is_probe:
            self._write(self._form(entry))
        if trace.span is not None:
            _end_span(trace.span, entry)


def _end_span(span: Span, entry: AccessEntry) -> None:
    """End the span of a request; set its attributes from the request's access log entry."""
    facts: dict[str, Attribute] = {
        "http.request.method": entry.method,
        "url.path": entry.path,
        "http.response.body.size": entry.size,
    }
    if entry.status.isdigit():
        facts["http.response.status_code"] = int(entry.status)
    known = {"enduser.id": entry.trace.user, "hsparse.domain": entry.trace.domain}
    span.set(facts | {name: value for name, value in known.items() if value is not None})
    failed = entry.status == ABORTED or entry.status >= "500"
    span.end(entry.status if failed else None)


def access_text(entry: AccessEntry) -> str:
    """Return a line of text: time, user, method, domain, path, status, bytes, milliseconds, id; `-` means unknown."""
    trace = entry.trace
    return (
        f"{_time(entry.time)} {_word(trace.user)} {entry.method} {_word(trace.domain)} {entry.path} {entry.status} "
        f"{entry.size} {entry.seconds * 1000:.1f} {trace.id}\n"
    )


def access_json(entry: AccessEntry) -> str:
    """Return the entry as a JSON object on one line."""
    trace = entry.trace
    item = {
        "time": _time(entry.time),
        "level": "ACCESS",
        "user": trace.user,
        "method": entry.method,
        "domain": trace.domain,
        "path": entry.path,
        "status": int(entry.status) if entry.status.isdigit() else entry.status,
        "bytes": entry.size,
        "ms": round(entry.seconds * 1000, 1),
        "request": trace.id,
    }
    return orjson.dumps(item).decode() + "\n"


def _warn(http: web.BaseRequest, trace: RequestTrace, seconds: float) -> None:
    place = f"{http.method[:LONGEST_METHOD]} {http.rel_url.raw_path[:LONGEST_PATH]}"
    log.warning(
        "Slow request: %s in %s by %s took %.3f s: %s",
        place,
        _word(trace.domain),
        _word(trace.user),
        seconds,
        trace.text,
    )


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _word(text: str | None) -> str:
    """Return text as one word of a log line, quoting spaces and unprintable characters."""
    if text is None:
        return UNKNOWN
    return text if text.isascii() and text.isprintable() and " " not in text else quote(text)
