"""An aim is met or missed; what was not measured is neither."""

import pytest

from benchmarks.aims import BEST, Aim, aims, slower
from benchmarks.report import OLDER, OURS, MeasuredMetric, Report
from benchmarks.trials.dense import MANY

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
