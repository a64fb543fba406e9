"""Elements of an AnnData that are added and replaced in place: by its parts, and by paths."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
from anndata.tests.helpers import assert_equal

import hsparse
from hsparse.client.errors import AlreadyExists, InvalidValue, WrongType
from hsparse.client.integrations.anndata.element_encoder import named_arrays
from tests.client.access_ways import is_stored, open_file
from tests.client.anndata.anndata_examples import COLUMNS, EXAMPLES, ROWS, matrix, names
from tests.client.anndata.conftest import assert_same, before_each, download
from tests.client.anndata.test_cell_appender import first

COLUMNS_OF_OBS: dict[str, Any] = {
    "numbers": np.arange(ROWS) * 0.5,
    "texts": names("x", ROWS),
    "truth": np.arange(ROWS) % 2 == 0,
    "categories": pd.Categorical(np.where(np.arange(ROWS) % 3, "a", "b")),
    "nullable": pd.array([None if n % 3 else n for n in range(ROWS)], dtype="Int32"),
    "a series": pd.Series(np.arange(ROWS), index=names("cell", ROWS))[::-1],
}


@pytest.mark.parametrize("name", ["leiden", "n_genes", "cell type"])
@pytest.mark.parametrize("kind", COLUMNS_OF_OBS)
def test_a_column_is_added_or_replaced_in_its_place(
    new_file: hsparse.File, name: str, kind: str, tmp_path: Path
) -> None:
    data, value = first(), COLUMNS_OF_OBS[kind]
    new_file.write_anndata(data)
    old_ids = {r["id"] for path, r in new_file.records().items() if path.startswith(f"obs/{name}")}
    new_file.obs[name] = value
    data.obs[name] = value
    for found in (new_file.to_anndata(), download(new_file, tmp_path / "domain.h5ad")):
        assert_equal(found.obs, data.obs)
        assert found.obs.columns.tolist() == data.obs.columns.tolist()
    pd.testing.assert_series_equal(new_file.obs[name], data.obs[name])
    assert list(new_file.obs) == data.obs.columns.tolist()
    assert not any(is_stored(new_file, id) for id in old_ids)
    del new_file.obs[name]
    assert name not in new_file.obs


PARTS: dict[str, list[tuple[str, Callable[[], Any]]]] = {
    "layers": [("dense", lambda: matrix(50)), ("new", lambda: np.ones((ROWS, COLUMNS)))],
    "obsm": [
        ("X_pca", lambda: np.ones((ROWS, 2))),
        ("X_umap", lambda: matrix(51, (ROWS, 3), "csc")),
        ("table", lambda: pd.DataFrame({"x": np.arange(ROWS)}, index=first().obs_names)),
    ],
    "varm": [("PCs", lambda: np.ones((COLUMNS, 2))), ("new", lambda: np.ones((COLUMNS, 2, 3)))],
    "var": [("n", lambda: np.ones(COLUMNS)), ("new", lambda: names("x", COLUMNS))],
}


@pytest.mark.parametrize(("part", "name", "make"), [(part, *one) for part in PARTS for one in PARTS[part]])
def test_an_element_of_a_part_is_added_or_replaced(
    url: str,
    new_file: hsparse.File,
    part: str,
    name: str,
    make: Callable[[], Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until the last request others see the old one."""
    data = first()
    new_file.write_anndata(data)
    old = new_file.to_anndata()
    getattr(data, part)[name] = make()
    reader, busy = open_file(url + new_file.filename, "r"), []

    def look(method: str, target: str) -> None:
        if not busy:
            busy.append(True)
            found = reader.to_anndata()
            assert_same(found, data if name in getattr(found, part) and not is_old(found) else old)
            busy.clear()

    def is_old(found: anndata.AnnData) -> bool:
        with suppress(AssertionError):
            assert_same(found, old)
            return True
        return False

    with before_each(look, monkeypatch):
        getattr(new_file, part)[name] = make()
    for found in (new_file.to_anndata(), download(new_file, tmp_path / "domain.h5ad")):
        found.strings_to_categoricals()
        data.strings_to_categoricals(found.obs)
        assert_equal(*(values_of(one, part, name) for one in (found, data)))
    assert_equal(*(values_of(one, part, name) for one in (new_file, data)))
    assert len(getattr(new_file, part)) == len(named_arrays(getattr(data, part)))
    reader.close()


def values_of(data: Any, part: str, name: str) -> Any:
    found = getattr(data, part)[name]
    return found.to_numpy() if isinstance(found, pd.Series) else found


WRONG: dict[str, tuple[str, str, Any, type[Exception], str]] = {
    "a column too short": ("obs", "leiden", [1, 2], InvalidValue, f"/obs has {ROWS} rows, not"),
    "a value alone": ("obs", "leiden", "a", InvalidValue, f"/obs has {ROWS} rows, not"),
    "dates": ("obs", "n_genes", pd.date_range("2020", periods=ROWS), WrongType, "obs/n_genes"),
    "objects": ("obs", "n_genes", [print] * ROWS, WrongType, "obs/n_genes contains .*, which is not text"),
    "the index": ("obs", "barcode", np.arange(ROWS), InvalidValue, "barcode is the index of /obs"),
    "a slash": ("obs", "a/b", np.arange(ROWS), InvalidValue, "'a/b' cannot be the name"),
    "labels of others": (
        "obs", "leiden", pd.Series(np.arange(ROWS), index=names("x", ROWS)), InvalidValue, "labels of the Series",
    ),
    "a layer of another shape": (
        "layers", "dense", np.ones((ROWS, 3)), InvalidValue, r"layers/dense has the shape \[60, 3\], but obs and var",
    ),
    "rows that are missing": ("obsm", "X_pca", np.ones((3, 2)), InvalidValue, "obsm/X_pca has the shape"),
    "a frame of others": (
        "obsm", "t", pd.DataFrame({"x": np.arange(ROWS)}), InvalidValue, "obsm/t has another index than obs",
    ),
    "an array of objects": ("obsm", "X_pca", np.full((ROWS, 2), print), WrongType, "obsm/X_pca contains"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_fit_a_part_is_named_and_changes_nothing(new_file: hsparse.File, case: str) -> None:
    part, name, value, error, words = WRONG[case]
    new_file.write_anndata(first())
    before = new_file.records()
    with pytest.raises(error, match=words):
        getattr(new_file, part)[name] = value
    assert new_file.records() == before


def test_parts_of_groups_and_of_what_is_no_anndata(new_file: hsparse.File, imported_pbmc: str) -> None:
    with pytest.raises(InvalidValue, match="has no AnnData"):
        new_file.obs["x"] = [1]
    new_file.write_anndata(first(), "mod/rna")
    group: Any = new_file["mod/rna"]
    del group["layers"]
    group.layers["counts"] = matrix(3)
    assert list(named_arrays(new_file.to_anndata("mod/rna").layers)) == ["counts"]
    with pytest.raises(KeyError, match=r"layers of .*/mod/rna has no 'none'; it has \['counts'\]"):
        group.layers["none"]
    with open_file(imported_pbmc) as old, pytest.raises(InvalidValue, match=r"before 0\.7"):
        old.obs["x"] = [1]


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda f: f.obs[:], r"obs is indexed by a name: obs\['a'\]; f.query\(\).obs returns a copy"),
        (lambda f: f.obs[["n_genes"]], "is indexed by a name"),
        (lambda f: f.obs.head(), r"obs of a file has no attribute head; f.query\(\).obs returns a copy"),
        (lambda f: f.var.index, r"f.query\(\).var returns a copy"),
        (lambda f: f.shape, r"see f\['X'\].shape"),
        (lambda f: f.obs_names, r"see f.query\(\).obs_names"),
    ],
)
def test_the_way_to_a_whole_frame_is_told(new_file: hsparse.File, ask: Any, words: str) -> None:
    with pytest.raises((InvalidValue, AttributeError), match=words):
        ask(new_file)


def assign(column: Any, how: str, value: Any) -> None:
    """Set the first element of a column, as pandas has it."""
    label = column.index[0]
    match how:
        case "iloc":
            column.iloc[0] = value
        case "iloc slice":
            column.iloc[:1] = value
        case "loc":
            column.loc[label] = value
        case "mask":
            column.loc[column == value] = column.iloc[0]
        case "at":
            column.at[label] = value
        case "iat":
            column.iat[0] = value
        case _:
            column[label] = value


@pytest.mark.parametrize("kind", COLUMNS_OF_OBS)
def test_elements_of_a_column_are_not_assigned(new_file: hsparse.File, kind: str) -> None:
    """That would change a copy, and look as if it were the file."""
    data = first()
    data.obs["c"] = COLUMNS_OF_OBS[kind]
    new_file.write_anndata(data)
    column = new_file.obs["c"]
    value = column.iloc[1]
    for how in ("iloc", "iloc slice", "loc", "mask", "at", "iat", "item"):
        with pytest.raises(ValueError, match="read-only"):
            assign(column, how, value)
        assign(column.copy(), how, value)
        assign(new_file.query().obs["c"].copy(), how, value)
    pd.testing.assert_series_equal(column, data.obs["c"])
    changed = column.copy()
    changed.iloc[0] = value
    new_file.obs["c"] = changed
    pd.testing.assert_series_equal(new_file.obs["c"], changed)
    obs = new_file.query().obs
    obs.loc[obs.index[0], "c"] = column.iloc[0]
    pd.testing.assert_series_equal(obs["c"], column)


def test_elements_of_arrays_and_frames_of_parts_are_not_assigned(new_file: hsparse.File) -> None:
    data = first()
    frame = pd.DataFrame({"a": np.arange(ROWS), "b": names("x", ROWS)}, index=data.obs_names)
    data.obsm["array"], data.obsm["frame"] = np.ones((ROWS, 2)), frame
    new_file.write_anndata(data)
    with pytest.raises(ValueError, match="read-only"):
        new_file.obsm["array"][0, 0] = 5
    found = new_file.obsm["frame"]
    for column in frame:
        with pytest.raises(ValueError, match="read-only"):
            found.iloc[0, found.columns.get_loc(column)] = found[column].iloc[1]
    pd.testing.assert_frame_equal(found, frame)


def test_functions_of_numpy_reduce_on_the_server(new_file: hsparse.File) -> None:
    new_file.write_anndata(anndata.AnnData(matrix(0)))
    X = new_file["X"]
    whole = X.to_numpy()
    for function in (np.sum, np.mean, np.max, np.min, np.var):
        np.testing.assert_allclose(function(X), function(whole), rtol=1e-5)
        np.testing.assert_allclose(function(X, axis=0), function(whole, axis=0), rtol=1e-5)
    with pytest.raises(InvalidValue, match="sum of a dataset does not support the argument dtype"):
        np.sum(X, dtype="f8")


NEW_COLUMNS = COLUMNS_OF_OBS | {"a series": pd.Series(np.arange(ROWS))}


@pytest.fixture
def file(new_file: hsparse.File) -> hsparse.File:
    data = EXAMPLES["column_kinds"]()
    data.obsm["table"] = EXAMPLES["dimensions"]().obsm["table"]
    new_file.write_anndata(data)
    return new_file


def both(file: hsparse.File, tmp_path: Path) -> list[anndata.AnnData]:
    return [file.to_anndata(), download(file, tmp_path / "domain.h5ad")]


@pytest.mark.parametrize("kind", NEW_COLUMNS)
@pytest.mark.parametrize("path", ["obs/new", "obsm/table/new", "in the group"])
def test_a_new_column_is_one(file: hsparse.File, kind: str, path: str, tmp_path: Path) -> None:
    file.query().n_obs  # noqa: B018 - what is in the file is known from now on
    if path == "in the group":
        group: Any = file["obs"]
        group["new"] = NEW_COLUMNS[kind]
    else:
        file[path] = NEW_COLUMNS[kind]
    for found in both(file, tmp_path):
        frame = found.obsm["table"] if "table" in path else found.obs
        assert frame.columns[-1] == "new"
        wanted = pd.Series(np.asarray(NEW_COLUMNS[kind]) if kind == "a series" else NEW_COLUMNS[kind])
        pd.testing.assert_series_equal(frame["new"].reset_index(drop=True), wanted, check_names=False)
    if "table" not in path and kind == "numbers":
        assert file.query("new > 20").n_obs == ROWS - 41


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
        assert (found.uns["d"]["a"], found.uns["d"]["b"]["d"]) == (1, "text")
        assert_equal(found.uns["d"]["e"], obs.iloc[:2])
        assert list(found.uns["categories"]) == ["x", "y", "x"]
    with pytest.raises(InvalidValue, match=f"has {ROWS} rows, but its replacement has 3"):
        file["obs"] = obs.iloc[:3]
    with pytest.raises(AlreadyExists):
        file["uns/d"] = {}
    file["elsewhere/table"] = obs
    file["elsewhere/table/more"] = np.arange(ROWS)
    assert "more" in file["elsewhere/table"]  # type: ignore[operator]
