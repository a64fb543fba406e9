"""What the benchmarks make of their figures: tables, charts, reports, pages, aims, limits."""

from __future__ import annotations

import threading
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import walk
from benchmarks.aims import BEST, Aim, aims, slower
from benchmarks.chart import Bars, chart
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
from benchmarks.report import OLDER, OURS, MeasuredMetric, Report, Spread
from benchmarks.table import cell, markdown, number
from benchmarks.trials.check import WrongAnswer, check_array, check_points
from benchmarks.trials.dense import MANY
from benchmarks.workloads.points import PointData
from hsparse.format.chunk_spec import chunk_key
from hsparse.model.short_text import shorten

RATE = MeasuredMetric("dense", "write, 16 MiB requests", "MiB/s", higher=True)
DELAY = MeasuredMetric("dense", "1 MiB hyperslab read, p50", "ms", higher=False)
SAMPLES = st.lists(st.floats(0.1, 1e6), min_size=1, max_size=7)


def filled(metric: MeasuredMetric, ours: list[float], theirs: list[float]) -> Report:
    report = Report()
    for side, samples in (("hsparse", ours), ("HSDS", theirs)):
        for sample in samples:
            report.add(metric, side, sample)
    return report


def test_a_ratio_above_one_is_a_win_whatever_the_unit() -> None:
    rate = filled(RATE, [200, 300], [100, 100]).ratio(RATE, "HSDS")
    delay = filled(DELAY, [2, 4], [4, 4]).ratio(DELAY, "HSDS")
    assert rate is not None
    assert (rate.low, rate.median, rate.high) == (2, 2.5, 3)
    assert delay is not None
    assert (delay.low, delay.high) == (1, 2)


@given(SAMPLES)
def test_a_side_against_itself_is_one(samples: list[float]) -> None:
    ratio = filled(RATE, samples, samples).ratio(RATE, "HSDS")
    assert ratio is not None
    assert ratio.low == ratio.median == ratio.high == 1


@given(SAMPLES)
def test_the_median_lies_in_the_spread(samples: list[float]) -> None:
    spread = filled(RATE, samples, []).spread(RATE, "hsparse")
    assert spread is not None
    assert min(samples) == spread.low <= spread.median <= spread.high == max(samples)


def test_what_was_not_measured_has_no_figure() -> None:
    report = filled(RATE, [1], [])
    assert report.ratio(RATE, "HSDS") is None
    assert report.spread(DELAY, "hsparse") is None


def test_an_unknown_side_is_refused() -> None:
    with pytest.raises(ValueError, match="no side"):
        Report().add(RATE, "hsdss", 1)


def test_remarks_are_kept_once() -> None:
    report = Report()
    report.remark("a")
    report.remark("a")
    assert report.as_json()["remarks"] == ["a"]


def test_a_report_becomes_a_table_a_workload() -> None:
    report = Report()
    rate = MeasuredMetric("lcls-points", "write", "million points/s", higher=True)
    for ours, theirs in ((1.0, 4.0), (2.0, 4.0), (3.0, 4.0)):
        report.add(rate, "hsparse", ours)
        report.add(rate, "TileDB", theirs)
    report.add(MeasuredMetric("rfc-table", "random points, 10 %", "bytes", higher=False), "hsparse", 123456)
    report.remark("a remark")
    report.failures.append("a failure")
    text = markdown(report, {"kernel": "Linux 1"})
    lines = text.splitlines()
    assert "- kernel: Linux 1" in lines
    head = lines.index("## lcls-points")
    assert lines[head + 2] == "| metric | ratio to TileDB | hsparse | TileDB | aims |"
    assert lines[head + 4] == (
        "| write, million points/s (more is better) "
        "| 0.5 (0.25..0.75) | 2 (1..3) | 4 | 1 x TileDB: MISSED (0.5) |"
    )
    table = lines.index("## rfc-table")
    assert lines[table + 4] == "| random points, 10 %, bytes (less is better) | 123,456 |  |"
    assert lines[-1] == "- a failure"
    assert "- a remark" in lines


def test_every_row_has_as_many_cells_as_its_head() -> None:
    report = Report()
    for name, side in (("a", "hsparse"), ("b", "HSDS"), ("b", "HSDS flushed"), ("c", "bare")):
        report.add(MeasuredMetric("dense", name, "MiB/s", higher=True), side, 1)
    rows = [line for line in markdown(report, {}).splitlines() if line.startswith("|")]
    assert len(rows) == 5
    assert len({row.count("|") for row in rows}) == 1


def test_figures_keep_three_digits() -> None:
    assert [number(value) for value in (0.01234, 9.5, 123.4, 1234.5)] == ["0.0123", "9.5", "123", "1,234"]
    assert cell(None) == "-"
    assert cell(Spread(2, 1, 3)) == "2 (1..3)"


SVG = "{http://www.w3.org/2000/svg}"


def bars(svg: str) -> list[tuple[str, float, float]]:
    """Return class, left edge and width of each bar, without the legend's squares."""
    found = ElementTree.fromstring(svg).iter(f"{SVG}rect")
    kinds = [rect.attrib for rect in found if rect.attrib["class"].startswith("bar")]
    return [(one["class"], float(one["x"]), float(one["width"])) for one in kinds if "." in one["x"]]


def test_a_win_and_a_loss_of_the_same_factor_are_bars_of_the_same_length() -> None:
    (won, lost) = bars(chart("title", ("A", "B"), [Bars("row", (4.0, 0.25))]))
    assert [won[0], lost[0]] == ["bar0", "bar1"]
    assert won[2] == lost[2] > 0
    assert lost[1] + lost[2] == won[1]


def test_a_ratio_that_was_not_measured_has_no_bar() -> None:
    assert [kind for kind, *_ in bars(chart("title", ("A", "B"), [Bars("row", (None, 3.0))]))] == ["bar1"]


def test_labels_are_escaped() -> None:
    svg = chart("a < b", ("A & B",), [Bars("c > d", (2.0,))])
    texts = [text.text for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]
    assert "a < b" in texts
    assert "than A & B" in texts
    assert "c > d" in texts


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


WRITE = MeasuredMetric("lcls-points", "write", "million points/s", higher=True)
STORED = MeasuredMetric("uniform", "stored", "bytes/point", higher=False)
SLOW = MeasuredMetric("lcls-points", "append 1 a request, 16 clients, p99", "ms", higher=False)


def verdicts(metric: MeasuredMetric, **sides: float) -> list[str]:
    report = Report()
    for side, value in sides.items():
        report.add(metric, side, value)
    return [verdict for aim in aims(metric) if (verdict := aim.verdict(metric, report))]


def test_a_loss_is_said_as_plainly_as_a_win() -> None:
    assert verdicts(WRITE, hsparse=2.0, TileDB=4.0, HSDS=0.02) == [
        "1 x TileDB: MISSED (0.5)",
        "50 x HSDS: met (100)",
    ]
    assert verdicts(STORED, hsparse=9.0, TileDB=9.0) == ["1 x TileDB: met (1)"]
    assert verdicts(STORED, hsparse=9.1, TileDB=9.0) == ["1 x TileDB: MISSED (0.989)"]


def test_a_bound_is_held_in_its_unit() -> None:
    assert verdicts(SLOW, hsparse=249) == ["at most 250 ms: met (249)"]
    assert verdicts(SLOW, hsparse=251) == ["at most 250 ms: MISSED (251)"]
    rate = MeasuredMetric("lcls-points", "append 1 a request, 16 clients", "frames/s", higher=True)
    assert verdicts(rate, hsparse=999) == ["at least 1,000 frames/s: MISSED (999)"]
    on_s3 = "append 1 a request, 16 clients, S3 of 20 ms"
    rate = MeasuredMetric("lcls-points", on_s3, "frames/s", higher=True)
    assert verdicts(rate, hsparse=500) == ["at least 500 frames/s: met (500)"]
    puts = MeasuredMetric("lcls-points", f"{on_s3}, puts", "puts/s", higher=False)
    assert verdicts(puts, hsparse=101) == ["at most 100 puts/s: MISSED (101)"]


def test_nothing_is_claimed_without_our_own_figure() -> None:
    assert verdicts(WRITE, TileDB=4.0) == []
    assert Aim(None, 1).verdict(WRITE, Report()) is None


def test_every_published_aim_is_held_to() -> None:
    metadata = MeasuredMetric("metadata", "attribute PUT, 1 client", "requests/s", higher=True)
    dense = MeasuredMetric("dense", "write, 16 MiB requests", "MiB/s", higher=True)
    points = MeasuredMetric("dense", MANY, "ms", higher=False)
    read = MeasuredMetric("single-cell", "read all", "s", higher=False)
    direct = MeasuredMetric("uniform", "read all, direct", "s", higher=False)
    table = MeasuredMetric("rfc-table", "random points, 10 %: encoded selection", "bytes", higher=False)
    memory = MeasuredMetric("memory", "2048 MiB read in one answer: most resident", "MiB", higher=False)
    imported = MeasuredMetric("files", "import, contiguous", "MB/s", higher=True)
    virtual = MeasuredMetric("files", "read over HTTP, contiguous", "MB/s", higher=True)
    opened = MeasuredMetric("files", "h5py over fsspec opens it", "requests", higher=False)
    assert aims(direct) == (Aim("TileDB", 1.2),)
    assert aims(imported) == (Aim(None, 200),)
    assert aims(virtual) == (Aim("bare", 0.5),)
    assert aims(opened) == (Aim(None, 10),)
    assert aims(metadata) == (Aim("HSDS", 3), Aim("bare", 0.5))
    assert aims(dense) == (Aim("HSDS", 2), Aim("HSDS flushed", 2), Aim("bare", 0.5))
    assert aims(points) == (Aim(None, 1000),)
    assert aims(read) == (Aim("TileDB", 0.9), Aim("HSDS", 20))
    assert aims(table) == (Aim(None, 111_000),)
    assert aims(memory) == (Aim(None, 512),)


@pytest.mark.parametrize(
    ("metric", "ours", "older", "verdict"),
    [
        (WRITE, [1.0, 1.5], [2.0, 3.0], "SLOWER than older hsparse (0.5)"),
        (WRITE, [1.0, 2.1], [2.0, 3.0], None),  # the spreads overlap
        (WRITE, [4.0, 5.0], [2.0, 3.0], None),
        (STORED, [9.0, 9.0], [8.0, 8.0], "SLOWER than older hsparse (0.889)"),
        (STORED, [9.0, 9.0], [9.0, 9.0], None),
        (STORED, [9.0, 9.0], [], None),
        (STORED, [9.0], [8.0], None),  # without a spread
    ],
)
def test_slower_than_an_older_revision_is_what_is_worse_beyond_the_spread(
    metric: MeasuredMetric, ours: list[float], older: list[float], verdict: str | None
) -> None:
    report = Report()
    for side, samples in ((OURS, ours), (OLDER, older)):
        for sample in samples:
            report.add(metric, side, sample)
    assert slower(metric, report) == verdict


def test_a_library_is_beaten_when_the_best_of_them_is() -> None:
    rate = MeasuredMetric("cells", "random batches of 4,096 rows, direct", "cells/s", higher=True)
    seconds = MeasuredMetric("cells", "20 whole genes, over HTTP", "s", higher=False)
    assert aims(rate) == (Aim(BEST, 2),)
    assert aims(MeasuredMetric("cells", "random batches of 4,096 rows, over HTTP", "cells/s", True)) == (
        Aim(BEST, 1),
    )
    assert aims(MeasuredMetric("cells", "import", "s", higher=False)) == ()
    assert aims(MeasuredMetric("cells", "memory of the batches, direct", "MiB", False)) == (Aim(None, 512),)
    report = Report()
    for side, cells, time in (
        ("hsparse", 30.0, 1.0),
        ("TileDB-SOMA", 5.0, 6.0),
        ("scDataset", 20.0, 8.0),
    ):
        report.add(rate, side, cells)
        report.add(seconds, side, time)
    assert [aim.verdict(rate, report) for aim in aims(rate)] == [
        "2 x the best of them, scDataset: MISSED (1.5)"
    ]
    assert [aim.verdict(seconds, report) for aim in aims(seconds)] == [
        "5 x the best of them, TileDB-SOMA: met (6)"
    ]
    assert verdicts(rate, hsparse=30.0) == []


POINTS = PointData((np.arange(3, dtype=np.uint64),), np.array([0.1, 0.2, 0.3]))


def test_the_same_points_in_another_order_pass() -> None:
    check_points("x", 3, 0.3 + 0.2 + 0.1, POINTS)


@pytest.mark.parametrize(("count", "total"), [(2, 0.6), (3, 0.7), (3, float("nan"))])
def test_points_that_miss_or_differ_are_refused(count: int, total: float) -> None:
    with pytest.raises(WrongAnswer, match="x returned"):
        check_points("x", count, total, POINTS)


def test_arrays_must_be_equal() -> None:
    check_array("x", np.arange(3), np.arange(3))
    with pytest.raises(WrongAnswer, match="x returned other values"):
        check_array("x", np.arange(3), np.arange(1, 4))


DATASET = "d-00000000-00000001-0000-000000-000001"


def test_a_tracer_notes_the_functions_that_threads_call() -> None:
    tracer = walk.Tracer()

    def work() -> None:
        chunk_key(DATASET, (1, 2))
        tracer.on = True
        for _ in range(3):
            chunk_key(DATASET, (1, 2))
            shorten("a text", 40)
        tracer.on = False
        chunk_key(DATASET, (1, 2))

    tracer.install()
    try:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    finally:
        threading.setprofile(None)
    names = {code.co_name for code in tracer.walk.functions}
    assert {"chunk_key", "shorten"} <= names
    figures = tracer.walk.figures
    specs, texts = (Path(walk.PACKAGE) / name for name in ("format/chunk_spec.py", "model/short_text.py"))
    assert figures["files"] == 2
    assert figures["lines of files"] == walk.count_lines(specs) + walk.count_lines(texts)
    assert figures["moves"] == 6
    assert figures["functions"] == len(names)
    assert figures["lines of functions"] >= 2 * len(names)


def test_what_is_beyond_a_limit_is_named() -> None:
    figures = {"read": {"files": 31, "moves": 5}, "write": {"files": 3, "moves": 9}}
    assert walk.beyond(figures, {"read": {"files": 30}, "write": {"files": 3, "moves": 9}}) == [
        "read: 31 files; the limit is 30"
    ]


def test_each_walk_and_each_part_has_limits() -> None:
    limits = tomllib.loads(walk.LIMITS.read_text())
    names = {"sparse read", "sparse write", "attribute PUT", "GET of a dataset", "create with link"}
    assert set(limits["walks"]) == {f"{name}{server}" for name in names for server in walk.SERVERS}
    assert all(set(limit) >= {"functions", "lines of functions"} for limit in limits["walks"].values())
    assert set(limits["sizes"]) == set(limits["parts"])
    sizes = walk.measured_sizes(limits["parts"])
    assert all(one["files"] for one in sizes.values())
