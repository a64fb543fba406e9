"""AnnDatas written to domains: read back, and exported for AnnData."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata
import dask.array
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import hsparse
from hsparse.client.connection import Connection
from hsparse.client.errors import InvalidValue, WrongType
from hsparse.errors import StoreFailed
from tests.client.anndata.anndata_examples import EXAMPLES, matrix, plain
from tests.client.anndata.conftest import assert_same


def download(file: hsparse.File, target: Path) -> anndata.AnnData:
    urllib.request.urlretrieve(f"{file.connection.url}/files{file.filename}", target)
    return anndata.read_h5ad(target)


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_is_written_is_read_back_and_read_by_anndata(
    name: str, new_file: hsparse.File, example_file: Callable[[str], Path], tmp_path: Path
) -> None:
    data = EXAMPLES[name]()
    new_file.write_anndata(data)
    wanted = anndata.read_h5ad(example_file(name))
    for found in (new_file.to_anndata(), download(new_file, tmp_path / "domain.h5ad")):
        data.strings_to_categoricals(found.obs)  # as AnnData does when it writes a file
        found.strings_to_categoricals()
        assert_same(found, wanted)


def test_nullable_texts(new_file: hsparse.File) -> None:
    data = plain()
    data.obs["note"] = pd.array([None if n % 3 else f"ü{n}" for n in range(data.n_obs)], dtype="string")
    new_file.write_anndata(data)
    found = new_file.to_anndata().obs["note"]
    assert found.isna().tolist() == data.obs["note"].isna().tolist()
    assert found.dropna().tolist() == data.obs["note"].dropna().tolist()


def test_a_few_requests_write_it_all(new_file: hsparse.File, requests: list[str]) -> None:
    new_file.write_anndata(EXAMPLES["column_kinds"]())
    assert requests.count("POST /datasets") == 2
    assert requests.count("POST /groups") == 2
    assert len(requests) < 10


def test_dask_and_backed_matrices(new_file: hsparse.File, tmp_path: Path) -> None:
    data = plain()
    data.layers["dense"] = data.X.toarray()
    path = tmp_path / "backed.h5ad"
    data.write_h5ad(path)
    lazy = plain()
    whole = lazy.X
    lazy.X = dask.array.from_array(whole.toarray(), chunks=(17, -1)).map_blocks(
        sp.csr_matrix, meta=sp.csr_matrix((0, 0), dtype="f4")
    )
    lazy.layers["dense"] = dask.array.from_array(whole.toarray(), chunks=(20, 10))
    new_file.write_anndata(lazy, "lazy")
    backed = anndata.read_h5ad(path, backed="r")
    new_file.write_anndata(backed, "backed")
    backed.file.close()
    assert_same(new_file.to_anndata("lazy"), data)
    assert_same(new_file.to_anndata("backed"), data)


def test_bands_parts_chunks_and_filters(new_file: hsparse.File, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many requests: bands of dense arrays, and parts of a band that has too many elements."""
    monkeypatch.setattr("hsparse.client.sparse.matrix_writer.LARGEST_BATCH", 30)
    monkeypatch.setattr("hsparse.client.anndata.element_writer.BAND_BYTES", 1000)
    monkeypatch.setattr("hsparse.client.anndata.element_writer.SMALL", 0)
    data = EXAMPLES["layers"]()
    data.layers["by gene"] = matrix(4, kind="csc")
    new_file.write_anndata(data, chunks=(16, 8), filters=["gzip"])
    assert_same(new_file.to_anndata(), data)
    assert new_file["X"].chunks == (16, 8)  # type: ignore[union-attr]
    assert new_file["layers/dense"].record["creationProperties"]["filters"]  # type: ignore[union-attr]


def test_progress_counts_bytes(new_file: hsparse.File) -> None:
    seen: list[tuple[int, int]] = []
    data = plain()
    new_file.write_anndata(data, progress=lambda done, total: seen.append((done, total)))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][1] >= data.X.data.nbytes


def test_existing_elements_stay(new_file: hsparse.File) -> None:
    new_file.write_anndata(plain())
    other = EXAMPLES["column_kinds"]()
    with pytest.raises(FileExistsError, match="has such elements already"):
        new_file.write_anndata(other)
    assert_same(new_file.to_anndata(), plain())


def test_nothing_is_seen_of_a_write_that_fails(
    new_file: hsparse.File, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its objects are deleted again, also if some of these requests fail."""
    send = Connection.json
    deleted = []

    def json(self: Connection, method: str, path: str, *args: Any, **params: Any) -> Any:
        if method == "PUT" and path.endswith("/value"):
            raise StoreFailed("The disk is full.")
        if method == "DELETE":
            deleted.append(path)
        return send(self, method, path, *args, **params)

    monkeypatch.setattr(Connection, "json", json)
    with pytest.raises(StoreFailed):
        new_file.write_anndata(plain())
    assert list(new_file) == []
    assert deleted


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda data: data.uns.update(x=object()), WrongType, "uns/x: .* no form for a object"),
        (
            lambda data: data.uns.update(x=np.array(["a", None], object)),
            WrongType,
            "uns/x has None among texts",
        ),
        (lambda data: data.uns.update({"a/b": 1}), InvalidValue, "'a/b' cannot be the name"),
        (lambda data: data.uns.update({"a": {3: 1}}), WrongType, "uns/a: the name 3 is no text"),
        (lambda data: data.obs.insert(0, "_index", 1), InvalidValue, "cannot be called _index"),
        (lambda data: data.obs.insert(0, "when", pd.Timestamp("2020")), WrongType, "obs/when"),
    ],
)
def test_what_has_no_form_is_named(
    new_file: hsparse.File, change: Callable[[Any], None], error: type[Exception], words: str
) -> None:
    data = plain()
    change(data)
    with pytest.raises(error, match=words):
        new_file.write_anndata(data)
    assert list(new_file) == []


def test_an_embedded_store(tmp_path: Path) -> None:
    """The same without a server: in a directory that this process reads and writes."""
    data = EXAMPLES["column_kinds"]()
    file = hsparse.open("/cells.h5ad", "w", root=tmp_path / "store")
    assert isinstance(file, hsparse.File)
    with file:
        file.write_anndata(data)
        assert_same(file.to_anndata(), data)
        found = file.query(obs="n_genes > 500", var=["gene3"]).to_anndata()
        assert found.X.toarray().tolist() == data[data.obs["n_genes"] > 500, ["gene3"]].X.toarray().tolist()
