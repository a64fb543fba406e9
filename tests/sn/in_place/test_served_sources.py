"""Served files as sources of a concatenation: what is in the files, and after a change never what was in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pytest

import hsparse
from hsparse.cli.embedded_server import embedded_server
from hsparse.cli.main import main
from hsparse.config import load_settings
from hsparse.errors import HsparseError
from tests.client.anndata.test_cell_appender import GENES, OTHERS, cells
from tests.client.anndata.test_concatenation import assert_alike

HOW: dict[str, Any] = {"join": "outer", "label": "run", "index_unique": "-"}


def written(place: Path, kind: str, seed: int = 1) -> list[anndata.AnnData]:
    """Write the files of two AnnDatas, and return these."""
    datas = [cells("a", 30, GENES, seed, kind), cells("b", 20, OTHERS["some of both"], seed + 20, kind)]
    for name, data in zip("ab", datas, strict=True):
        data.write_h5ad(place / f"new-{name}.h5ad")
        (place / f"new-{name}.h5ad").replace(place / f"{name}.h5ad")
    return datas


@pytest.fixture
def place(tmp_path: Path) -> Path:
    found = tmp_path / "runs"
    found.mkdir()
    return found


@pytest.fixture
def url(place: Path, tmp_path: Path) -> Iterator[str]:
    settings = load_settings(root=tmp_path / "root", port=0, fsync=False, files=(str(place),))
    with embedded_server(settings) as url:
        yield url


def concatenated(url: str) -> hsparse.File:
    return hsparse.concat([f"{url}/runs/{name}.h5ad" for name in "ab"], f"{url}/home/admin/both.h5ad", **HOW)


@pytest.mark.parametrize("kind", ["csr", "csc", "dense"])
def test_it_is_what_anndata_concatenates(url: str, place: Path, tmp_path: Path, kind: str) -> None:
    wanted = anndata.concat(written(place, kind), **HOW)
    with concatenated(url) as file:
        assert file.records()["X"]["creationProperties"]["layout"]["class"] == "H5D_VIRTUAL"
        assert_alike(file.to_anndata(), wanted)
        assert_alike(file.to_anndata(lazy=True).to_memory(), wanted)
    out = tmp_path / "out.h5ad"
    assert main(["export", "/home/admin/both.h5ad", str(out), "--endpoint", url]) == 0
    assert_alike(anndata.read_h5ad(out), wanted)


@pytest.mark.parametrize("kind", ["csr", "csc", "dense"])
def test_a_file_that_changes_is_never_read_as_it_was(url: str, place: Path, kind: str) -> None:
    """Each read has the new values, or is an error that names the file."""
    before = anndata.concat(written(place, kind), **HOW)
    with concatenated(url) as file:
        assert_alike(file.to_anndata(), before)
        after = anndata.concat(written(place, kind, seed=50), **HOW)
        for path in ("X", "layers/counts", "layers/dense"):
            new = matrix(after, path)
            assert not np.array_equal(new, matrix(before, path), equal_nan=True)
            for rows in (slice(None), slice(7, 40, 3)):
                found = read(file, path, rows)
                assert found is None or np.array_equal(found, new[rows], equal_nan=True)
            with hsparse.open(f"{url}/home/admin/both.h5ad") as again:
                found = read(again, path, slice(None))
                assert found is not None
                np.testing.assert_array_equal(found, new)
        (place / "b.h5ad").unlink()
        with hsparse.open(f"{url}/home/admin/both.h5ad") as again:
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
