"""The metrics of a data node: messages, what was done for them, and its membership."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hsparse.concurrency.admission import Admission, Watcher
from hsparse.concurrency.request_trace import RequestTrace, Work
from hsparse.metric import SECONDS, CollectorRegistry, Counter, Gauge, Histogram, Metric, metrics_text
from hsparse.wire.membership_message import Routed
from hsparse.wire.message import InBucket

MESSAGES = Metric(
    Counter,
    "hsparse_node_messages_total",
    "Messages answered, by type, and 'ok' or the kind of the error.",
    ("message", "outcome"),
)
LATENCY = Metric(
    Histogram, "hsparse_node_message_seconds", "Seconds until a message is answered.", ("message",), SECONDS
)
QUEUE_WAIT = Metric(
    Histogram,
    "hsparse_node_queue_wait_seconds",
    "Seconds that a message waited for its turn, for memory, or for a load or commit begun by another one.",
    (),
    SECONDS,
)
WAITING = Metric(Gauge, "hsparse_node_messages_waiting", "Messages that wait for their turn now.")
REFUSED = Metric(
    Counter,
    "hsparse_node_messages_refused_total",
    "Messages refused before they were worked on: overload, deadline.",
    ("reason",),
)
STORE_REQUESTS = Metric(
    Counter, "hsparse_node_store_requests_total", "Requests to the store: reads and writes.", ("kind",)
)
CONFLICTS = Metric(
    Counter, "hsparse_node_conflicts_total", "Changes applied again, since another writer had put first."
)
CACHED_OBJECTS = Metric(Gauge, "hsparse_node_cached_objects", "Objects in the cache.")
CACHED_BYTES = Metric(Gauge, "hsparse_node_cached_bytes", "Bytes of the objects in the cache.")
LEASE_AGE = Metric(
    Gauge,
    "hsparse_node_lease_age_seconds",
    "Seconds since the lease was renewed; it lasts for twice --lease.",
)
MEMBERS = Metric(Gauge, "hsparse_node_members", "Data nodes in the membership that this node has adopted.")

NODE_METRICS: tuple[Metric[Counter] | Metric[Gauge] | Metric[Histogram], ...] = (
    MESSAGES,
    LATENCY,
    QUEUE_WAIT,
    WAITING,
    REFUSED,
    STORE_REQUESTS,
    CONFLICTS,
    CACHED_OBJECTS,
    CACHED_BYTES,
    LEASE_AGE,
    MEMBERS,
)
"""All metrics of a data node. The documentation lists them."""
KINDS = {Work.READS: "read", Work.WRITES: "write"}


@dataclass(frozen=True, slots=True)
class NodeState:
    """What a data node shows of itself: `cached` has the keys of `NodeInfo.counters`."""

    cached: dict[str, int]
    lease_age: float
    members: int


class NodeMetrics:
    """The metrics of one data node, in a registry of their own; `state` is asked for when they are read."""

    def __init__(self, state: Callable[[], NodeState]) -> None:
        registry = self._registry = CollectorRegistry()
        self._messages = MESSAGES.make(registry)
        self._latency = LATENCY.make(registry)
        self._queue_wait = QUEUE_WAIT.make(registry)
        self._waiting = WAITING.make(registry)
        self._refused = REFUSED.make(registry)
        self._store_requests = STORE_REQUESTS.make(registry)
        self._conflicts = CONFLICTS.make(registry)
        CACHED_OBJECTS.make(registry).set_function(lambda: state().cached["cached_objects"])
        CACHED_BYTES.make(registry).set_function(lambda: state().cached["cached_bytes"])
        LEASE_AGE.make(registry).set_function(lambda: state().lease_age)
        MEMBERS.make(registry).set_function(lambda: state().members)

    def show(self, admission: Admission) -> None:
        """Show how many wait for a place, and count those who are refused."""
        self._waiting.set_function(lambda: admission.waiting)
        admission.watcher = Watcher(refused=lambda reason: self._refused.labels(reason.value).inc())

    def count(self, message: Any, outcome: str, seconds: float, trace: RequestTrace) -> None:
        """Count a message that was answered, and what its trace says was done for it."""
        name = message_name(message)
        self._messages.labels(name, outcome).inc()
        self._latency.labels(name).observe(seconds)
        self._queue_wait.observe(trace.work.get(Work.WAITS, (0, 0.0))[1])
        for work, kind in KINDS.items():
            if work in trace.work:
                self._store_requests.labels(kind).inc(trace.work[work][0])
        self._conflicts.inc(trace.conflicts)

    def text(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return metrics_text(self._registry)


def message_name(message: Any) -> str:
    """Return the type of a message, without its envelopes."""
    while isinstance(message, Routed | InBucket):
        message = message.message
    return type(message).__name__
