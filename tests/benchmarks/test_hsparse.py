"""This revision beside an older one: a commit, its environment, and turns of both."""

import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from benchmarks.bench import Bench
from benchmarks.failure import Failed
from benchmarks.peers.hsparse import commit, older_environment
from benchmarks.report import OLDER, OURS, MeasuredMetric, Report
from benchmarks.trials.sparse import SparseTrial
from benchmarks.workloads.uniform import uniform

SHA = "0123456789abcdef0123456789abcdef01234567"


def git(project: Path, *words: str) -> str:
    argv = ["git", "-C", str(project), "-c", "user.name=a", "-c", "user.email=a@b", *words]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def test_a_revision_is_a_commit_of_the_checkout(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "one")
    git(tmp_path, "tag", "-a", "v1", "-m", "one")
    assert commit("v1", tmp_path) == commit("HEAD", tmp_path) == git(tmp_path, "rev-parse", "HEAD")
    with pytest.raises(Failed, match="no revision 'v2'"):
        commit("v2", tmp_path)


def test_each_commit_has_an_environment_with_what_its_server_needs(tmp_path: Path) -> None:
    environment = older_environment(tmp_path, SHA, Path("/a folder/hsparse"))
    assert environment.path == tmp_path / "hsparse-0123456789ab"
    requirement = Requirement(*environment.packages)
    assert requirement.extras == {"server"}
    assert requirement.url == f"git+file://localhost/a%20folder/hsparse@{SHA}"


async def test_both_revisions_are_given_the_same_requests(tmp_path: Path) -> None:
    command = older_environment(tmp_path, SHA).python.with_name("hsparse")
    command.parent.mkdir(parents=True)
    command.symlink_to(Path(sys.executable).with_name("hsparse"))  # nothing older can be installed in a test
    report = Report()
    peers = frozenset({"hsparse", "older"})
    bench = Bench(tmp_path, tmp_path / "work", peers, 1, True, report, lambda text: None, against=SHA)
    await SparseTrial(bench, uniform(1_000, 1_000)).run()
    for name, unit, higher in (("write", "million points/s", True), ("read all", "s", False)):
        sides = report.samples[MeasuredMetric("uniform", name, unit, higher)]
        assert list(sides) == [OURS, OLDER]
    stored = report.ratio(MeasuredMetric("uniform", "stored", "bytes/point", higher=False), OLDER)
    assert stored is not None
    assert stored.median == 1
    assert {path.name for path in (tmp_path / "work" / "uniform").glob("*.log")} == {
        "hsparse.log",
        "older-hsparse.log",
    }
