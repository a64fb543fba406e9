"""Starts an OpenTelemetry span for each request if the application traces; spans of the server are its children."""

from __future__ import annotations

import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

from hsparse.errors import HsparseError
from hsparse.optional_module import OptionalModule

TRACE = "opentelemetry.trace"
CONTEXT = OptionalModule("opentelemetry.trace.propagation.tracecontext", "otel")


@contextmanager
def client_span(method: str, path: str, headers: MutableMapping[str, str]) -> Iterator[Any]:
    """Start a span for a request, and add it to the headers of the request (W3C Trace Context).

    Yields the span, or None if the application does not trace (it has not imported OpenTelemetry). The span does not
    become current, because the answer may be read in another thread. Its attributes omit the query and the headers.
    """
    trace = sys.modules.get(TRACE)
    if trace is None:
        yield None
        return
    attributes = {"http.request.method": method, "url.path": path}
    span = trace.get_tracer("hsparse").start_span(
        f"hsparse {method}", kind=trace.SpanKind.CLIENT, attributes=attributes
    )
    CONTEXT.load().TraceContextTextMapPropagator().inject(headers, context=trace.set_span_in_context(span))
    try:
        yield span
    except BaseException as error:
        kind = error.kind.value if isinstance(error, HsparseError) else type(error).__name__
        span.set_attribute("error.type", kind)
        span.set_status(trace.StatusCode.ERROR)
        raise
    finally:
        span.end()


def note_status(span: Any, status: int) -> None:
    """Add the HTTP status of an answer to a span of `client_span`; do nothing if the span is None."""
    if span is not None:
        span.set_attribute("http.response.status_code", status)
