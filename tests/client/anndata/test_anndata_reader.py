"""AnnDatas of imported files, beside what AnnData reads of the files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import hsparse
from hsparse.client.errors import InvalidValue, MissingKey, NotImplementedHere
from hsparse.client.integrations.anndata.compressed_matrix import compressed_matrix
from hsparse.client.sources.elements import Elements
from hsparse.client.sparse.compressed_rows import CompressedRows
from tests.client.access_ways import open_file
from tests.client.anndata.anndata_examples import EXAMPLES, column_kinds, plain
from tests.client.anndata.conftest import PBMC, assert_same, import_file


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_is_what_anndata_reads(
    name: str,
    imported: Callable[[str], hsparse.File],
    example_file: Callable[[str], Path],
    requests: list[str],
) -> None:
    file = imported(name)
    requests.clear()
    found = file.to_anndata()
    assert sorted(set(requests)) == ["GET /", "POST /datasets/values"][: len(requests)]
    assert len(requests) <= 2
    assert_same(found, anndata.read_h5ad(example_file(name)))


@pytest.mark.filterwarnings("ignore")
def test_a_file_of_before_0_7_is_read_as_anndata_does(imported_pbmc: str) -> None:
    with open_file(imported_pbmc) as file:
        assert_same(file.to_anndata(), anndata.read_h5ad(PBMC))


@pytest.mark.filterwarnings("ignore")
def test_categoricals_of_0_7_refer_to_their_categories(url: str, tmp_path: Path) -> None:
    """Such a frame has codes, and an attribute that refers to the categories."""
    data = plain()
    path = tmp_path / "old.h5ad"
    data.write_h5ad(path)
    with h5py.File(path, "r+") as file:
        obs = file["obs"]
        obs.attrs["encoding-version"] = "0.1.0"
        obs.attrs["column-order"] = ["kind", "stage"]
        known = obs.create_group("__categories")
        for name, ordered in (("kind", False), ("stage", True)):
            categories = known.create_dataset(
                name, data=[f"{name} a", f"{name} b"], dtype=h5py.string_dtype()
            )
            categories.attrs["ordered"] = ordered
            codes = obs.create_dataset(name, data=np.arange(data.n_obs, dtype="i1") % 3 - 1)
            codes.attrs["categories"] = categories.ref
    with open_file(url + import_file(url, path)) as file:
        found = file.to_anndata()
    assert_same(found, anndata.read_h5ad(path))
    assert found.obs["stage"].cat.ordered
    assert not found.obs["kind"].cat.ordered


def test_an_anndata_below_a_group(new_file: hsparse.File) -> None:
    """As in the files of MuData."""
    data = column_kinds()
    new_file.write_anndata(data, "mod/rna")
    new_file.write_anndata(plain(), "mod/atac")
    assert_same(new_file.to_anndata("mod/rna"), data)
    assert_same(new_file.to_anndata("/mod/atac"), plain())
    assert new_file.query(obs=[0, 5], path="/mod/rna").obs.index.tolist() == ["cell0", "cell5"]
    with pytest.raises(InvalidValue, match=r"no AnnData, which needs obs and var: it has only \['mod'\]"):
        new_file.to_anndata()
    with pytest.raises(InvalidValue, match="it is empty"):
        new_file.to_anndata("mod/none")


def test_an_encoding_that_is_not_known_is_named(new_file: hsparse.File) -> None:
    new_file.write_anndata(plain())
    new_file["uns"].create_group("odd", {"encoding-type": "hologram"})  # type: ignore[union-attr]
    with pytest.raises(NotImplementedHere, match=r"uns/odd of .* has the encoding 'hologram'"):
        new_file.to_anndata()


def test_a_frame_without_its_attributes_is_named(new_file: hsparse.File) -> None:
    new_file.write_anndata(plain())
    del new_file["obs"].attrs["_index"]
    with pytest.raises(MissingKey, match=r"obs of .* has no attribute _index"):
        new_file.to_anndata()


def test_arrays_are_scipys_if_anndata_is_set_so(
    imported: Callable[[str], hsparse.File], example_file: Callable[[str], Path]
) -> None:
    with anndata.settings.override(use_sparse_array_on_read=True):
        assert_same(imported("layers").to_anndata(), anndata.read_h5ad(example_file("layers")))


def test_texts_of_an_index_are_str(imported: Callable[[str], hsparse.File]) -> None:
    index = imported("plain").to_anndata().obs.index
    assert isinstance(index, pd.Index)
    assert all(type(label) is str for label in index)


STORED = np.array([[0, 2, 0, 1], [0, 0, 0, 0], [5, 0, 0, 7]], np.float32)
STORED_ROWS = sp.csr_array(STORED)


@pytest.mark.parametrize("arrays", [False, True])
@pytest.mark.parametrize("kind", ["csr", "csc"])
@pytest.mark.parametrize("form", ["elements", "big endian elements", "rows", "arrays"])
def test_each_form_is_the_matrix_as_anndata_has_it(form: str, kind: str, arrays: bool) -> None:
    own = STORED_ROWS.asformat(kind)
    parts: Any = {
        "elements": Elements(tuple(np.nonzero(STORED)), STORED[STORED != 0]),
        "big endian elements": Elements(tuple(np.nonzero(STORED)), STORED[STORED != 0].astype(">f4")),
        "rows": CompressedRows((3, 4), STORED_ROWS.indptr, STORED_ROWS.indices, STORED_ROWS.data),
        "arrays": (own.data, own.indices, own.indptr),
    }[form]
    with anndata.settings.override(use_sparse_array_on_read=arrays):
        found = compressed_matrix(parts, (3, 4), kind)
    assert type(found) is getattr(sp, f"{kind}_{'array' if arrays else 'matrix'}")
    assert found.has_sorted_indices
    assert found.dtype == np.dtype("=f4")
    np.testing.assert_array_equal(found.toarray(), STORED)
