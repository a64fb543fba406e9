"""The metrics that alerts, dashboards and autoscalers may use: the list in one place."""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import Counter, Gauge, Histogram

from hsparse.dn.metrics import NODE_METRICS
from hsparse.sn.metrics import METRICS

TARGET_LABELS = {"namespace", "pod"}
"""Labels that Prometheus adds to what it scrapes in Kubernetes."""
SUFFIXES = {
    Counter: {"": ("_total",)},
    Gauge: {"": ("",)},
    Histogram: {"": ("_count", "_sum"), "le": ("_bucket",)},
}


@dataclass(frozen=True, slots=True)
class Family:
    """A metric: its class, and the names of its labels."""

    kind: type
    labels: tuple[str, ...] = ()


FAMILIES: dict[str, Family] = {
    one.name: Family(one.kind, one.labels)  # type: ignore[arg-type]
    for one in (*METRICS, *NODE_METRICS)
}


def labels_of_series() -> dict[str, set[str]]:
    """Return the labels of every series that is scraped, by its name in queries."""
    return {
        name.removesuffix("_total") + suffix: {*family.labels, *TARGET_LABELS, *([extra] if extra else [])}
        for name, family in FAMILIES.items()
        for extra, suffixes in SUFFIXES[family.kind].items()
        for suffix in suffixes
    }
