"""The trial of files, small: every figure is taken, and what was imported is what is exported."""

from pathlib import Path

import pytest

from benchmarks.bench import Bench
from benchmarks.report import Report
from benchmarks.trials.check import WrongAnswer
from benchmarks.trials.files import FilesTrial, copy_synced
from benchmarks.workloads.files import FileCase, contiguous, files

SMALL = 1_000_000


def bench(folder: Path) -> Bench:
    return Bench(folder, folder, frozenset({"hsparse", "bare"}), 1, True, Report(), lambda text: None)


async def test_a_case_gives_every_figure(tmp_path: Path) -> None:
    made = bench(tmp_path)
    (case,) = [case for case in files(quick=True) if case.name == "sparse"]
    await FilesTrial(made, (FileCase(case.name, SMALL, case.make, case.layouts),)).run()
    sides = {metric.name: set(found) for metric, found in made.report.samples.items()}
    assert sides == {
        "import, sparse": {"hsparse", "copy"},
        "import, sparse, raw": {"hsparse"},
        "export, sparse, stock": {"hsparse", "copy"},
        "read over HTTP, sparse, stock": {"hsparse", "bare"},
        "h5py over fsspec opens it and reads extents, sparse, stock": {"hsparse"},
        "export, sparse, structured": {"hsparse", "copy"},
        "read over HTTP, sparse, structured": {"hsparse", "bare"},
        "import, sparse, structured": {"hsparse", "copy"},
    }
    (requests,) = [found for metric, found in made.report.samples.items() if metric.unit == "requests"]
    assert 1 <= requests["hsparse"][0] <= 10


def test_other_values_are_no_figure(tmp_path: Path) -> None:
    source, target = tmp_path / "a.h5", tmp_path / "b.h5"
    contiguous(source, SMALL)
    copy_synced(source, target)
    trial = FilesTrial(bench(tmp_path), ())
    trial.check("some", source, target)
    contiguous(target, SMALL // 2)
    with pytest.raises(WrongAnswer):
        trial.check("some", source, target)
