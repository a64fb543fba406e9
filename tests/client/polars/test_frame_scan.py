from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd
import polars
import pytest
from polars import col

import hsparse
from hsparse.client.connection import Connection
from hsparse.client.integrations.anndata.element_reader import ElementReader
from hsparse.client.integrations.polars import frame_scan
from tests.client.anndata import conftest as anndata_domains
from tests.client.anndata.anndata_examples import column_kinds

example_file, imported, imported_pbmc = (
    anndata_domains.example_file,
    anndata_domains.imported,
    anndata_domains.imported_pbmc,
)


@pytest.fixture
def cells(imported: Callable[[str], hsparse.File]) -> Iterator[hsparse.File]:
    with imported("column_kinds") as file:
        yield file


def values_of(column: pd.Series) -> list[object]:
    return [None if pd.isna(value) else value for value in column.tolist()]


@pytest.mark.parametrize("rows_at_once", [7, 1 << 20])
def test_columns_are_those_of_the_frame(
    cells: hsparse.File, monkeypatch: pytest.MonkeyPatch, rows_at_once: int
) -> None:
    wanted = column_kinds().obs
    monkeypatch.setattr(frame_scan, "BLOCK_VALUES", rows_at_once * (len(wanted.columns) + 1))
    lazy = hsparse.scan(cells, "obs")
    found = lazy.collect()
    assert found.columns == ["barcode", *wanted.columns]
    assert found.schema == lazy.collect_schema()
    assert found["barcode"].to_list() == wanted.index.tolist()
    for name in wanted.columns:
        assert [None if value != value else value for value in found[name].to_list()] == values_of(
            wanted[name]
        )


def test_types_are_those_of_the_columns(cells: hsparse.File) -> None:
    schema = hsparse.scan(cells["obs"]).collect_schema()
    assert schema["stage"] == polars.Enum(["early", "mid", "late"])
    assert schema["cell type"] == polars.Categorical
    assert schema["cluster"] == polars.Int64
    assert (schema["age"], schema["smoker"], schema["small"]) == (polars.Int32, polars.Boolean, polars.UInt8)
    assert (schema["score"], schema["barcode"]) == (polars.Float32, polars.String)


def test_only_what_is_asked_for_is_read(cells: hsparse.File, monkeypatch: pytest.MonkeyPatch) -> None:
    lazy, wanted = hsparse.scan(cells, "/obs"), column_kinds().obs
    read: list[tuple[str, tuple[int, ...]]] = []
    fetch = ElementReader.fetch

    def noting(reader: ElementReader) -> None:
        read.extend((path, one.shape) for path, one in reader._reads.items())
        fetch(reader)

    monkeypatch.setattr(ElementReader, "fetch", noting)
    found = lazy.filter(col("n_genes") > 500).select("barcode").collect()
    assert found["barcode"].to_list() == wanted.index[wanted.n_genes > 500].tolist()
    assert {path for path, _ in read} == {"obs/n_genes", "obs/barcode"}
    read.clear()
    assert lazy.head(5).select("small").collect()["small"].to_list() == wanted["small"][:5].tolist()
    assert read == [("obs/small", (5,))]


def test_a_frame_without_columns_has_its_index(imported: Callable[[str], hsparse.File]) -> None:
    with imported("plain") as file:
        found = hsparse.scan(file, "var").collect()
        assert found.columns == ["index"]
        assert found["index"].to_list() == [f"gene{number}" for number in range(23)]
        assert hsparse.scan(file, "var").select(polars.len()).collect().item() == 23


def test_frames_of_compounds(imported_pbmc: str, connection: Connection) -> None:
    """A file that AnnData wrote before version 0.7, and a table of no AnnData."""
    with hsparse.open(imported_pbmc) as file:
        assert isinstance(file, hsparse.File)
        wanted = file.query().obs
        found = hsparse.scan(file, "obs").collect()
        assert found["bulk_labels"].to_list() == wanted["bulk_labels"].tolist()
        assert found["bulk_labels"].dtype == polars.Categorical
        assert found["index"].to_list() == wanted.index.tolist()
        assert np.array_equal(found["percent_mito"].to_numpy(), wanted["percent_mito"].to_numpy())
    file = hsparse.open(f"{connection.url}{connection.domain}")
    assert isinstance(file, hsparse.File)
    file["hits"] = np.array([(1, 2.5), (3, 4.5)], [("frame", "i4"), ("energy", "f8")])
    assert hsparse.scan(file, "hits").filter(col("energy") > 3).collect().rows() == [(3, 4.5)]
