"""The Markdown: every figure, every side, losses like wins."""

from benchmarks.report import MeasuredMetric, Report, Spread
from benchmarks.table import cell, markdown, number


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
