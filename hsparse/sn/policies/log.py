"""The log of requests, and their metrics: an id for each, the access log, and what was done for a slow one.

Neither has the query of a URL or a header: clients put secrets there.

What an error looks like: JSON of one shape, with a sentence that says what to do.
"""

from __future__ import annotations

import asyncio
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
from hsparse.errors import ErrorKind, HsparseError, Unauthenticated
from hsparse.sn.http.challenge import add_challenges, would_sign_in
from hsparse.sn.http.response import respond_error
from hsparse.sn.http.stream import HungUp
from hsparse.sn.metrics import OTHER, Metrics, Series
from hsparse.sn.policies.policy import Next
from hsparse.sn.request import Request
from hsparse.sn.route import Route

log = logging.getLogger(__name__)

ID_HEADER = "X-Request-ID"
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
    """The outermost policy.

    `write` gets the lines of the access log, formatted by `form`; None is no access log. A request that takes `slow`
    seconds is logged as a warning; 0 is never. `tracer` begins the span of a request; None is no spans.
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
        """Count and log a request that was answered, or broken off."""
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
        """Write the line of a request in the access log, and end its span."""
        trace, http = request.trace, request.http
        path, method = http.rel_url.raw_path[:LONGEST_PATH], http.method[:LONGEST_METHOD]
        entry = AccessEntry(self._clock.now(), trace, method, path, status, size, seconds)
        if self._write is not None and not is_probe:
            self._write(self._form(entry))
        if trace.span is not None:
            _end_span(trace.span, entry)


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
    """Return a text as one word of a line; a domain may have spaces."""
    if text is None:
        return UNKNOWN
    return text if text.isascii() and text.isprintable() and " " not in text else quote(text)


class Errors:
    """Turns every exception into an answer; `challenges` are sent with a 401."""

    def __init__(self, challenges: tuple[str, ...]) -> None:
        self._challenges = challenges

    def applies(self, route: Route) -> bool:
        return True

    async def __call__(self, request: Request, next: Next) -> web.StreamResponse:
        """An exception that is not an hsparse error is a defect, and logged.

        A client that hangs up in an answer is none: its request ends as one that is cancelled. So does one that fails
        once its answer has begun: the connection is broken off.
        """
        try:
            return await next(request)
        except HsparseError as error:
            answer = self._answer(request, error)
        except HungUp:
            raise asyncio.CancelledError from None
        except Exception:
            # A defect must fail one request, not the process.
            log.exception("%s failed", _place(request))
            message = f"Internal error; the server's log has the details, by the id {request.trace.id}."
            answer = respond_error(HsparseError(message))
        if request.begun:
            raise asyncio.CancelledError
        return answer

    def _answer(self, request: Request, error: HsparseError) -> web.StreamResponse:
        if error.kind is ErrorKind.FORBIDDEN and would_sign_in(request.http, self._challenges):
            error = Unauthenticated(f"{error.message} Sign in as a user who has it.")
        answer = respond_error(error)
        if answer.status >= 500 and answer.status != 503:
            # Neither the query nor a header: clients put secrets there.
            log.error("%s: %s", _place(request), error.message)
        if error.kind is ErrorKind.UNAUTHENTICATED:
            add_challenges(request.http, answer, self._challenges)
        return answer


def _place(request: Request) -> str:
    """Return the request's line for the log: the path has the object's id; a domain may have control characters."""
    domain = request.trace.domain
    where = "no domain" if domain is None else repr(domain)
    return f"{request.http.method} {request.http.rel_url.raw_path} in {where}"
