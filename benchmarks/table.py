"""The report as Markdown, with one table per workload."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from benchmarks.aims import aims, slower
from benchmarks.report import OURS, SIDES, MeasuredMetric, Report, Spread, number

NOTES = (
    "hsparse answers a write when it is durable (fsync on the posix store). HSDS answers before it has stored "
    "anything; 'HSDS flushed' adds the flush of its API, without fsync.",
    "TileDB runs embedded, with no network and no fsync. 'bare' is an aiohttp handler that stores nothing: the bound "
    "of a server. 'copy' is the same file copied and synced: the bound of the disk.",
    "Whole reads ('read all') are by the packages for Python, 'direct' from the server's directory; other rows are "
    "plain requests.",
    "Caches have their default sizes. The data that is read was written by the same process, and is in the page cache.",
    "Clients and servers share the machine's cores. Requests are encoded before the clock starts; answers are decoded "
    "to numpy arrays before it stops.",
)


def cell(spread: Spread | None) -> str:
    """Return `median (min..max)`, or a dash if nothing was measured."""
    if spread is None:
        return "-"
    if spread.low == spread.high:
        return number(spread.median)
    return f"{number(spread.median)} ({number(spread.low)}..{number(spread.high)})"


def markdown(report: Report, facts: Mapping[str, str]) -> str:
    """Return the whole report; `facts` are the machine, the versions and the command."""
    lines = ["# Benchmarks", ""]
    lines += [f"- {name}: {value}" for name, value in facts.items()]
    lines += ["", *(f"- {note}" for note in NOTES)]
    for workload in dict.fromkeys(metric.workload for metric in report.samples):
        metrics = [metric for metric in report.samples if metric.workload == workload]
        lines += ["", f"## {workload}", "", *_table(report, metrics)]
    if report.remarks:
        lines += ["", "## Remarks", "", *(f"- {remark}" for remark in report.remarks)]
    if report.failures:
        lines += ["", "## Failures", "", *(f"- {failure}" for failure in report.failures)]
    return "\n".join(lines) + "\n"


def _table(report: Report, metrics: list[MeasuredMetric]) -> Iterable[str]:
    sides = [side for side in SIDES if any(side in report.samples[metric] for metric in metrics)]
    peers = [side for side in sides if side != OURS]
    titles = ["metric", *(f"ratio to {peer}" for peer in peers), *sides, "aims"]
    yield _row(titles)
    yield _row(["---"] * len(titles))
    for metric in metrics:
        ratios = [cell(report.ratio(metric, peer)) for peer in peers]
        figures = [cell(report.spread(metric, side)) for side in sides]
        verdicts = [verdict for aim in aims(metric) if (verdict := aim.verdict(metric, report))]
        verdicts += [verdict] if (verdict := slower(metric, report)) else []
        arrow = "more is better" if metric.higher else "less is better"
        yield _row([f"{metric.name}, {metric.unit} ({arrow})", *ratios, *figures, "; ".join(verdicts)])


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"
