"""scanpy's pipeline on lazy AnnDatas of three blocks, in each way of reading, beside memory.

It is run by test_lazy_anndata.py, in a process of its own.
"""

from __future__ import annotations

import anndata
import dask.array
import numpy as np
import pandas as pd
import pytest
import scanpy

from tests.client.access_ways import Access
from tests.client.anndata.anndata_examples import COLUMNS, ROWS, frame, matrix
from tests.client.anndata.test_lazy_anndata import three_blocks, write_directly

__all__ = ["three_blocks"]


@pytest.mark.filterwarnings("ignore")
def test_scanpy_works_on_blocks_as_it_does_in_memory(access: Access, three_blocks: None) -> None:
    data = anndata.AnnData(matrix(1), obs=frame("cell", ROWS), var=frame("gene", COLUMNS))
    lazy = write_directly(access, data, chunks=(20, COLUMNS)).to_anndata(lazy=True)
    assert lazy.X.numblocks == (3, 1)
    for one in (data, lazy):
        scanpy.pp.calculate_qc_metrics(one, percent_top=None, inplace=True)
        scanpy.pp.filter_cells(one, min_counts=90)
        scanpy.pp.normalize_total(one, target_sum=1e4)
        scanpy.pp.log1p(one)
        scanpy.pp.highly_variable_genes(one, n_top_genes=10, n_bins=3)
        scanpy.pp.pca(one, n_comps=3)
    assert isinstance(lazy.X, dask.array.Array)
    found = lazy.to_memory()
    assert 0 < found.n_obs == data.n_obs < ROWS
    np.testing.assert_allclose(found.X.toarray(), data.X.toarray(), rtol=1e-5)
    for part in ("obs", "var"):
        pd.testing.assert_frame_equal(getattr(found, part), getattr(data, part), check_dtype=False, rtol=1e-4)
    assert found.var["highly_variable"].sum() == 10
    pca = (np.abs(one.obsm["X_pca"]) for one in (found, data))  # of any sign
    np.testing.assert_allclose(*pca, rtol=1e-3, atol=1e-3)
