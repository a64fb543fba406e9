"""The last figures in the README."""

from __future__ import annotations

import json

from benchmarks.publish import BEGIN, END, insert, load, summary
from benchmarks.report import Metric, Report

FACTS = {"versions": "hsparse 1", "machine": "a machine", "repeats": "3"}


def reported() -> Report:
    report = Report()
    for side, samples in {"hsparse": [2.0, 4.0, 6.0], "HSDS": [4.0, 4.0, 4.0]}.items():
        for sample in samples:
            report.add(Metric("dense", "write", "MiB/s", higher=True), side, sample)
    report.add(Metric("memory", "most", "MiB", higher=False), "hsparse", 5.0)
    return report


def test_a_report_is_read_back() -> None:
    report = reported()
    assert load(json.loads(json.dumps(report.as_json()))).as_json() == report.as_json()


def test_wins_and_losses_are_rows_and_what_has_no_peer_is_none() -> None:
    rows = summary(reported(), FACTS).splitlines()[4:]
    assert rows == ["| dense: write | 4 MiB/s | 1 |  |  |  |  |"]


def test_the_table_stands_between_its_marks() -> None:
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    once = insert(page, "new")
    assert once == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
    assert insert(once, "new") == once
