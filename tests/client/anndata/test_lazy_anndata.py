"""Lazy AnnDatas: what they have in memory, and what is read of them when."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import anndata
import dask
import dask.array
import numpy as np
import pytest
import scipy.sparse as sp

import hsparse
from tests.client.anndata.anndata_examples import EXAMPLES, ROWS
from tests.client.anndata.conftest import assert_same

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
        found.raw, wanted.raw = None, None
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


def test_only_the_blocks_that_are_computed_are_read(
    new_file: hsparse.File, requests: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hsparse.client.anndata.lazy_anndata.BLOCK_ELEMENTS", 300)
    data = EXAMPLES["plain"]()
    data.layers["by gene"] = EXAMPLES["layers"]().layers["by gene"]
    new_file.write_anndata(data, chunks=(8, 8))
    requests.clear()
    lazy = new_file.to_anndata(lazy=True)
    assert requests == ["GET /", "POST /datasets/values"]
    assert lazy.X.chunks[0] == (8,) * 7 + (4,)
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
