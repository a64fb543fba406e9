"""`python -m benchmarks.publish`: publish the last run.

A report of all workloads becomes `docs/benchmarks.md`. A report of some workloads replaces only their sections
of the page, and adds the conditions of their run. Five rows go into the README's table and into the chart, losses as
well as wins. A test checks that both agree with the page.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.chart import Bars, chart

PROJECT = Path(__file__).resolve().parent.parent
FOLDER = PROJECT / ".bench"
PAGE = PROJECT / "docs" / "benchmarks.md"
CHART = PROJECT / "docs" / "benchmarks.svg"
LOAD = "load when started"
BEGIN, END = "<!-- benchmark table -->", "<!-- end of benchmark table -->"
TITLE = "# Benchmarks\n"
INTRODUCTION = """
`make bench` runs these workloads against HSDS, TileDB, the libraries of single-cell analysis and a bare HTTP server.
The chart shows five of the rows below; the README has the same. Figures are medians of the repeats, for hsparse with
(min..max). In parentheses after a peer's figure: how many times better hsparse is, from samples of the same turn,
whatever the unit.

![How many times better hsparse is than HSDS and TileDB, in five rows.](benchmarks.svg)

## Conditions
"""
PEERS = ("HSDS", "TileDB")
ROWS = (
    ("lcls-points", "write", "write scattered points"),
    ("single-cell", "box, p50", "read a box of a sparse matrix"),
    ("single-cell", "read all", "read a whole sparse matrix"),
    ("metadata", "dataset GET, 16 clients", "get a dataset's metadata, 16 clients"),
    ("dense", "write, 16 MiB requests", "write dense data, 16 MiB requests"),
)
"""The workload, the metric and the README's label of each published row."""


@dataclass(frozen=True, slots=True)
class Row:
    """One metric of the page; `ratios` has the median ratio by peer, None if the peer was not measured."""

    label: str
    figure: str
    unit: str
    ratios: dict[str, float | None]


def fact(page: str, name: str) -> str:
    """Return a fact in the head of the page, such as `versions`; raise `ValueError` if the page does not have it."""
    found = re.search(rf"^- {re.escape(name)}: (.*)$", page, re.MULTILINE)
    if found is None:
        raise ValueError(f"The report has no fact {name!r}.")
    return found[1]


def row(page: str, workload: str, metric: str, label: str) -> Row:
    """Return a metric's row of the full report `page`; raise `ValueError` if the page does not have it."""
    section = page.partition(f"\n## {workload}\n")[2].partition("\n## ")[0]
    table = [
        [cell.strip() for cell in line[1:-1].split("|")] for line in section.splitlines() if line[:1] == "|"
    ]
    for cells in table[2:]:
        named = re.fullmatch(rf"{re.escape(metric)}, ([^,]+)", cells[0])
        if named:
            shown = dict(zip(table[0], cells, strict=True))
            ratios = {peer: _ratio(shown.get(peer, "-")) for peer in PEERS}
            return Row(label, shown["hsparse"].partition(" ")[0], named[1], ratios)
    raise ValueError(f"The report has no metric {metric!r} of {workload!r}.")


def _ratio(cell: str) -> float | None:
    """Return the ratio in a peer's cell, which has the form `figure (ratio)`."""
    found = re.search(r"\((.*)\)", cell)
    return float(found[1].replace(",", "")) if found else None


def rows(page: str) -> list[Row]:
    """Return the rows of the full report that `ROWS` names."""
    return [row(page, *names) for names in ROWS]


def summary(page: str) -> str:
    """Return the README's table."""
    lines = [
        f"{fact(page, 'versions')}; {fact(page, 'machine')}; medians of {fact(page, 'repeats')} runs, `make bench`.",
        "",
        "| | hsparse | times better than HSDS | times better than TileDB |",
        "| --- | --- | --- | --- |",
    ]
    for one in rows(page):
        cells = ["" if ratio is None else f"{ratio:g}" for ratio in one.ratios.values()]
        lines.append(f"| {one.label} | {one.figure} {one.unit} | {' | '.join(cells)} |")
    return "\n".join(lines)


def picture(page: str) -> str:
    """Return the chart, an SVG."""
    bars: Sequence[Bars] = [Bars(one.label, tuple(one.ratios.values())) for one in rows(page)]
    return chart("How many times better hsparse is, log scale", PEERS, bars)


def insert(page: str, table: str) -> str:
    """Return the README `page` with the text between `BEGIN` and `END` replaced by the table."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{table}\n{END}{tail}"


def condensed(report: str) -> str:
    """Return the report with shorter tables: one cell has a peer's median figure and the median ratio to the peer.

    Only hsparse's figures have a spread, and aims have a verdict without the figure. In tables with peers, rows that
    have neither a ratio nor an aim are left out.
    """
    found: list[str] = []
    titles: list[str] = []
    for line in report.splitlines():
        cells = [cell.strip() for cell in line[1:-1].split("|")]
        if line[:1] != "|":
            titles = []
        elif not titles:
            titles = cells
            line = _line(["metric", "hsparse", *_peers(titles), "aims"])
        elif cells[0] == "---":
            line = _line(["---"] * (len(_peers(titles)) + 3))
        else:
            row = dict(zip(titles, cells, strict=True))
            if (
                not row["aims"]
                and _peers(titles)
                and all(row[f"ratio to {one}"] == "-" for one in _peers(titles))
            ):
                continue
            line = _condensed_row(row, _peers(titles))
        found.append(line)
    return "\n".join(found) + "\n"


def _peers(titles: Sequence[str]) -> list[str]:
    return [title for title in titles if title not in ("metric", "hsparse", "aims") and title[:6] != "ratio "]


def _condensed_row(row: dict[str, str], peers: Sequence[str]) -> str:
    medians = {title: cell.partition(" ")[0] for title, cell in row.items()}
    ratios = {peer: medians[f"ratio to {peer}"] for peer in peers}
    figures = [
        medians[peer] if ratios[peer] == "-" else f"{medians[peer]} ({ratios[peer]})" for peer in peers
    ]
    metric = re.sub(r" \((more|less) is better\)$", "", row["metric"])
    aims = re.sub(r": (met|MISSED) \([^)]*\)", r" \1", row["aims"].replace("the best of them, ", ""))
    for word, sign in {"least": "≥", "most": "≤"}.items():
        aims = re.sub(rf"at {word} ([\d.,]+)[^;]*? (met|MISSED)", rf"{sign}\1 \2", aims)
    return _line([metric, row["hsparse"], *figures, aims])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |".replace("|  |", "| |")


def introduced(report: str) -> str:
    """Return the page: the condensed report with an introduction and the chart."""
    return report.replace(TITLE, TITLE + INTRODUCTION, 1)


def sections(text: str) -> dict[str, str]:
    """Return the text under each heading of the second level, by heading; the text before the first has the key ''."""
    head, *rest = re.split(r"^## ", text, flags=re.MULTILINE)
    return {"": head} | {title: body for title, _, body in (part.partition("\n") for part in rest)}


def merge(page: str, report: str) -> str:
    """Return the page with its sections replaced by those in the report of some workloads.

    Each new section ends with the command of its run, the differences in its conditions, and its remarks.
    """
    known, measured = sections(page), sections(report)
    remarks = measured.pop("Remarks", "").strip().splitlines()
    last = known.pop("Remarks", "").strip().splitlines()
    told = {name: fact(report, name) for name in ("versions", "repeats", LOAD)}
    conditions = "".join(
        f"; {name}: {value.partition(' (')[0]}"
        for name, value in told.items()
        if f"\n- {name}: {value}\n" not in page
    )
    for title in [title for title in measured if title]:
        about = f"- `{title}`"
        own = [f"- Measured apart by `{fact(report, 'command')}`{conditions}."]
        own += [remark for remark in remarks if remark.startswith(about)]
        known[title] = "\n".join(["", measured[title].strip(), "", *own, "", ""])
        last = [remark for remark in last if not remark.startswith(about)]
    if last:
        known["Remarks"] = "\n".join(["", *last, ""])
    return known.pop("") + "".join(f"## {title}\n{body}" for title, body in known.items())


def page_of(report: str, page: str) -> str:
    """Return the page to publish after a run, given the report and the published page."""
    workloads = sections(page).keys() - {"", "Conditions", "Remarks"}
    return introduced(report) if workloads <= sections(report).keys() else merge(page, report)


def main() -> None:
    """Publish the last run."""
    data = json.loads((FOLDER / "last.json").read_text())
    if data["failures"]:
        sys.exit("The last run has failures; run `make bench` again.")
    page = page_of(condensed((FOLDER / "last.md").read_text()), PAGE.read_text())
    readme = PROJECT / "README.md"
    readme.write_text(insert(readme.read_text(), summary(page)))
    CHART.write_text(picture(page))
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
