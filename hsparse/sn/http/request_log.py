"""The log of requests: an id for each, the access log, and what was done for a slow one.

Neither has the query of a URL or a header: clients put secrets there.
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
from aiohttp.typedefs import Handler

from hsparse.clock import Clock
from hsparse.concurrency.request_trace import RequestTrace, Work, begin_trace, end_trace, valid_id
from hsparse.concurrency.span import Attribute, Span, Tracer
from hsparse.sn.http.request_head import waited_before
from hsparse.sn.metrics import route_of

log = logging.getLogger(__name__)

ID_HEADER = "X-Request-ID"
TRACE_KEY = web.RequestKey("trace", RequestTrace)
"""The key of the trace in a request."""
ABORTED = "aborted"
"""The status of an answer that was broken off."""
UNKNOWN = "-"
LONGEST_PATH = 2000
"""Characters of a path in the log."""
LONGEST_METHOD = 20
PROBES = frozenset({"/livez", "/readyz", "/metrics"})
"""Paths that monitoring asks every few seconds: neither in the access log nor in a span."""


@dataclass(frozen=True, slots=True)
class AccessEntry:
    """A request in the access log: `time` in seconds since the epoch, `size` in bytes of the answer's body."""

    time: float
    trace: RequestTrace
    method: str
    path: str
    status: str
    size: int
    seconds: float


AccessFormat: TypeAlias = Callable[[AccessEntry], str]


class RequestLog:
    """The log of one application; `middleware` must be its outermost one.

    `write` gets the lines of the access log, formatted by `form`; None is no access log. A request that takes `slow`
    seconds is logged as a warning; 0 is never. `tracer` begins the span of a request; None is no spans.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        write: Callable[[str], Any] | None = None,
        form: AccessFormat | None = None,
        slow: float = 0.0,
        tracer: Tracer | None = None,
    ) -> None:
        self._clock = clock
        self._write = write
        self._form = form or access_text
        self._slow = slow
        self._tracer = tracer
        self._prefix = clock.token(6).hex()
        self._count = 0

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer with `handler`, within a trace, and log the request."""
        trace = request[TRACE_KEY] = RequestTrace(self.id_of(request))
        if self._tracer is not None and request.path not in PROBES:
            name = f"{request.method[:LONGEST_METHOD]} {route_of(request)}"
            trace.span = self._tracer.begin(name, request.headers, {"hsparse.request_id": trace.id})
        token = begin_trace(trace)
        waited = waited_before(request)
        if waited:
            trace.work[Work.WAITS] = 1, waited
        started = self._clock.monotonic() - waited
        response: web.StreamResponse | None = None
        try:
            response = await handler(request)
            return response
        finally:
            seconds = self._clock.monotonic() - started
            if self._write is not None and request.path not in PROBES:
                self._write(self._form(self._entry(request, trace, response, seconds)))
            if self._slow and seconds >= self._slow:
                _warn(request, trace, seconds)
            if trace.span is not None:
                _end_span(trace.span, self._entry(request, trace, response, seconds))
            end_trace(token)

    def id_of(self, request: web.BaseRequest) -> str:
        """Return the id that the client has sent if it is valid, else a new one."""
        return self.valid_or_new(request.headers.get(ID_HEADER))

    def valid_or_new(self, sent: str | None) -> str:
        """Return an id that a client has sent if it is valid, else a new one."""
        if (valid := valid_id(sent)) is not None:
            return valid
        self._count += 1
        return f"{self._prefix}-{self._count}"

    def note_refused(
        self, trace: RequestTrace, method: str, path: str, status: str, size: int, seconds: float
    ) -> None:
        """Log a request that was refused before it was parsed; it has no span."""
        if self._write is not None:
            where = method, path[:LONGEST_PATH], status
            self._write(self._form(AccessEntry(self._clock.now(), trace, *where, size, seconds)))

    def add_id(self, request: web.Request, response: web.StreamResponse) -> None:
        """Add the id to an answer; one that was made before the middleware has none yet."""
        trace = request.get(TRACE_KEY)
        response.headers[ID_HEADER] = trace.id if trace is not None else self.id_of(request)

    def _entry(
        self, request: web.Request, trace: RequestTrace, response: web.StreamResponse | None, seconds: float
    ) -> AccessEntry:
        status, size = ABORTED, request.writer.output_size
        if response is not None:
            status = str(response.status)
            # Of a streamed answer headers and framing count, too.
            size = size or (0 if request.method == hdrs.METH_HEAD else response.content_length or 0)
        method, path = request.method[:LONGEST_METHOD], request.rel_url.raw_path[:LONGEST_PATH]
        return AccessEntry(self._clock.now(), trace, method, path, status, size, seconds)


def _end_span(span: Span, entry: AccessEntry) -> None:
    """End the span of a request with what the access log has of it."""
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
    """Return a line: time, user, method, domain, path, status, bytes, milliseconds, id; `-` is unknown."""
    trace = entry.trace
    return (
        f"{_time(entry.time)} {_word(trace.user)} {entry.method} {_word(trace.domain)} {entry.path} {entry.status} "
        f"{entry.size} {entry.seconds * 1000:.1f} {trace.id}\n"
    )


def access_json(entry: AccessEntry) -> str:
    """Return the same as a JSON object on a line."""
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


def _warn(request: web.Request, trace: RequestTrace, seconds: float) -> None:
    place = f"{request.method[:LONGEST_METHOD]} {request.rel_url.raw_path[:LONGEST_PATH]}"
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
    """Return a text as one word of a line; a domain may have spaces."""
    if text is None:
        return UNKNOWN
    return text if text.isascii() and text.isprintable() and " " not in text else quote(text)
