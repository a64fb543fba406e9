"""The metrics of a data node: messages, the work done for them, and membership."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hsparse.concurrency.admission import Admission, Watcher
from hsparse.concurrency.request_trace import RequestTrace, Work
from hsparse.dn.traced_store import StoreRequests
from hsparse.metric import SECONDS, CollectorRegistry, Counter, Gauge, Histogram, Metric, metrics_text
from hsparse.wire.message import message_name

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
    "Messages refused before any work was done, by reason: overload, deadline.",
    ("reason",),
)
STORE_REQUESTS = Metric(
    Counter,
    "hsparse_node_store_requests_total",
    "Requests to the store, by kind (get, put, delete, list) and result (ok, missing, conflict, cancelled, failed).",
    ("kind", "result"),
)
HITS = Metric(Counter, "hsparse_node_cache_hits_total", "Uses of cached objects that were in memory.")
LOADS = Metric(Counter, "hsparse_node_cache_loads_total", "Objects read from the store into the cache.")
COMMITS = Metric(
    Counter, "hsparse_node_commits_total", "Groups of changes stored, each by one put or delete."
)
CHANGES = Metric(
    Counter,
    "hsparse_node_changes_total",
    "Changes in these groups; divided by the number of groups: the mean size of a group.",
)
CONFLICTS = Metric(
    Counter, "hsparse_node_conflicts_total", "Changes applied again, because another writer had put first."
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
    HITS,
    LOADS,
    COMMITS,
    CHANGES,
    CONFLICTS,
    CACHED_OBJECTS,
    CACHED_BYTES,
    LEASE_AGE,
    MEMBERS,
)
"""All metrics of a data node, as listed in the documentation."""


@dataclass(frozen=True, slots=True)
class NodeState:
    """The state of a data node for its metrics: `cached` has the keys of `NodeInfo.counters`, `requests` are totals."""

    cached: dict[str, int]
    lease_age: float
    members: int
    requests: StoreRequests = field(default_factory=Counts)


class NodeMetrics:
    """The metrics of one data node in their own registry; `state` is called when the metrics are read."""

    def __init__(self, state: Callable[[], NodeState]) -> None:
        registry = self._registry = CollectorRegistry()
        self._state = state
        self._shown: StoreRequests = Counts()
        """The totals of store requests that the counter already shows."""
        self._messages = MESSAGES.make(registry)
        self._latency = LATENCY.make(registry)
        self._queue_wait = QUEUE_WAIT.make(registry)
        self._waiting = WAITING.make(registry)
        self._refused = REFUSED.make(registry)
        self._store_requests = STORE_REQUESTS.make(registry)
        self._conflicts = CONFLICTS.make(registry)
        self._hits, self._loads = HITS.make(registry), LOADS.make(registry)
        self._commits, self._changes = COMMITS.make(registry), CHANGES.make(registry)
        CACHED_OBJECTS.make(registry).set_function(lambda: state().cached["cached_objects"])
        CACHED_BYTES.make(registry).set_function(lambda: state().cached["cached_bytes"])
        LEASE_AGE.make(registry).set_function(lambda: state().lease_age)
        MEMBERS.make(registry).set_function(lambda: state().members)

    def show(self, admission: Admission) -> None:
        """Show the number of messages that wait for admission, and count the refused messages."""
        self._waiting.set_function(lambda: admission.waiting)
        admission.watcher = Watcher(refused=lambda reason: self._refused.labels(reason.value).inc())

    def count(self, message: Any, outcome: str, seconds: float, trace: RequestTrace) -> None:
        """Count an answered message and the work in its trace."""
        name = message_name(message)
        self._messages.labels(name, outcome).inc()
        self._latency.labels(name).observe(seconds)
        self._queue_wait.observe(trace.work.get(Work.WAITS, (0, 0.0))[1])
        self._conflicts.inc(trace.conflicts)
        self._hits.inc(trace.hits)
        self._loads.inc(trace.loads)
        self._commits.inc(trace.commits)
        self._changes.inc(trace.changes)

    def text(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        requests = self._state().requests
        for (kind, result), count in requests.items():
            self._store_requests.labels(kind, result).inc(count - self._shown[kind, result])
        self._shown = Counts(requests)
        return metrics_text(self._registry)
