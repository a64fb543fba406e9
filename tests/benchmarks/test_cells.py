"""The trials that take seconds: cells, files, appends, and two revisions side by side."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pytest
from packaging.requirements import Requirement

from benchmarks import first_value
from benchmarks.aims import aims
from benchmarks.bench import Bench
from benchmarks.failure import Failed
from benchmarks.first_value import OPENED, bare, fill, sample
from benchmarks.peers.cells import turn
from benchmarks.peers.hsparse import commit, older_environment
from benchmarks.report import OLDER, OURS, MeasuredMetric, Report
from benchmarks.trials import cells
from benchmarks.trials.append import MANNERS, ON_S3, AppendTrial
from benchmarks.trials.cells import WAYS, CellsTrial
from benchmarks.trials.check import WrongAnswer
from benchmarks.trials.files import FilesTrial, copy_synced
from benchmarks.trials.sparse import SparseTrial
from benchmarks.workloads.cells import CHOSEN_TYPE, DENSITY, CellsCase, Truth, make
from benchmarks.workloads.files import FileCase, contiguous, files
from benchmarks.workloads.lcls_points import lcls_points
from benchmarks.workloads.uniform import uniform
from tests.client.conftest import NUMBERS
from tests.support.endurance import spread

CASE = CellsCase(2_000, 400, batch=256, whole_genes=5)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Truth]:
    folder = tmp_path_factory.mktemp("cells")
    return folder, make(CASE, folder / CASE.name)


def test_the_file_is_as_dense_as_said_and_the_truth_is_its_own(made: tuple[Path, Truth]) -> None:
    folder, truth = made
    data = anndata.read_h5ad(folder / CASE.name / "cells.h5ad")
    assert data.shape == (CASE.cells, CASE.genes)
    assert data.X.nnz == truth.elements == pytest.approx(DENSITY * CASE.cells * CASE.genes, rel=0.1)
    assert data.X.has_sorted_indices
    assert data.X.data.min() >= 1
    chosen = data[(data.obs.cell_type == CHOSEN_TYPE) & (data.obs.n_genes > truth.above)]
    assert (chosen.n_obs, chosen.X.nnz) == (truth.chosen, truth.chosen_elements)
    assert data[:, truth.genes].X.sum() == truth.gene_total
    assert data.var_names[0] == "GENE00001"
    assert np.array_equal(np.load(folder / CASE.name / "n_genes.npy"), data.obs.n_genes)


def test_a_seed_makes_one_matrix_and_it_is_made_once(made: tuple[Path, Truth], tmp_path: Path) -> None:
    folder, truth = made
    assert make(CASE, tmp_path) == truth
    (folder / CASE.name / "cells.h5ad").touch()
    before = (folder / CASE.name / "cells.h5ad").stat().st_mtime_ns
    assert make(CASE, folder / CASE.name) == truth
    assert (folder / CASE.name / "cells.h5ad").stat().st_mtime_ns == before


def test_the_quality_of_a_shuffle_is_one_for_random_rows_and_less_for_blocks() -> None:
    rows = np.random.default_rng(1).permutation(10_000)
    at_random = [rows[:500], rows[500:1000]]
    in_order = [np.arange(500), np.arange(500, 1000)]
    in_blocks = [np.concatenate([np.arange(start, start + 50) for start in range(0, 10_000, 1000)])]
    assert turn.shuffle_quality(at_random, 10_000) == pytest.approx(1, abs=0.01)
    assert turn.shuffle_quality(in_order, 10_000) == pytest.approx(np.log2(5) / np.log2(100), abs=0.02)
    assert 0.4 < turn.shuffle_quality(in_blocks, 10_000) < 0.6


@pytest.mark.endurance
async def test_every_way_of_hsparse_gives_every_figure(
    made: tuple[Path, Truth], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = made
    ways = spread(WAYS, short=2)  # each is a process that imports anndata, and a server
    monkeypatch.setattr(cells, "WAYS", ways)
    bench = Bench(folder, folder / "work", frozenset({"hsparse"}), 1, True, Report(), lambda text: None)
    bench.work.mkdir()
    await CellsTrial(bench, CASE).run()
    reads = (
        "random batches of 256 rows",
        "entropy of a batch",
        "memory of the batches",
        "5 whole genes",
        "everything into a CSR",
        "1 % of the cells by a predicate",
    )
    made_once = ("import", "stored", "import, for training", "stored, for training")
    expected = {*made_once, *(f"{what}, {way}" for what in reads for way in ways)}
    assert {metric.name for metric in bench.report.samples} == expected
    assert all(set(sides) == {OURS} for sides in bench.report.samples.values())
    for metric in bench.report.samples.keys() - {
        metric for metric in bench.report.samples if metric.unit in ("MiB", "of random")
    }:
        assert bool(aims(metric)) == (metric.name not in made_once)


def answers(truth: Truth) -> dict[str, Any]:
    def one(shape: list[int], elements: int, total: float) -> dict[str, Any]:
        return {"shape": shape, "elements": elements, "total": total, "seconds": 1.0}

    return {
        "batches": {"right": True, "cells": CASE.cells, "distinct": CASE.cells},
        "genes": one([CASE.cells, 5], truth.gene_elements, truth.gene_total),
        "chosen": one([truth.chosen, CASE.genes], truth.chosen_elements, truth.chosen_total),
        "everything": one([CASE.cells, CASE.genes], truth.elements, truth.total),
    }


@pytest.mark.parametrize(
    ("read", "key", "wrong"),
    [
        ("batches", "right", False),
        ("batches", "distinct", CASE.cells - 1),
        ("genes", "shape", [CASE.cells, 4]),
        ("chosen", "elements", 0),
        ("everything", "total", 1.5),
    ],
)
def test_a_wrong_answer_is_no_figure(made: tuple[Path, Truth], read: str, key: str, wrong: object) -> None:
    folder, truth = made
    bench = Bench(folder, folder, frozenset(), 1, True, Report(), lambda text: None)
    trial, found = CellsTrial(bench, CASE), answers(truth)
    trial.check("some", found, truth)
    found[read] = found[read] | {key: wrong}
    with pytest.raises(WrongAnswer, match="some returned"):
        trial.check("some", found, truth)


def test_a_library_without_a_way_gives_batches_alone(
    made: tuple[Path, Truth], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = made

    class Batches:
        genes = None

        def __init__(self, path: str) -> None:
            self._data = anndata.read_h5ad(path)

        def batches(self, size: int, seed: int) -> Any:
            yield np.arange(size), self._data[:size].X

    monkeypatch.setitem(turn.READERS, "some", (turn.__name__.rpartition(".")[2], "Batches"))
    monkeypatch.setattr(turn, "Batches", Batches, raising=False)
    path = str(folder / CASE.name / "cells.h5ad")
    n_genes = str(folder / CASE.name / "n_genes.npy")
    job = {
        "reader": "some",
        "path": path,
        "files": [path],
        "size": 256,
        "seed": 1,
        "seconds": 1,
        "n_genes": n_genes,
    }
    found = json.loads(json.dumps(turn.turn(job)))
    assert found.keys() == {"batches"}
    assert found["batches"]["right"]
    assert found["batches"]["cells"] == 256
    assert found["batches"]["memory"] > 2**20


def test_first_reads_of_genes_and_of_chosen_cells_are_not_timed(
    made: tuple[Path, Truth], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, truth = made
    read: list[str] = []

    class Reads:
        def __init__(self, path: str) -> None:
            self._matrix = anndata.read_h5ad(path).X

        def batches(self, size: int, seed: int) -> Any:
            yield np.arange(size), self._matrix[:size]

        def genes(self, genes: list[int]) -> Any:
            read.append("genes")
            return self._matrix[:, genes]

        def chosen(self, cell_type: str, above: int) -> Any:
            read.append("chosen")
            return self._matrix

        def everything(self) -> Any:
            return self._matrix

    def timed(call: Any) -> None:
        read.append("timed")
        call()

    monkeypatch.setitem(turn.READERS, "some", (turn.__name__.rpartition(".")[2], "Reads"))
    monkeypatch.setattr(turn, "Reads", Reads, raising=False)
    monkeypatch.setattr(turn, "timed", timed)
    path = str(folder / CASE.name / "cells.h5ad")
    n_genes = str(folder / CASE.name / "n_genes.npy")
    choice = {"genes": truth.genes, "cell_type": CHOSEN_TYPE, "above": truth.above}
    job = {
        "reader": "some",
        "path": path,
        "files": [],
        "size": 256,
        "seed": 1,
        "seconds": 1,
        "n_genes": n_genes,
    }
    turn.turn(job | choice)
    assert read == ["genes", "timed", "genes", "chosen", "timed", "chosen", "timed"]


async def test_every_manner_has_a_rate_and_the_puts_to_s3_are_counted(tmp_path: Path) -> None:
    report, case = Report(), lcls_points(16)
    bench = Bench(tmp_path, tmp_path / "work", frozenset({"hsparse"}), 1, True, report, lambda text: None)
    await AppendTrial(bench, case).run()
    found = {metric.name: sides[OURS] for metric, sides in report.samples.items()}
    for manner in (*MANNERS, *ON_S3):
        assert found[manner.name][0] > 0
    for manner in ON_S3:
        assert 0 < found[f"{manner.name}, puts"][0] < 50 * 16


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


def test_each_side_reads_the_value(embedded_url: str, tmp_path: Path) -> None:
    domain = f"/first-{next(NUMBERS)}.h5"
    places = (f"{embedded_url}{domain}", domain, embedded_url, "admin", "any")
    first_value.client.open(places[0], "x", user="admin", password="any")
    fill(places[0])
    samples = {side: sample(side, places, tmp_path) for side in OPENED} | {"bare": bare(tmp_path)}
    for side, found in samples.items():
        assert all(value > 0 for value in found.values())
        assert len(found) == (2 if side == "bare" else 6)
    ours = samples[OURS]
    parts = [ours[f"{what}, wall"] for what in ("import", "first value after the import")]
    assert sum(parts) < ours["the process, wall"]
