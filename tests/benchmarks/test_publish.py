"""Rows of the full report in the README, and the same rows as a chart."""

from __future__ import annotations

import pytest

from benchmarks.publish import (
    BEGIN,
    END,
    INTRODUCTION,
    PAGE,
    Row,
    condensed,
    insert,
    introduced,
    merge,
    page_of,
    picture,
    row,
    rows,
    sections,
    summary,
)
from benchmarks.report import MeasuredMetric, Report
from benchmarks.table import markdown


def reported() -> str:
    report = Report()
    for side, samples in {"hsparse": [1200.0, 2400.0, 3600.0], "HSDS": [2400.0, 2400.0, 2400.0]}.items():
        for sample in samples:
            report.add(MeasuredMetric("dense", "write, p50", "MiB/s", higher=True), side, sample)
            report.add(MeasuredMetric("dense", "write", "s", higher=False), side, sample)
    return condensed(markdown(report, {"versions": "hsparse 1", "machine": "a machine", "repeats": "3"}))


def test_a_row_has_the_medians_of_its_metric() -> None:
    ratios = {"HSDS": 1.0, "TileDB": None}
    assert row(reported(), "dense", "write, p50", "label") == Row("label", "2,400", "MiB/s", ratios)
    assert row(reported(), "dense", "write", "label") == Row("label", "2,400", "s", ratios)


@pytest.mark.parametrize("names", [("dense", "read"), ("sparse", "write")])
def test_a_metric_that_was_not_measured_is_an_error(names: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="has no metric"):
        row(reported(), *names, "label")


def test_tables_of_the_page_are_those_of_the_report_in_fewer_words() -> None:
    report = "\n".join(
        [
            "| metric | ratio to HSDS | ratio to TileDB | hsparse | HSDS | TileDB | aims |",
            "| --- | --- | --- | --- | --- | --- | --- |",
            "| read, s (less is better) | 2 (1..3) | - | 1 (1..2) | 2 (1..3) | - | 1 x HSDS: met (2); "
            "at most 9 s: MISSED (1) |",
            "| stored, MB (less is better) | - | - | 5 | 7 | - | at most 9 MB: met (5) |",
            "| looked at, MB (less is better) | - | - | 5 | 7 | - |  |",
            "",
        ]
    )
    assert condensed(report).splitlines() == [
        "| metric | hsparse | HSDS | TileDB | aims |",
        "| --- | --- | --- | --- | --- |",
        "| read, s | 1 (1..2) | 2 (2) | - | 1 x HSDS met; ≤9 MISSED |",
        "| stored, MB | 5 | 7 | - | ≤9 met |",
    ]


def test_the_published_page_has_every_row_with_its_figures() -> None:
    page = PAGE.read_text()
    table = summary(page).splitlines()
    assert table[0].startswith("hsparse 0.")
    assert len(table[4:]) == len(rows(page)) == 5
    for one, line in zip(rows(page), table[4:], strict=True):
        cells = ["" if ratio is None else f"{ratio:g}" for ratio in one.ratios.values()]
        assert line == f"| {one.label} | {one.figure} {one.unit} | {' | '.join(cells)} |"
        assert all(f">{cell}</text>" in picture(page) for cell in cells if cell)


def test_the_table_stands_between_its_marks() -> None:
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    once = insert(page, "new")
    assert once == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
    assert insert(once, "new") == once


def test_the_page_begins_with_the_chart() -> None:
    page = introduced(reported())
    assert page.startswith(f"# Benchmarks\n{INTRODUCTION}\n- versions: hsparse 1\n")
    assert page.partition(INTRODUCTION)[2] == reported().removeprefix("# Benchmarks\n")
    assert introduced(PAGE.read_text().replace(INTRODUCTION, "", 1)) == PAGE.read_text()


def run_of(workload: str, value: float) -> str:
    report = Report()
    report.add(MeasuredMetric(workload, "write", "s", higher=False), "hsparse", value)
    report.remark(f"`{workload}`: a remark on {value:g}.")
    facts = {
        "versions": "hsparse 1",
        "load when started": "0.1",
        "command": f"python -m benchmarks {workload}",
    }
    return condensed(markdown(report, facts | {"repeats": "5"}))


def test_a_run_of_one_workload_takes_the_place_of_its_section() -> None:
    page = introduced(reported())
    once = merge(page, run_of("cells", 1))
    assert list(sections(once)) == ["", "Conditions", "dense", "cells"]
    assert once.startswith(page.rstrip("\n"))
    assert "Measured apart by `python -m benchmarks cells`; repeats: 5; load when started: 0.1." in once
    assert "- `cells`: a remark on 1." in sections(once)["cells"]
    again = merge(once, run_of("cells", 2))
    assert "remark on 1" not in again
    assert again.replace("remark on 2", "remark on 1").replace("| 2 |", "| 1 |") == once
    other = merge(again, run_of("dense", 3))
    assert list(sections(other)) == list(sections(once))
    assert sections(other)["cells"] == sections(again)["cells"]


def test_a_run_of_every_workload_takes_the_place_of_the_page() -> None:
    page = introduced(reported())
    assert page_of(reported(), page) == page
    assert page_of(run_of("dense", 3), page) == introduced(run_of("dense", 3))
    assert page_of(run_of("cells", 3), page) == merge(page, run_of("cells", 3))
