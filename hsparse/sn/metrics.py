"""The metrics of a service node, in Prometheus's text format.

The label `route` is the route's path template, never the requested path; unknown methods and paths share `other`.
"""

from __future__ import annotations

from typing import TypeAlias

from hsparse.concurrency.admission import Admission, Rejection, Watcher
from hsparse.metric import SECONDS, CollectorRegistry, Counter, Gauge, Histogram, Metric, metrics_text

Series: TypeAlias = tuple[Counter, Histogram, Counter, Counter]
"""The metrics of requests with one set of labels: requests, latency, bytes in, bytes out."""

OTHER = "other"

REQUESTS = Metric(
    Counter,
    "hsparse_requests_total",
    "Requests answered, by HTTP status; 'aborted' if the connection was broken off instead.",
    ("route", "method", "status"),
)
LATENCY = Metric(
    Histogram,
    "hsparse_request_seconds",
    "Seconds from a request's headers until its answer is ready or, if streamed, sent.",
    ("route", "method"),
    SECONDS,
)
BYTES_IN = Metric(
    Counter, "hsparse_request_bytes_total", "Bytes received in request bodies.", ("route", "method")
)
BYTES_OUT = Metric(
    Counter,
    "hsparse_response_bytes_total",
    "Bytes of answers' bodies; of a streamed body, the bytes that were sent.",
    ("route", "method"),
)
IN_FLIGHT = Metric(Gauge, "hsparse_requests_in_flight", "Requests being answered now.")
WAITING = Metric(Gauge, "hsparse_requests_waiting", "Requests that wait for admission now.")
QUEUE_WAIT = Metric(
    Histogram,
    "hsparse_request_queue_seconds",
    "Seconds that a request waited, if it had to wait.",
    (),
    SECONDS,
)
REFUSED = Metric(
    Counter,
    "hsparse_requests_refused_total",
    "Requests refused before any work on them: overload, deadline, disconnected.",
    ("reason",),
)
JOBS = Metric(
    Counter, "hsparse_jobs_total", "Jobs that have ended, by kind and how they ended.", ("kind", "outcome")
)

METRICS: tuple[Metric[Counter] | Metric[Gauge] | Metric[Histogram], ...] = (
    REQUESTS,
    LATENCY,
    BYTES_IN,
    BYTES_OUT,
    IN_FLIGHT,
    WAITING,
    QUEUE_WAIT,
    REFUSED,
    JOBS,
)
"""All metrics. The documentation lists them."""


class Metrics:
    """The metrics of one service node, in a separate Prometheus registry."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = REQUESTS.make(self._registry)
        self._latency = LATENCY.make(self._registry)
        self._bytes_in = BYTES_IN.make(self._registry)
        self._bytes_out = BYTES_OUT.make(self._registry)
        self.in_flight = IN_FLIGHT.make(self._registry)
        self._waiting = WAITING.make(self._registry)
        refused = REFUSED.make(self._registry)
        by_reason = {reason: refused.labels(reason.value) for reason in Rejection}
        self.watcher = Watcher(
            QUEUE_WAIT.make(self._registry).observe, lambda reason: by_reason[reason].inc()
        )
        """The watcher that `Admission` calls for each wait and refusal."""
        self._jobs = JOBS.make(self._registry)

    def show(self, admission: Admission) -> None:
        """Export the number of requests that wait in `admission`."""
        self._waiting.set_function(lambda: admission.waiting)

    def count_job(self, kind: str, outcome: str) -> None:
        """Count a job that has ended."""
        self._jobs.labels(kind, outcome).inc()

    def text(self) -> bytes:
        """Return all metrics in Prometheus's text format; its content type is `hsparse.metric.CONTENT_TYPE`."""
        return metrics_text(self._registry)

    def series(self, route: str, method: str, status: str) -> Series:
        """Return the `Series` with these labels. Callers cache it, because a lookup costs as much as counting."""
        return (
            self._requests.labels(route, method, status),
            self._latency.labels(route, method),
            self._bytes_in.labels(route, method),
            self._bytes_out.labels(route, method),
        )
