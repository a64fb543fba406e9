"""`python -m benchmarks.publish`: the last run's figures into the README and `docs/benchmarks.md`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.report import OURS, Metric, Report, number

PROJECT = Path(__file__).resolve().parent.parent
FOLDER = PROJECT / ".bench"
BEGIN, END = "<!-- benchmark table -->", "<!-- end of benchmark table -->"
PEERS = ("HSDS", "HSDS flushed", "TileDB", "bare", "copy")


def load(data: dict[str, Any]) -> Report:
    """Return the report that `Report.as_json` wrote."""
    report = Report()
    for figure in data["figures"]:
        metric = Metric(
            figure["workload"], figure["metric"], figure["unit"], higher=figure["higher_is_better"]
        )
        for side, samples in figure["samples"].items():
            for sample in samples:
                report.add(metric, side, sample)
    return report


def summary(report: Report, facts: dict[str, str]) -> str:
    """Return the short table: a row a metric that has a peer, ratios only, and our own figure."""
    lines = [
        f"{facts['versions']}; {facts['machine']}; medians of {facts['repeats']} runs in turn, `make bench`. A ratio "
        "above 1 is a win of hsparse, below 1 a loss. Its writes are durable; HSDS's are not, and TileDB's "
        "neither, which runs in the client's process.",
        "",
        "| | hsparse | x HSDS | x HSDS flushed | x TileDB | x bare aiohttp | x copy of the file |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *_rows(report),
    ]
    return "\n".join(lines)


def _rows(report: Report) -> Iterable[str]:
    for metric in report.samples:
        ours = report.spread(metric, OURS)
        ratios = [report.ratio(metric, peer) for peer in PEERS]
        if ours is None or not any(ratios) or metric.workload == "rfc-table":
            continue
        cells = ["" if ratio is None else number(ratio.median) for ratio in ratios]
        yield f"| {metric.workload}: {metric.name} | {number(ours.median)} {metric.unit} | {' | '.join(cells)} |"


def insert(page: str, table: str) -> str:
    """Return the README with the table between its two marks."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{table}\n{END}{tail}"


def main() -> None:
    """Publish the last run; what it lost is published like what it won."""
    data = json.loads((FOLDER / "last.json").read_text())
    if data["failures"]:
        sys.exit("The last run has failures; run `make bench` again.")
    readme = PROJECT / "README.md"
    readme.write_text(insert(readme.read_text(), summary(load(data), data["facts"])))
    (PROJECT / "docs" / "benchmarks.md").write_text((FOLDER / "last.md").read_text())


if __name__ == "__main__":
    main()
