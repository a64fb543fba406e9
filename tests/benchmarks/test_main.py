"""The command line, and what becomes of a run."""

import json
from pathlib import Path

import pytest

from benchmarks import __main__ as main
from benchmarks.bench import Bench
from benchmarks.failure import Failed
from benchmarks.peers import hsparse
from benchmarks.report import MeasuredMetric, Report


def test_all_workloads_and_peers_by_default() -> None:
    options = main.arguments([])
    assert options.workloads == list(main.WORKLOADS)
    assert options.peers == {"hsparse", "hsds", "tiledb", "cells", "bare"}
    assert options.repeats == 3


def test_the_libraries_of_cells_are_no_peers_of_other_workloads() -> None:
    assert "cells" in main.arguments(["dense", "cells"]).peers
    assert "cells" not in main.arguments(["dense"]).peers
    assert "cells" not in main.arguments(["cells", "--peers", "tiledb"]).peers


def test_quick_takes_one_turn_and_peers_can_be_left_out() -> None:
    options = main.arguments(["dense", "--quick", "--peers", "", "--no-hsparse"])
    assert options.workloads == ["dense"]
    assert options.repeats == 1
    assert options.peers == {"bare"}


def test_an_older_revision_is_a_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hsparse, "commit", {"v1": "0123"}.get)
    options = main.arguments(["--peers", "", "--against", "v1"])
    assert options.peers == {"hsparse", "older", "bare"}
    assert options.against == "0123"


@pytest.mark.parametrize(
    ("argv", "remedy"),
    [
        (["densest"], "there is no workload 'densest'; there are lcls-points"),
        (["--peers", "zarr"], "there is no peer 'zarr'; there are hsds, tiledb, cells"),
        (["--repeats", "0"], "at least 1"),
        (["--against", "no-such-tag"], "has no revision 'no-such-tag'"),
    ],
)
def test_what_is_unknown_is_refused_with_what_is_known(
    argv: list[str], remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main.arguments(argv)
    assert remedy in capsys.readouterr().err


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def test_a_workload_that_fails_is_reported_and_the_next_one_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(bench: Bench) -> None:
        (bench.work / "data").write_bytes(b"x")
        raise ExceptionGroup("two clients", [Failed("no answer"), Failed("no answer")])

    async def sound(bench: Bench) -> None:
        bench.report.add(MeasuredMetric("dense", "write", "MiB/s", higher=True), "hsparse", 1.0)

    monkeypatch.setattr(main, "WORKLOADS", {"broken": broken, "sound": sound})
    monkeypatch.setattr(main, "FOLDER", tmp_path)
    report = Report()
    options = main.arguments(["--out", str(tmp_path / "out" / "x.json")])
    await main.run(options, report, lambda text: None)
    assert report.failures == ["`broken` was not finished: no answer"]
    assert names(tmp_path) == []  # every run's data is gone
    text = main.write(report, {"kernel": "Linux"}, options.out)
    stored = json.loads(options.out.read_text())
    assert stored["facts"] == {"kernel": "Linux"}
    assert stored["figures"][0]["samples"] == {"hsparse": [1.0]}
    assert stored["failures"] == report.failures
    assert (tmp_path / "last.md").read_text() == text
