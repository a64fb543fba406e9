"""OpenTelemetry spans of a node, exported as its environment configures.

OpenTelemetry's packages are an extra, and only a node that exports spans imports them. Spans contain names, keys and
sizes, but no headers, queries, bodies or error messages, because clients may put secrets there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from hsparse.api import Attribute, ErrorKind, HsparseError, OptionalModule, Tracer, exports_spans

TRACE = OptionalModule("opentelemetry.trace", "otel")
CONTEXT = OptionalModule("opentelemetry.trace.propagation.tracecontext", "otel")
SDK = OptionalModule("opentelemetry.sdk.trace", "otel")
EXPORT = OptionalModule("opentelemetry.sdk.trace.export", "otel")
RESOURCES = OptionalModule("opentelemetry.sdk.resources", "otel")
OTLP = OptionalModule("opentelemetry.exporter.otlp.proto.http.trace_exporter", "otel")

SCOPE = "hsparse"
"""The instrumentation scope of all spans."""
EXPECTED = frozenset(
    {
        ErrorKind.BAD_REQUEST,
        ErrorKind.OUT_OF_RANGE,
        ErrorKind.UNAUTHENTICATED,
        ErrorKind.FORBIDDEN,
        ErrorKind.NOT_FOUND,
        ErrorKind.GONE,
        ErrorKind.CONFLICT,
        ErrorKind.PRECONDITION_FAILED,
        ErrorKind.MISDIRECTED,
        ErrorKind.MOVED,
    }
)
"""Error kinds that are normal answers; a span that ends with an error of another kind is marked as failed."""


class OpenTelemetrySpan:
    """A `Span` that wraps an OpenTelemetry span."""

    def __init__(self, tracer: OpenTelemetryTracer, span: Any) -> None:
        self._tracer = tracer
        self._span = span

    def child(self, name: str, attributes: Mapping[str, Attribute]) -> OpenTelemetrySpan:
        """Begin a child of this span; see `Span`."""
        return self._tracer.begin_below(self._span, name, attributes)

    def set(self, attributes: Mapping[str, Attribute]) -> None:
        """Set attributes of the span; see `Span`."""
        self._span.set_attributes(attributes)

    def end(self, error: BaseException | str | None = None) -> None:
        """End the span, after recording the kind of `error` if given; see `Span`."""
        if error is not None:
            self._tracer.note_error(self._span, error)
        self._span.end()

    @property
    def headers(self) -> dict[str, str]:
        """The headers by which another process continues the trace below this span; see `Span`."""
        return self._tracer.headers(self._span)


class OpenTelemetryTracer:
    """A `Tracer` that uses a tracer provider of OpenTelemetry's SDK."""

    def __init__(self, provider: Any) -> None:
        self._trace = TRACE.load()
        self._propagator = CONTEXT.load().TraceContextTextMapPropagator()
        self._provider = provider
        self._tracer = provider.get_tracer(SCOPE)

    def begin(
        self, name: str, headers: Mapping[str, str], attributes: Mapping[str, Attribute]
    ) -> OpenTelemetrySpan:
        """Begin a server span below the parent that `headers` name, if any; see `Tracer`."""
        carrier = {key.lower(): value for key, value in headers.items() if key.lower().startswith("trace")}
        context, kind = self._propagator.extract(carrier), self._trace.SpanKind.SERVER
        span = self._tracer.start_span(name, context=context, kind=kind, attributes=attributes)
        return OpenTelemetrySpan(self, span)

    def begin_below(self, parent: Any, name: str, attributes: Mapping[str, Attribute]) -> OpenTelemetrySpan:
        """Begin a child of the OpenTelemetry span `parent`."""
        context, kind = self._trace.set_span_in_context(parent), self._trace.SpanKind.CLIENT
        span = self._tracer.start_span(name, context=context, kind=kind, attributes=attributes)
        return OpenTelemetrySpan(self, span)

    def note_error(self, span: Any, error: BaseException | str) -> None:
        """Record the kind of an error on a span, never its message."""
        kind = error if isinstance(error, str) else type(error).__name__
        span.set_attribute("error.type", error.kind.value if isinstance(error, HsparseError) else kind)
        if not isinstance(error, HsparseError) or error.kind not in EXPECTED:
            span.set_status(self._trace.StatusCode.ERROR)

    def headers(self, span: Any) -> dict[str, str]:
        """Return the headers by which another process makes its spans children of this span."""
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, context=self._trace.set_span_in_context(span))
        return carrier

    def close(self) -> None:
        """Export the remaining spans."""
        self._provider.shutdown()


def make_tracer(service: str) -> OpenTelemetryTracer:
    """Return a tracer that exports by OTLP over HTTP as `OTEL_...` variables say; `service` is its default name.

    Raises `Misconfigured` if the extra is not installed.
    """
    resources = RESOURCES.load()
    named = resources.Resource.create()  # reads OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES
    if str(named.attributes.get("service.name", "unknown_service")).startswith("unknown_service"):
        named = named.merge(resources.Resource({"service.name": service}))
    provider = SDK.load().TracerProvider(resource=named, shutdown_on_exit=False)
    provider.add_span_processor(EXPORT.load().BatchSpanProcessor(OTLP.load().OTLPSpanExporter()))
    return OpenTelemetryTracer(provider)


@contextmanager
def node_tracer(service: str) -> Iterator[Tracer | None]:
    """Yield the tracer of a process, or None if it exports no spans; export the remaining spans at the end."""
    if not exports_spans():
        yield None
        return
    tracer = make_tracer(service)
    try:
        yield tracer
    finally:
        tracer.close()
