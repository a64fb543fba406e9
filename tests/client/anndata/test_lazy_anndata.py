"""Lazy AnnDatas: what they have in memory, and what is read of them when."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata
import dask
import dask.array
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from anndata.tests.helpers import assert_equal

import hsparse
from hsparse.client.opening import open_connection
from tests.client.access_ways import Access, open_file
from tests.client.anndata.anndata_examples import COLUMNS, EXAMPLES, ROWS, matrix
from tests.client.anndata.conftest import PBMC, assert_same, import_file

PARTS = ("layers", "obsm", "varm", "obsp", "varp")


@pytest.mark.parametrize("name", EXAMPLES)
def test_in_memory_it_is_what_anndata_reads(
    name: str, imported: Callable[[str], hsparse.File], example_file: Callable[[str], Path]
) -> None:
    lazy = imported(name).to_anndata(lazy=True)
    found = lazy.to_memory()
    wanted = anndata.read_h5ad(example_file(name))
    if wanted.raw is not None:
        assert isinstance(lazy.raw.X, dask.array.Array)
        raw = lazy.raw.to_adata().to_memory()
        np.testing.assert_array_equal(raw.X.toarray(), wanted.raw.X.toarray())
    assert_same(found, wanted)


def test_arrays_are_dask_as_those_of_read_lazy(
    imported: Callable[[str], hsparse.File], example_file: Callable[[str], Path]
) -> None:
    for name in ("layers", "dimensions"):
        lazy = imported(name).to_anndata(lazy=True)
        theirs = anndata.experimental.read_lazy(example_file(name))
        for part in PARTS:
            for key, wanted in getattr(theirs, part).items():
                found = getattr(lazy, part)[key]
                if isinstance(wanted, dask.array.Array):
                    assert isinstance(found, dask.array.Array), key
                    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
                    assert type(found._meta) is type(wanted._meta), key
        assert isinstance(lazy.X, dask.array.Array)
        assert isinstance(lazy.X._meta, sp.csr_matrix)


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name != "empty"])
def test_obs_var_and_raw_are_those_of_read_lazy(
    name: str, imported: Callable[[str], hsparse.File], example_file: Callable[[str], Path]
) -> None:
    """Of frames without rows `read_lazy` loses the categories."""
    check_frames(imported(name).to_anndata(lazy=True), anndata.experimental.read_lazy(example_file(name)))


def check_frames(found: Any, theirs: Any) -> None:
    """See that frames are those of a lazy AnnData, read, and raw the same."""
    for part in ("obs", "var"):
        check_frame(getattr(found, part), getattr(theirs, part))
    assert (found.raw is None) == (theirs.raw is None)
    if theirs.raw is not None:
        assert found.raw.shape == theirs.raw.shape
        assert type(found.raw.X._meta) is type(theirs.raw.X._meta)
        np.testing.assert_array_equal(found.raw.X.compute().toarray(), theirs.raw.X.compute().toarray())
        check_frame(found.raw.var, theirs.raw.var)


def check_frame(found: pd.DataFrame, theirs: Any) -> None:
    wanted = theirs.to_memory()
    # Of a frame without columns theirs has numbers as names.
    pd.testing.assert_frame_equal(found, wanted, check_column_type="equiv" if len(wanted.columns) else False)


@pytest.mark.parametrize("name", ["column_kinds", "layers", "dimensions", "with_raw", "by_gene"])
def test_views_and_concatenations_are_those_of_anndata(
    name: str, imported: Callable[[str], hsparse.File], example_file: Callable[[str], Path]
) -> None:
    """What AnnData asserts of its own lazy ones."""
    lazy, wanted = imported(name).to_anndata(lazy=True), anndata.read_h5ad(example_file(name))
    rows, columns = lazy.obs_names[::-3], lazy.var_names[1::2]
    assert_equal(lazy[rows].to_memory(), wanted[rows].copy())
    assert_equal(lazy[:, columns].to_memory(), wanted[:, columns].copy())
    assert_equal(lazy[rows][:, columns][2:9].to_memory(), wanted[rows][:, columns][2:9].copy())
    if name == "column_kinds":
        chosen = lazy.obs["cell type"] == "T cell"
        assert_equal(lazy[chosen].to_memory(), wanted[wanted.obs["cell type"] == "T cell"].copy())
    joined = [
        anndata.concat([one, one[:3]], join="outer", merge="same", index_unique="-") for one in (lazy, wanted)
    ]
    assert isinstance(joined[0].X, dask.array.Array)
    assert_equal(joined[0].to_memory(), joined[1])


@pytest.mark.filterwarnings("ignore")
def test_a_file_of_before_0_7_is_in_memory(imported_pbmc: str) -> None:
    """`read_lazy` does not read such files."""
    with open_file(imported_pbmc) as file:
        assert_same(file.to_anndata(lazy=True), anndata.read_h5ad(PBMC))
    with pytest.raises(TypeError):
        anndata.experimental.read_lazy(PBMC)


@pytest.mark.filterwarnings("ignore")
def test_pbmc_in_today_s_encoding(url: str, tmp_path: Path) -> None:
    path = tmp_path / "pbmc.h5ad"
    anndata.read_h5ad(PBMC).write_h5ad(path)
    wanted = anndata.read_h5ad(path)
    with open_file(url + import_file(url, path)) as file:
        lazy = file.to_anndata(lazy=True)
        check_frames(lazy, anndata.experimental.read_lazy(path))
        assert_same(lazy[:100].to_memory(), wanted[:100].copy())
        assert_same(lazy.to_memory(), wanted)


def test_uns_and_frames_of_obsm_are_in_memory(
    imported: Callable[[str], hsparse.File], example_file: Callable[[str], Path]
) -> None:
    """There `read_lazy` has dask arrays and frames of xarray."""
    lazy, theirs = imported("unstructured").to_anndata(lazy=True), example_file("unstructured")
    assert isinstance(anndata.experimental.read_lazy(theirs).uns["large"], dask.array.Array)
    assert isinstance(lazy.uns["large"], np.ndarray)
    assert isinstance(lazy.uns["table"], pd.DataFrame)
    assert isinstance(imported("dimensions").to_anndata(lazy=True).obsm["table"], pd.DataFrame)


def test_only_the_blocks_that_are_computed_are_read(
    new_file: hsparse.File, requests: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hsparse.client.integrations.anndata.lazy_anndata.BLOCK_ELEMENTS", 300)
    data = EXAMPLES["plain"]()
    data.layers["by gene"] = EXAMPLES["layers"]().layers["by gene"]
    new_file.write_anndata(data, chunks=(8, 8))
    requests.clear()
    lazy = new_file.to_anndata(lazy=True)
    assert (requests, lazy.X.chunks[0]) == (["GET /", "POST /datasets/values"], (8,) * 7 + (4,))
    assert lazy.layers["by gene"].chunks == ((ROWS,), (8, 8, 7))
    requests.clear()
    with dask.config.set(scheduler="synchronous"):
        part = lazy[10:14].to_memory()
        assert requests == ["POST /datasets/values"] * 4
        whole = lazy.X.compute()
    np.testing.assert_array_equal(part.X.toarray(), data.X[10:14].toarray())
    np.testing.assert_array_equal(whole.toarray(), data.X.toarray())


def test_it_can_be_pickled_and_has_the_same_name_again(imported: Callable[[str], hsparse.File]) -> None:
    file = imported("plain")
    first, second = (file.to_anndata(lazy=True).X for _ in range(2))
    assert first.name == second.name
    copy = pickle.loads(pickle.dumps(first))
    np.testing.assert_array_equal(copy.compute().toarray(), first.compute().toarray())


@pytest.fixture
def three_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a matrix of `ROWS` rows three are read at a time, each in the way of a large one."""
    monkeypatch.setattr("hsparse.client.integrations.anndata.lazy_anndata.BLOCK_ELEMENTS", 20)
    monkeypatch.setattr("hsparse.client.sources.value_batch.LARGE_BYTES", 1)


def write_directly(access: Access, data: anndata.AnnData, **options: Any) -> hsparse.File:
    """Write an AnnData, and return the domain as it is read in the way of `access`."""
    access.connection.direct = access.direct
    file = open_connection(access.connection)
    assert isinstance(file, hsparse.File)
    file.write_anndata(data, **options)
    return file


@pytest.mark.parametrize("arrays", [False, True])
def test_every_block_is_what_its_array_says(access: Access, three_blocks: None, arrays: bool) -> None:
    data = EXAMPLES["layers"]()
    for dtype in ("f8", "i8", "u1", "?"):
        data.layers[dtype] = matrix(9, dtype=dtype)
        data.layers[f"{dtype} by gene"] = matrix(9, kind="csc", dtype=dtype)
        data.layers[f"dense {dtype}"] = matrix(9).toarray().astype(dtype)
    data.layers["big endian"] = matrix(9).toarray().astype(">i4")
    with anndata.settings.override(use_sparse_array_on_read=arrays):
        lazy = write_directly(access, data, chunks=(20, COLUMNS)).to_anndata(lazy=True)
        for name, array in {"X": lazy.X, **lazy.layers}.items():
            wanted = data.X if name == "X" else data.layers[name]
            for block in array.blocks.ravel():
                found = block.compute()
                assert (type(found), found.dtype) == (type(array._meta), array.dtype), name
                assert array.dtype == array._meta.dtype, name
            kind = (
                "ndarray"
                if isinstance(wanted, np.ndarray)
                else f"{wanted.format}_{'array' if arrays else 'matrix'}"
            )
            assert type(array._meta).__name__ == kind, name
            found, whole = array.compute(), wanted if kind == "ndarray" else wanted.toarray()
            np.testing.assert_array_equal(found if kind == "ndarray" else found.toarray(), whole)
        assert lazy.X.numblocks == (3, 1)
        part = lazy[::7, 3:9].to_memory()
        np.testing.assert_array_equal(part.X.toarray(), data.X[::7, 3:9].toarray())
        np.testing.assert_array_equal(
            np.log1p(lazy.X)[:10].compute().toarray(), np.log1p(data.X[:10].toarray())
        )


def test_scanpy_works_on_blocks_as_it_does_in_memory(tmp_path: Path) -> None:
    """In a process of its own: scanpy needs numba's compiler, which tests switch off before they import anything."""
    tests = Path(__file__).with_name("scanpy_on_blocks.py")
    # With a directory of its own, pytest deletes none of earlier runs when it ends, which takes minutes.
    own = ["-p", "no:cacheprovider", "--basetemp", str(tmp_path / "own")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *own, str(tests)],
        cwd=Path(__file__).parents[3],
        env={**os.environ, "NUMBA_DISABLE_JIT": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
