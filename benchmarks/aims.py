"""The aims: what each figure should reach, against a peer or as it stands."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.report import OLDER, OURS, MeasuredMetric, Report, number

SPARSE = frozenset({"lcls-points", "lcls-roi", "uniform", "single-cell"})
HSDS = ("HSDS", "HSDS flushed")


@dataclass(frozen=True, slots=True)
class Aim:
    """A factor over `peer` or, without one, a bound in the metric's unit."""

    peer: str | None
    value: float

    def verdict(self, metric: MeasuredMetric, report: Report) -> str | None:
        """Return `met` or `missed` with the figure, None when a side was not measured."""
        if self.peer is not None:
            ratio = report.ratio(metric, self.peer)
            if ratio is None:
                return None
            word = "met" if ratio.median >= self.value else "MISSED"
            return f"{self.value:g} x {self.peer}: {word} ({number(ratio.median)})"
        ours = report.spread(metric, OURS)
        if ours is None:
            return None
        met = ours.median >= self.value if metric.higher else ours.median <= self.value
        sign = "at least" if metric.higher else "at most"
        word = "met" if met else "MISSED"
        return f"{sign} {number(self.value)} {metric.unit}: {word} ({number(ours.median)})"


def slower(metric: MeasuredMetric, report: Report) -> str | None:
    """Return `SLOWER than older hsparse` when our best sample is worse than its worst one, else None.

    One repeat has no spread, and says nothing.
    """
    sides, ratio = report.samples.get(metric, {}), report.ratio(metric, OLDER)
    if ratio is None or len(sides[OURS]) < 2:
        return None
    ours, older = sides[OURS], sides[OLDER]
    worse = max(ours) < min(older) if metric.higher else min(ours) > max(older)
    return f"SLOWER than {OLDER} ({number(ratio.median)})" if worse else None


def aims(metric: MeasuredMetric) -> tuple[Aim, ...]:
    """Return the aims that a metric is held to; none for most."""
    if metric.workload in SPARSE:
        return _sparse(metric)
    if metric.workload == "metadata":
        return (Aim("HSDS", 3), Aim("bare", 0.5))
    if metric.workload == "dense" and metric.name.startswith("1 000 000 points"):
        return (Aim(None, 1000),)
    if metric.workload == "dense":
        peers = HSDS if metric.name.startswith("write") else HSDS[:1]
        return (*(Aim(peer, 2) for peer in peers), Aim("bare", 0.5))
    if metric.workload == "rfc-table" and metric.name == "random points, 10 %: encoded selection":
        return (Aim(None, 111_000),)
    if metric.workload == "files":
        return _files(metric)
    if metric.workload == "memory" and metric.unit == "MiB":
        return (Aim(None, 512),)
    return ()


def _sparse(metric: MeasuredMetric) -> tuple[Aim, ...]:
    if metric.name == "write":
        ahead = tuple(Aim(peer, 50) for peer in HSDS) if metric.workload == "lcls-points" else ()
        return (Aim("TileDB", 1), *ahead)
    if metric.name == "read all":
        return (Aim("TileDB", 0.5), Aim("HSDS", 20))
    if metric.name == "box, p50":
        return (Aim("TileDB", 1), Aim("HSDS", 20))
    if metric.name == "stored":
        return (Aim("TileDB", 1),)
    if metric.name.startswith("append 1 "):
        return (Aim(None, 1000),) if metric.unit == "frames/s" else (Aim(None, 250),)
    return ()


def _files(metric: MeasuredMetric) -> tuple[Aim, ...]:
    if metric.unit == "requests":
        return (Aim(None, 10),)
    return (Aim("bare", 0.5),) if metric.name.startswith("read over HTTP") else (Aim(None, 200),)
