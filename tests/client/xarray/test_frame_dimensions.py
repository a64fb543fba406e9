"""Domains of AnnData's files as xarray has them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
import xarray

import hsparse
from tests.client.anndata import anndata_examples as examples
from tests.client.anndata import conftest as anndata_domains

example_file, imported = anndata_domains.example_file, anndata_domains.imported
Imported = Callable[[str], hsparse.File]


def test_columns_of_a_frame_share_its_dimension(imported: Imported) -> None:
    wanted = examples.column_kinds().obs
    with imported("column_kinds") as file, xarray.open_dataset(file, engine="hsparse", group="obs") as found:
        assert dict(found.sizes) == {"obs": len(wanted)}
        assert list(found) == list(wanted.columns)
        assert found.indexes["obs"].tolist() == wanted.index.tolist()
        for name in wanted.columns:
            values = [None if pd.isna(value) else value for value in found[name].values.tolist()]
            assert values == [None if pd.isna(value) else value for value in wanted[name].tolist()]
        assert found["stage"].sel(obs="cell5").item() == wanted["stage"]["cell5"]
        assert found["n_genes"].groupby(found["cell type"]).mean().to_series().to_dict() == (
            wanted["n_genes"].groupby(wanted["cell type"].astype(str)).mean().to_dict()
        )


def test_arrays_have_the_dimensions_of_frames(imported: Imported) -> None:
    data = examples.dimensions()
    with imported("dimensions") as file, xarray.open_datatree(file, engine="hsparse") as tree:
        assert tree["X"].dims == ("obs", "var")
        assert tree["obsm/X_pca"].dims == ("obs", "X_pca_dim_1")
        assert tree["obsm/table/y"].dims == ("obs",)
        assert tree["obsm/table/y"].values.tolist() == data.obsm["table"]["y"].tolist()
        pairs = list(tree["obsp"].dataset.values())
        assert {array.dims for array in pairs} == {("obs", "obs_2")}
        assert pairs[0].indexes["obs_2"].tolist() == data.obs_names.tolist()
    with imported("dimensions") as file, xarray.open_dataset(file, engine="hsparse") as found:
        row = found["X"].sel(obs="cell7", var=["gene3", "gene4"]).load().data
        assert row.todense().tolist() == data["cell7", ["gene3", "gene4"]].X.toarray()[0].tolist()


def test_raw_has_columns_of_its_own(imported: Imported) -> None:
    data = examples.with_raw()
    with imported("with_raw") as file, xarray.open_datatree(file, engine="hsparse") as tree:
        assert tree["X"].sizes == {"obs": data.n_obs, "var": data.n_vars}
        assert tree["raw/X"].sizes == {"obs": data.n_obs, "raw_var": data.raw.n_vars}
        assert tree["raw/var/n"].dims == ("raw_var",)
        assert tree["raw"].dataset.indexes["raw_var"].tolist() == data.raw.var_names.tolist()


@pytest.mark.parametrize("name", ["plain", "empty", "without_x", "unstructured", "by_gene"])
def test_every_form_opens(imported: Imported, name: str) -> None:
    data = examples.EXAMPLES[name]()
    with imported(name) as file, xarray.open_datatree(file, engine="hsparse") as tree:
        assert tree["obs"].sizes["obs"] == data.n_obs
        assert tree["var"].dataset.indexes["var"].tolist() == data.var_names.tolist()
        if isinstance(tree.get("X"), xarray.DataArray):
            assert tree["X"].sizes == {"obs": data.n_obs, "var": data.n_vars}


def test_what_is_no_frame_keeps_its_dimensions(imported: Imported, url: str) -> None:
    """Arrays with names of AnnData's parts, in a domain that has none, or of other lengths."""
    with anndata_domains.open_file(f"{url}/no-frames.h5", "w") as file:
        file["X"] = np.zeros((3, 2))
        file["obs"] = np.zeros(3)
        with xarray.open_dataset(file, engine="hsparse") as found:
            assert found["X"].dims == ("X_dim_0", "X_dim_1")
            assert found["obs"].dims == ("obs_dim_0",)
        del file["obs"], file["X"]
        file["X"] = np.zeros((3, 2))
        file["obs"], file["var"] = pd.DataFrame({"n": [1, 2]}), pd.DataFrame({"n": [1, 2]})
        with xarray.open_dataset(file, engine="hsparse") as found:
            assert found["X"].dims == ("X_dim_0", "var")
