"""Every manner of appending is measured, over a directory and over a slow S3 server."""

from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.report import OURS, Report
from benchmarks.trials.append import MANNERS, ON_S3, AppendTrial
from benchmarks.workloads.lcls_points import lcls_points


async def test_every_manner_has_a_rate_and_the_puts_to_s3_are_counted(tmp_path: Path) -> None:
    report, case = Report(), lcls_points(16)
    bench = Bench(tmp_path, tmp_path / "work", frozenset({"hsparse"}), 1, True, report, lambda text: None)
    await AppendTrial(bench, case).run()
    found = {metric.name: sides[OURS] for metric, sides in report.samples.items()}
    for manner in (*MANNERS, *ON_S3):
        assert found[manner.name][0] > 0
    for manner in ON_S3:
        assert 0 < found[f"{manner.name}, puts"][0] < 50 * 16
