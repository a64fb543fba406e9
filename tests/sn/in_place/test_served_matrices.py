"""Events of NeXus, and coo matrices, as sparse datasets of served files; and matrices of files in concatenations."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anndata
import h5py
import numpy as np
import pytest
import scipy.sparse as sp

import hsparse
from hsparse.cli.main import main
from hsparse.errors import HsparseError
from hsparse.hdf5.in_place import indexed_chunks, served_file
from tests.cli.importer.test_detector_files import (
    BANKS,
    COLUMNS,
    DAMAGES,
    assert_columns,
    assert_counts,
    counted,
    write_run,
)
from tests.client.anndata.test_cell_appender import GENES, OTHERS, cells
from tests.client.anndata.test_concatenation import assert_alike
from tests.sn.in_place.conftest import listed, served

COO = sp.random(3000, 400, 0.05, format="coo", dtype="f4", random_state=0).tocsr().tocoo()


def write_coo(
    file: h5py.File, path: str, rows: Any, columns: Any, values: Any, shape: Any, chunk: int
) -> None:
    """Write a coo matrix as Binsparse has it."""
    group, options = file.create_group(path), {"chunks": (chunk,), "compression": "gzip"}
    types = {"indices_0": str(rows.dtype), "indices_1": str(columns.dtype), "values": str(values.dtype)}
    described = {"version": "0.1", "format": "COO", "shape": shape, "data_types": types}
    group.attrs["binsparse"] = json.dumps({"binsparse": described})
    for name, data in (("indices_0", rows), ("indices_1", columns), ("values", values)):
        group.create_dataset(name, data=data, **options)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("files") / "runs"
    place.mkdir()
    whole = write_run(place / "run.nxs")
    for number, (damage, _) in enumerate(DAMAGES.values()):
        path = place / f"damaged{number}.nxs"
        path.write_bytes(whole.read_bytes())
        with h5py.File(path, "r+") as file:
            damage(file[BANKS[0]])
    with h5py.File(place / "coo.h5", "w") as file:
        parts = COO.row, COO.col, COO.data
        for name, rows in (("i4", "i4"), ("u8", ">u8"), ("i2", "i2")):
            order = np.lexsort((np.random.default_rng(3).random(COO.nnz), COO.row))  # not by columns
            some = [one[order] for one in parts] if name == "u8" else parts
            write_coo(file, name, some[0].astype(rows), some[1].astype("u2"), some[2], COO.shape, 999)
        write_coo(file, "unordered", *(one[::-1] for one in parts), COO.shape, 999)
        few = np.array([3, 3, 250], "u1"), np.array([9, 1, 2], "u1"), np.array([1, 2, 3], "f8")
        write_coo(file, "few", *few, (10**12, 10**6), 2)
        write_coo(file, "beyond", few[0], few[1], few[2], (250, 10), 2)
        write_coo(file, "negative", few[0].astype("i2") - 5, few[1], few[2], (256, 10), 2)
        write_coo(file, "wide", few[0], few[1] + 10, few[2], (256, 15), 2)
        write_coo(file, "twice", few[0], few[1] * 0, few[2], (256, 15), 2)
    for path in place.iterdir():  # what is known of a file is kept once it has rested
        os.utime(path, (10, 10))
    return place


@pytest.fixture(scope="module")
def url(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("root"), place) as url:
        yield url


def test_counts_are_beside_the_columns(url: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexed_chunks, "ELEMENTS_AT_ONCE", 37)
    with hsparse.open(f"{url}/runs/run.nxs") as file:
        for bank in BANKS:
            assert {*file[bank]} == COLUMNS | {"counts"}
            assert_counts(file, place / "run.nxs", bank)
            assert_columns(file, place / "run.nxs", bank)
        assert {*file["entry/bank3_events"]} == COLUMNS
        expected, found = counted(place / "run.nxs", BANKS[0]), file[BANKS[0]]["counts"]
        assert (sp.csr_matrix(found[17:40]) != expected[17:40]).nnz == 0
        assert (sp.csr_matrix(found[:, 1005:1010]) != expected[:, 1005:1010]).nnz == 0
        assert np.array_equal(found.sum(axis=0), expected.sum(axis=0).A1)


@pytest.mark.parametrize("number", range(len(DAMAGES)))
def test_of_damaged_events_the_columns_are_served(url: str, place: Path, number: int) -> None:
    path, said = place / f"damaged{number}.nxs", list(DAMAGES.values())[number][1]
    with hsparse.open(f"{url}/runs/{path.name}") as file, h5py.File(path) as plain:
        assert {*file[BANKS[0]]} == {*plain[BANKS[0]], "counts"}
        link = file[BANKS[0]].get("counts", getlink=True)
        assert link.filename.startswith(f"left out: /{BANKS[0]}/counts: ")
        assert said in link.filename
        assert_columns(file, path, BANKS[0])
        assert_counts(file, path, BANKS[1])


@pytest.mark.parametrize("name", ["i4", "u8", "i2"])
def test_a_coo_matrix_in_the_order_of_rows_is_a_sparse_dataset(url: str, name: str) -> None:
    with hsparse.open(f"{url}/runs/coo.h5") as file:
        found, expected = file[name], COO.tocsr()
        assert isinstance(found, hsparse.SparseDataset)
        assert (sp.csr_matrix(found[...]) != expected).nnz == 0
        rows = [0, 1, 1444, 2999]
        assert (sp.csr_matrix(found[rows]) != expected[rows]).nnz == 0
        assert (sp.csr_matrix(found[100:200, [0, 399]]) != expected[100:200, [0, 399]]).nnz == 0
        assert found.chunks[0] < found.shape[0]


def test_a_coo_matrix_of_many_rows(url: str) -> None:
    with hsparse.open(f"{url}/runs/coo.h5") as file:
        coords, values = file["few"].read()
        assert coords.tolist() == [[3, 1], [3, 9], [250, 2]]
        assert values.tolist() == [2, 1, 3]


@pytest.mark.parametrize("name", ["unordered", "beyond", "negative"])
def test_another_coo_matrix_stays_a_group(url: str, name: str) -> None:
    with hsparse.open(f"{url}/runs/coo.h5") as file:
        assert {*file[name]} == {"indices_0", "indices_1", "values"}


@pytest.mark.parametrize(
    ("name", "said"), [("wide", "outside of the matrix's shape"), ("twice", "coordinates of another element")]
)
def test_elements_that_no_matrix_has_are_named(url: str, name: str, said: str) -> None:
    with hsparse.open(f"{url}/runs/coo.h5") as file, pytest.raises(hsparse.HsparseError, match=said):
        file[name].read()


def test_what_is_read_when_a_file_is_opened_is_bounded(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_file, "MOST_LOOKED", 5000)
    with served(tmp_path, place, files_cache=tmp_path / "c") as url:
        with hsparse.open(f"{url}/runs/run.nxs") as file:
            assert "checked when a file is opened" in file[BANKS[0]].get("counts", getlink=True).filename
            assert_counts(file, place / "run.nxs", BANKS[-1])
        with hsparse.open(f"{url}/runs/coo.h5") as file:
            assert {*file["i4"]} == {"indices_0", "indices_1", "values"}


def test_what_is_kept_of_a_file_is_enough(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hsparse.hdf5.in_place.kept_files.SETTLED_SECONDS", 0.0)  # the files may be new
    for name in ("first", "second"):
        with served(tmp_path / name, place, files_cache=tmp_path / "cache") as url:
            assert "run.nxs" in listed(url, "/runs/")
            with hsparse.open(f"{url}/runs/run.nxs") as file:
                assert_counts(file, place / "run.nxs", BANKS[2])
            with hsparse.open(f"{url}/runs/coo.h5") as file:
                assert (sp.csr_matrix(file["u8"][...]) != COO.tocsr()).nnz == 0
        monkeypatch.setattr(served_file, "FileRecords", None)  # the second one does not parse


def test_files_with_other_bytes_are_refused_or_read_as_h5py_does(tmp_path: Path) -> None:
    place = tmp_path / "runs"
    place.mkdir()
    whole, rng = write_run(tmp_path / "run.nxs").read_bytes(), np.random.default_rng(5)
    for seed in range(20):
        data = bytearray(whole)
        for at in rng.integers(0, len(data), 3):
            data[at] ^= 1 << int(rng.integers(8))
        (place / f"{seed}.nxs").write_bytes(data)
    compared = 0
    with served(tmp_path / "root", place) as url:
        for path in place.iterdir():
            for bank in BANKS:
                try:
                    with hsparse.open(f"{url}/runs/{path.name}") as file:
                        found = file[f"{bank}/counts"].read()
                except (hsparse.HsparseError, KeyError):
                    continue
                expected = counted(path, bank)
                assert found[1].sum() == expected.sum(), (path.name, bank)
                rows, columns = found[0].T.astype("i8")
                same = sp.coo_matrix((found[1], (rows, columns)), expected.shape).tocsr()
                assert (same != expected).nnz == 0, (path.name, bank)
                compared += 1
    assert compared > 20


HOW: dict[str, Any] = {"join": "outer", "label": "run", "index_unique": "-"}


def written(runs: Path, kind: str, seed: int = 1) -> list[anndata.AnnData]:
    """Write the files of two AnnDatas, and return these."""
    datas = [cells("a", 30, GENES, seed, kind), cells("b", 20, OTHERS["some of both"], seed + 20, kind)]
    for name, data in zip("ab", datas, strict=True):
        data.write_h5ad(runs / f"new-{name}.h5ad")
        (runs / f"new-{name}.h5ad").replace(runs / f"{name}.h5ad")
    return datas


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    found = tmp_path / "runs"
    found.mkdir()
    return found


@pytest.fixture
def runs_url(runs: Path, tmp_path: Path) -> Iterator[str]:
    with served(tmp_path / "root", runs) as runs_url:
        yield runs_url


def concatenated(runs_url: str) -> hsparse.File:
    return hsparse.concat(
        [f"{runs_url}/runs/{name}.h5ad" for name in "ab"], f"{runs_url}/home/admin/both.h5ad", **HOW
    )


@pytest.mark.parametrize("kind", ["csr", "csc", "dense"])
def test_it_is_what_anndata_concatenates(runs_url: str, runs: Path, tmp_path: Path, kind: str) -> None:
    wanted = anndata.concat(written(runs, kind), **HOW)
    with concatenated(runs_url) as file:
        assert file.records()["X"]["creationProperties"]["layout"]["class"] == "H5D_VIRTUAL"
        assert_alike(file.to_anndata(), wanted)
        assert_alike(file.to_anndata(lazy=True).to_memory(), wanted)
    out = tmp_path / "out.h5ad"
    assert main(["export", "/home/admin/both.h5ad", str(out), "--endpoint", runs_url]) == 0
    assert_alike(anndata.read_h5ad(out), wanted)


@pytest.mark.parametrize("kind", ["csr", "csc", "dense"])
def test_a_file_that_changes_is_never_read_as_it_was(runs_url: str, runs: Path, kind: str) -> None:
    """Each read has the new values, or is an error that names the file."""
    before = anndata.concat(written(runs, kind), **HOW)
    with concatenated(runs_url) as file:
        assert_alike(file.to_anndata(), before)
        after = anndata.concat(written(runs, kind, seed=50), **HOW)
        for path in ("X", "layers/counts", "layers/dense"):
            new = matrix(after, path)
            assert not np.array_equal(new, matrix(before, path), equal_nan=True)
            for rows in (slice(None), slice(7, 40, 3)):
                found = read(file, path, rows)
                assert found is None or np.array_equal(found, new[rows], equal_nan=True)
            with hsparse.open(f"{runs_url}/home/admin/both.h5ad") as again:
                found = read(again, path, slice(None))
                assert found is not None
                np.testing.assert_array_equal(found, new)
        (runs / "b.h5ad").unlink()
        with hsparse.open(f"{runs_url}/home/admin/both.h5ad") as again:
            assert read(again, "X", slice(30, None)) is None


def read(file: hsparse.File, path: str, rows: slice) -> np.ndarray | None:
    """Return rows of a matrix, None if that fails with the name of a source."""
    try:
        found = file[path][rows]
    except HsparseError as error:
        if not re.search(r"/[ab]\.h5ad", str(error)):
            raise
        return None
    return found if isinstance(found, np.ndarray) else found.toarray()


def matrix(data: anndata.AnnData, path: str) -> np.ndarray:
    found = data.X if path == "X" else data.layers[path.removeprefix("layers/")]
    return found if isinstance(found, np.ndarray) else found.toarray()
