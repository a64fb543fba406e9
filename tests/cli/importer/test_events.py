"""Events of NeXus, imported with their counts, which plain numpy counts too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.sparse as sp

import hsparse
from hsparse.cli.main import main
from hsparse.hdf5.importer import matrix_chunks
from tests.cli.importer.conftest import Import
from tests.cli.importer.event_files import BANKS, COLUMNS, DAMAGES, counted, write_run
from tests.cli.importer.test_command import Stopped, stop_after
from tests.cli.importer.test_sparse_frames import opened


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("events") / "run.nxs")


def assert_counts(file: hsparse.File, path: Path, bank: str, name: str = "counts") -> None:
    found, expected = file[f"{bank}/{name}"], counted(path, bank)
    assert isinstance(found, hsparse.SparseDataset)
    assert (found.shape, found.dtype) == (expected.shape, np.dtype("u4"))
    coords, values = found.read()
    rows, columns = coords.T.astype("i8")
    assert (sp.coo_matrix((values, (rows, columns)), expected.shape).tocsr() != expected).nnz == 0
    assert len(values) == expected.nnz


def assert_columns(file: hsparse.File, path: Path, bank: str, names: Any = COLUMNS) -> None:
    with h5py.File(path) as plain:
        for name in {*names} & {*plain[bank]}:
            assert np.array_equal(file[f"{bank}/{name}"][...], plain[f"{bank}/{name}"][()]), name


def test_counts_are_beside_the_columns(imported: Import, run: Path) -> None:
    with opened(imported(run, "--events")) as file:
        for bank in BANKS:
            assert {*file[bank]} == COLUMNS | {"counts"}
            assert_counts(file, run, bank)
            assert_columns(file, run, bank)
        assert {*file["entry/bank3_events"]} == COLUMNS
        assert {*file["entry/other"]} == {"event_id"}
        assert {*file["entry/instrument/bank1"]} == COLUMNS
        expected = counted(run, BANKS[0])
        pixels = file[BANKS[0]]["counts"][:, 1005:1010]
        assert np.array_equal(sp.csr_matrix(pixels).toarray(), expected[:, 1005:1010].toarray())


def test_without_the_flag_the_file_is_as_it_was(imported: Import, run: Path) -> None:
    with opened(imported(run)) as file:
        assert {*file[BANKS[0]]} == COLUMNS


def test_no_dataset_is_hidden(imported: Import, run: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.nxs"
    path.write_bytes(run.read_bytes())
    with h5py.File(path, "r+") as file:
        file[BANKS[0]]["counts"] = 5
        file[BANKS[0]]["counts_"] = h5py.SoftLink("/nowhere")
    with opened(imported(path, "--events")) as found:
        assert found[BANKS[0]]["counts"][()] == 5
        assert_counts(found, path, BANKS[0], "counts__")


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks whose events are read in many pieces."""
    for name in ("ELEMENTS_AT_ONCE", "MAX_CUT_ELEMENTS", "MAX_ROWS_ELEMENTS"):
        monkeypatch.setattr(matrix_chunks, name, 700)
    monkeypatch.setattr(matrix_chunks, "MAX_WAITING_BYTES", 8000)


@pytest.fixture(scope="module")
def near(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("events") / "near.nxs", far=70)


@pytest.mark.parametrize("chunk", ["300x1300", "70x300", "10x50"])
def test_chunks_of_any_shape(imported: Import, near: Path, small_pieces: None, chunk: str) -> None:
    with opened(imported(near, "--events", "--chunk", chunk)) as file:
        for bank in BANKS:
            assert_counts(file, near, bank)


@pytest.mark.parametrize("count", [4, 9])
def test_an_import_that_was_stopped_goes_on(
    url: str, near: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    domain = f"/home/admin/stopped-events-{count}.h5"
    flags = [str(near), domain, "--endpoint", url, "--events", "--chunk", "50x64"]
    with monkeypatch.context() as patch:
        stop_after(count, patch)
        with pytest.raises(Stopped):
            main(["import", *flags, "--keep"])
    assert main(["import", *flags, "--resume"]) == 0
    with hsparse.open(f"{url}{domain}") as file:
        for bank in BANKS:
            assert_counts(file, near, bank)


@pytest.mark.parametrize("name", DAMAGES)
def test_of_damaged_events_the_columns_are_imported(
    imported: Import, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    damage, said = DAMAGES[name]
    path = tmp_path / "run.nxs"
    path.write_bytes(run.read_bytes())
    with h5py.File(path, "r+") as file:
        damage(file[BANKS[0]])
        left = {*file[BANKS[0]]}
    with opened(imported(path, "--events", status=3)) as found:
        message = capsys.readouterr().err
        assert f"/{BANKS[0]}/counts: " in message
        assert said in message
        assert {*found[BANKS[0]]} == left | {"counts"}
        assert said in found[BANKS[0]].get("counts", getlink=True).filename
        assert_columns(found, path, BANKS[0])
        assert_counts(found, path, BANKS[1])


def test_a_strict_import_refuses_damaged_events(
    imported: Import, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.nxs"
    path.write_bytes(run.read_bytes())
    with h5py.File(path, "r+") as file:
        DAMAGES["no index"][0](file[BANKS[0]])
    imported(path, "--events", "--strict", status=2)
    assert f"/{BANKS[0]}/counts: " in capsys.readouterr().err


def test_what_the_flag_is_not_for(
    imported: Import, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    imported(run, "--events", "--as-is", status=2)
    assert "leave --events out" in capsys.readouterr().err
    matrix = tmp_path / "m.mtx"
    matrix.write_text("%%MatrixMarket matrix coordinate integer general\n1 1 1\n1 1 1\n")
    imported(matrix, "--events", status=2)
    assert "--events is for NeXus files" in capsys.readouterr().err
