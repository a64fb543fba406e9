"""The report as Markdown: one table a workload, ratios first, losses like wins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from benchmarks.aims import aims, slower
from benchmarks.report import OURS, SIDES, MeasuredMetric, Report, Spread, number

NOTES = (
    "Each figure is the median over the repeats (min..max). A ratio says how many times better hsparse is "
    "than the peer, from the samples of the same turn: above 1 is a win, below 1 a loss, whatever the unit.",
    "hsparse answers a write when it is durable (fsync on the posix store). HSDS answers before it has "
    "stored anything: 'HSDS' is its plain figure, 'HSDS flushed' adds the flush of its API, which waits for "
    "the files to be written but not for fsync.",
    "TileDB runs embedded, in process, with no network and no fsync. 'bare' is an aiohttp handler that "
    "stores nothing: the bound of a server of this kind. 'copy' is the same file copied and synced, with neither "
    "server nor network: the bound of the disk.",
    "Servers have the caches that they have by default: a data node of hsparse an eighth of the machine's memory, "
    "a node of HSDS 128 MiB. What is read was written by the same process before; the page cache has it on all sides.",
    "Clients and servers share the machine's cores. Requests are encoded before the clock starts, on every "
    "side; answers are decoded to numpy arrays before it stops.",
)


def cell(spread: Spread | None) -> str:
    """Return `median (min..max)`, a dash where nothing was measured."""
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
