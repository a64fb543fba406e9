"""`file[path] = value` of what AnnData's files have a form for: read back by hsparse and by AnnData."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
from anndata.tests.helpers import assert_equal

import hsparse
from hsparse.client.errors import AlreadyExists, InvalidValue
from tests.client.anndata.anndata_examples import EXAMPLES, ROWS, matrix, names
from tests.client.anndata.test_element_writer import download

COLUMNS: dict[str, Any] = {
    "numbers": np.arange(ROWS) * 0.5,
    "a list of texts": names("x", ROWS),
    "truth": np.arange(ROWS) % 2 == 0,
    "categories": pd.Categorical(np.where(np.arange(ROWS) % 3, "a", "b")),
    "nullable": pd.array([None if n % 3 else n for n in range(ROWS)], dtype="Int32"),
    "a series": pd.Series(np.arange(ROWS)),
    "large": np.arange(ROWS, dtype="f8").astype("f8"),
}


@pytest.fixture
def file(new_file: hsparse.File) -> hsparse.File:
    data = EXAMPLES["column_kinds"]()
    data.obsm["table"] = EXAMPLES["dimensions"]().obsm["table"]
    new_file.write_anndata(data)
    return new_file


def both(file: hsparse.File, tmp_path: Path) -> list[anndata.AnnData]:
    return [file.to_anndata(), download(file, tmp_path / "domain.h5ad")]


@pytest.mark.parametrize("kind", COLUMNS)
@pytest.mark.parametrize("path", ["obs/new", "obsm/table/new", "in the group"])
def test_a_new_column_is_one(file: hsparse.File, kind: str, path: str, tmp_path: Path) -> None:
    file.query().n_obs  # noqa: B018 - what is in the file is known from now on
    if path == "in the group":
        group: Any = file["obs"]
        group["new"] = COLUMNS[kind]
    else:
        file[path] = COLUMNS[kind]
    for found in both(file, tmp_path):
        frame = found.obsm["table"] if "table" in path else found.obs
        assert frame.columns[-1] == "new"
        wanted = pd.Series(np.asarray(COLUMNS[kind]) if kind == "a series" else COLUMNS[kind])
        pd.testing.assert_series_equal(frame["new"].reset_index(drop=True), wanted, check_names=False)
    if "table" not in path and kind == "numbers":
        assert file.query("new > 20").n_obs == ROWS - 41


def test_a_series_is_arranged_by_its_labels(file: hsparse.File, tmp_path: Path) -> None:
    labels = names("cell", ROWS)
    file["obs/new"] = pd.Series(np.arange(ROWS), index=labels)[::-1]
    assert file.to_anndata().obs["new"].tolist() == list(range(ROWS))
    with pytest.raises(InvalidValue, match="labels of the Series"):
        file["obs/other"] = pd.Series(np.arange(ROWS), index=names("row", ROWS))


@pytest.mark.parametrize(
    "add",
    [
        lambda file: file.create_dataset("obs/new", data=np.arange(ROWS)),
        lambda file: file.create_dataset("obs/new", (ROWS,), "i8"),
        lambda file: file.__setitem__("obs/new", file["obs/n_genes"]),
        lambda file: file.copy("obs/n_genes", "obs/new"),
        lambda file: (file.create_dataset("x", data=np.arange(ROWS)), file.move("x", "obs/new")),
    ],
)
@pytest.mark.filterwarnings("ignore:Element '/obs/new' was written without encoding")
def test_whatever_makes_a_column_names_it(
    file: hsparse.File, add: Callable[[Any], Any], tmp_path: Path
) -> None:
    add(file)
    for found in both(file, tmp_path):
        assert found.obs.columns[-1] == "new"


def test_a_column_that_is_deleted_or_moved_is_none(file: hsparse.File, tmp_path: Path) -> None:
    del file["obs/score"]
    file.move("obs/age", "obs/years")
    group: Any = file["obs"]
    del group["donor"]
    for found in both(file, tmp_path):
        assert not {"score", "age", "donor"} & set(found.obs.columns)
        assert found.obs.columns[-1] == "years"
    with pytest.raises(InvalidValue, match="is the index"):
        del file["obs/barcode"]


@pytest.mark.parametrize("value", [[1, 2], np.zeros((ROWS, 2)), 7, np.arange(ROWS + 1)])
def test_what_is_no_column_is_refused(file: hsparse.File, value: Any) -> None:
    before = set(file.records())
    with pytest.raises(InvalidValue, match=f"has {ROWS} rows"):
        file["obs/new"] = value
    with pytest.raises(InvalidValue, match=f"has {ROWS} rows"):
        file.create_dataset("obs/new", data=value)
    with pytest.raises(AlreadyExists):
        file["obs/n_genes"] = np.arange(ROWS)
    assert set(file.records()) == before


def test_frames_matrices_and_dicts(file: hsparse.File, tmp_path: Path) -> None:
    obs = EXAMPLES["plain"]().obs.assign(kind=pd.Categorical(["a", "b"] * (ROWS // 2)), number=1.5)
    file["obs"] = obs
    file["layers/new"] = matrix(3)
    file["uns/d"] = {"a": 1, "b": {"c": [1, 2], "d": "text"}, "e": obs.iloc[:2]}
    file["uns/categories"] = pd.Categorical(["x", "y", "x"])
    for found in both(file, tmp_path):
        assert_equal(found.obs, obs)
        np.testing.assert_array_equal(found.layers["new"].toarray(), matrix(3).toarray())
        assert found.uns["d"]["a"] == 1
        assert found.uns["d"]["b"]["d"] == "text"
        assert_equal(found.uns["d"]["e"], obs.iloc[:2])
        assert list(found.uns["categories"]) == ["x", "y", "x"]
    with pytest.raises(InvalidValue, match=f"has {ROWS} rows, not 3"):
        file["obs"] = obs.iloc[:3]
    with pytest.raises(AlreadyExists):
        file["uns/d"] = {}
    file["elsewhere/table"] = obs
    file["elsewhere/table/more"] = np.arange(ROWS)
    assert "more" in file["elsewhere/table"]  # type: ignore[operator]
