"""The aims of the measured metrics: a factor by which hsparse should be better than a peer, or an absolute bound."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from benchmarks.report import OLDER, OURS, MeasuredMetric, Report, number

SPARSE = frozenset({"lcls-points", "lcls-roi", "uniform", "single-cell"})
HSDS = ("HSDS", "HSDS flushed")
BEST = "the best of them"
"""Value of `Aim.peer` for the peer with the best median."""
CELLS = {
    "random batches": {"over HTTP": 1.0, "direct": 2.0, "embedded": 2.0},
    "whole genes": {"over HTTP": 5.0, "direct": 5.0, "embedded": 5.0},
    "everything": {"over HTTP": 1.0, "direct": 1.0, "embedded": 1.0},
    "by a predicate": {"over HTTP": 5.0, "direct": 5.0, "embedded": 5.0},
}
"""The factor to be better than the best library, by the name of a row of `cells` and the way of reading."""
FIRST_VALUE = {"import, wall": 200.0, "first value after the import, wall": 50.0}
"""Upper bounds in milliseconds, by metric."""


@dataclass(frozen=True, slots=True)
class Aim:
    """The factor by which hsparse should be better than `peer` or, without a peer, a bound in the metric's unit."""

    peer: str | None
    value: float

    def verdict(self, metric: MeasuredMetric, report: Report) -> str | None:
        """Return the aim with `met` or `MISSED` and the figure, None when a side was not measured."""
        if self.peer is not None:
            peer = best_peer(metric, report) if self.peer == BEST else self.peer
            ratio = None if peer is None else report.ratio(metric, peer)
            if ratio is None:
                return None
            word = "met" if ratio.median >= self.value else "MISSED"
            name = f"{BEST}, {peer}" if self.peer == BEST else peer
            return f"{self.value:g} x {name}: {word} ({number(ratio.median)})"
        ours = report.spread(metric, OURS)
        if ours is None:
            return None
        met = ours.median >= self.value if metric.higher else ours.median <= self.value
        sign = "at least" if metric.higher else "at most"
        word = "met" if met else "MISSED"
        return f"{sign} {number(self.value)} {metric.unit}: {word} ({number(ours.median)})"


SAME = {
    "metadata": (Aim("HSDS", 3), Aim("bare", 0.5)),
    "small-objects": (Aim("HSDS", 1),),
    "frames": (Aim("Tiled", 1),),
}
"""The aims by workload, for workloads with the same aims for all metrics."""


def best_peer(metric: MeasuredMetric, report: Report) -> str | None:
    """Return the peer with the best median, None if no peer was measured."""
    medians = {
        side: statistics.median(samples)
        for side, samples in report.samples.get(metric, {}).items()
        if side not in (OURS, OLDER)
    }
    pick = max if metric.higher else min
    return pick(medians, key=lambda side: medians[side], default=None)


def slower(metric: MeasuredMetric, report: Report) -> str | None:
    """Return `SLOWER than older hsparse` if our best sample is worse than the older one's worst, else None.

    With a single repeat there is no spread to compare, and the result is None.
    """
    sides, ratio = report.samples.get(metric, {}), report.ratio(metric, OLDER)
    if ratio is None or len(sides[OURS]) < 2:
        return None
    ours, older = sides[OURS], sides[OLDER]
    worse = max(ours) < min(older) if metric.higher else min(ours) > max(older)
    return f"SLOWER than {OLDER} ({number(ratio.median)})" if worse else None


def aims(metric: MeasuredMetric) -> tuple[Aim, ...]:
    """Return the aims of a metric; most metrics have no aim."""
    if metric.workload in SPARSE:
        return _sparse(metric)
    if metric.workload in SAME:
        return SAME[metric.workload]
    if metric.workload == "dense" and metric.name.startswith("1 000 000 points"):
        return (Aim(None, 1000),)
    if metric.workload == "dense":
        peers = HSDS if metric.name.startswith("write") else HSDS[:1]
        return (*(Aim(peer, 2) for peer in peers), Aim("bare", 0.5))
    if metric.workload == "rfc-table" and metric.name == "random points, 10 %: encoded selection":
        return (Aim(None, 111_000),)
    if metric.workload == "files":
        return _files(metric)
    if metric.workload == "reduce" and metric.name.endswith("by the server"):
        return (Aim(None, 0.3 if metric.unit == "s" else 2.0),)
    if metric.workload == "cells":
        return _cells(metric)
    if metric.workload == "memory" and metric.unit == "MiB":
        return (Aim(None, 512),)
    if metric.workload == "first-value":
        return tuple(Aim(None, most) for name, most in FIRST_VALUE.items() if name == metric.name)
    if metric.workload == "explorer":
        return _explorer(metric)
    return ()


def _explorer(metric: MeasuredMetric) -> tuple[Aim, ...]:
    if metric.name.endswith("first view"):
        return (Aim(None, {"s": 1, "MB": 2, "requests": 3}[metric.unit]),)
    return (Aim(None, 10),) if metric.unit == "pictures/s" else ()


def _sparse(metric: MeasuredMetric) -> tuple[Aim, ...]:
    if metric.name == "write":
        ahead = tuple(Aim(peer, 50) for peer in HSDS) if metric.workload == "lcls-points" else ()
        return (Aim("TileDB", 1), *ahead)
    if metric.name == "read all":
        return (Aim("TileDB", 0.9), Aim("HSDS", 20))
    if metric.name == "read all, direct":
        return (Aim("TileDB", 1.2),)
    if metric.name == "box, p50":
        return (Aim("TileDB", 1), Aim("HSDS", 20))
    if metric.name == "stored":
        return (Aim("TileDB", 1),)
    if metric.name.startswith("append 1 "):
        on_s3 = " S3 " in metric.name
        return (Aim(None, {"frames/s": 500 if on_s3 else 1000, "puts/s": 100, "ms": 250}[metric.unit]),)
    return ()


def _files(metric: MeasuredMetric) -> tuple[Aim, ...]:
    if metric.unit == "requests":
        return (Aim(None, 10),)
    return (Aim("bare", 0.5),) if metric.name.startswith("read over HTTP") else (Aim(None, 200),)


def _cells(metric: MeasuredMetric) -> tuple[Aim, ...]:
    what, _, way = metric.name.rpartition(", ")
    if metric.unit == "MiB":
        return (Aim(None, 512),)
    if metric.unit == "of random":
        return (Aim(None, 0.88),)
    return tuple(Aim(BEST, factors[way]) for name, factors in CELLS.items() if name in what)
