"""Declaration of the metrics of service nodes and data nodes, and their output in Prometheus's text format.

A label must have few possible values, and clients must not be able to add values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST as CONTENT_TYPE

__all__ = [
    "CONTENT_TYPE",
    "SECONDS",
    "CollectorRegistry",
    "Counter",
    "Gauge",
    "Histogram",
    "Metric",
    "metrics_text",
]

Family = TypeVar("Family", Counter, Gauge, Histogram)

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds in seconds of histogram buckets for durations of requests."""


@dataclass(frozen=True, slots=True)
class Metric(Generic[Family]):
    """A metric: its class, name, help text and labels, and the upper bounds of a histogram's buckets."""

    kind: Callable[..., Family]
    name: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    def make(self, registry: CollectorRegistry) -> Family:
        """Create the metric in a registry."""
        options: dict[str, Any] = {"buckets": self.buckets} if self.buckets else {}
        return self.kind(self.name, self.help, self.labels, registry=registry, **options)


def metrics_text(registry: CollectorRegistry) -> bytes:
    """Return all metrics of a registry in Prometheus's text format; its content type is `CONTENT_TYPE`."""
    return generate_latest(registry)
