"""Cells appended to AnnDatas of domains, beside `anndata.concat`; readers, failures and others meanwhile."""

from __future__ import annotations

import http.client
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from anndata.tests.helpers import assert_equal
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import hsparse
from hsparse.client.connection import Connection
from hsparse.client.errors import InvalidValue, QuotaExceeded, WrongType
from hsparse.client.integrations.anndata import cell_appender, grown_matrix
from hsparse.errors import Conflict, StoreFailed
from tests.client.access_ways import is_stored, open_file
from tests.client.anndata.anndata_examples import COLUMNS, EXAMPLES, ROWS, matrix, names
from tests.client.anndata.conftest import NUMBERS, assert_same, before_each, download, import_file

MORE = 25


@pytest.fixture(params=[10_000, 1], ids=["stored anew", "in place"])
def least_rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The number of rows from which on rows are appended in place."""
    monkeypatch.setattr(cell_appender, "LEAST_ROWS", request.param)
    return int(request.param)


def cells(prefix: str, count: int, genes: list[str], seed: int, kind: str) -> anndata.AnnData:
    """Cells with columns of every kind that `anndata.concat` joins, layers of each form, obsm and varm."""
    rng, shape = np.random.default_rng(seed), (count, len(genes))
    obs = pd.DataFrame(index=pd.Index(names(prefix, count), name="barcode"))
    obs["cell type"] = pd.Categorical(rng.choice(["B", "T", f"only {prefix}"], count))
    obs["stage"] = pd.Categorical(rng.choice(["early", "late"], count), ["early", "late"], ordered=True)
    obs["n_genes"] = rng.integers(0, 1000, count)
    obs["is_primary"] = rng.random(count) < 0.5
    obs["donor"] = rng.choice(["a", "ü"], count)
    obs["age"] = pd.array([None if n % 7 == 0 else n for n in range(count)], dtype="Int32")
    var = pd.DataFrame({"n": np.arange(len(genes)), "id": names("ENSG", len(genes))}, index=genes)
    values = matrix(seed, shape, "csc" if kind == "csc" else "csr")
    data = anndata.AnnData(values.toarray() if kind == "dense" else values, obs=obs, var=var)
    data.layers["counts"] = matrix(seed + 1, shape, dtype="i4")
    data.layers["by gene"] = matrix(seed + 2, shape, "csc")
    data.layers["dense"] = rng.random(shape)
    data.obsm["X_pca"] = rng.random((count, 4)).astype("f4")
    data.obsm["sparse"] = matrix(seed + 3, (count, 5))
    data.obsm["table"] = pd.DataFrame({"p": pd.Categorical(rng.choice([prefix, "q"], count))}, data.obs_names)
    data.varm["PCs"] = rng.random((len(genes), 3))
    data.uns["title"] = prefix
    return data


GENES = names("gene", COLUMNS)
OTHERS: dict[str, list[str]] = {
    "the same genes": GENES,
    "in another order": GENES[::-1],
    "some missing": GENES[5:],
    "some new": [*GENES, "new1", "new2"],
    "some of both": ["new1", *GENES[12:2:-1], "new2"],
}


def first(kind: str = "csr") -> anndata.AnnData:
    return cells("cell", ROWS, GENES, 1, kind)


def more(genes: list[str] = GENES, kind: str = "csr") -> anndata.AnnData:
    return cells("more", MORE, genes, 20, kind)


def concatenated(*parts: anndata.AnnData, join: Any, genes: pd.Index) -> anndata.AnnData:
    """Return what AnnData makes of cells, its genes in the order of the domain: it sorts them where they differ."""
    return anndata.concat(parts, join=join)[:, genes].copy()


def assert_like(found: anndata.AnnData, wanted: anndata.AnnData) -> None:
    """Compare what has cells. A domain keeps the form of its matrices; `concat` makes csr of them."""
    assert found.obs_names.tolist() == wanted.obs_names.tolist()
    assert_equal(found.obs.rename_axis(None), wanted.obs.rename_axis(None))
    assert_equal(dict(found.obsm), dict(wanted.obsm))
    assert set(found.layers) == set(wanted.layers)
    for one, other in [(found.X, wanted.X), *((found.layers[n], wanted.layers[n]) for n in wanted.layers)]:
        assert np.can_cast(one.dtype, other.dtype)
        assert sp.issparse(one) == sp.issparse(other)
        np.testing.assert_array_equal(*(getattr(m, "toarray", lambda same=m: same)() for m in (one, other)))


def both(file: hsparse.File, tmp_path: Path) -> list[anndata.AnnData]:
    """What is read of a domain, and of its file by AnnData."""
    found = [file.to_anndata(), download(file, tmp_path / "domain.h5ad")]
    for one in found:
        one.strings_to_categoricals()
    return found


@pytest.mark.parametrize("join", ["inner", "outer"])
@pytest.mark.parametrize("genes", OTHERS)
@pytest.mark.parametrize("kind", ["csr", "csc", "dense"])
def test_it_is_what_anndata_concatenates(
    new_file: hsparse.File, kind: str, genes: str, join: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grown_matrix, "BAND_ELEMENTS", 300)  # many bands, also one that has rows of both
    old, new = first(kind), more(OTHERS[genes], kind)
    new_file.write_anndata(old, chunks=(8, 8))
    hsparse.append_anndata(new_file, new, join=join)
    for found in both(new_file, tmp_path):
        wanted = concatenated(old, new, join=join, genes=found.var_names)
        wanted.strings_to_categoricals()
        assert_like(found, wanted)
        assert (found.obs.index.name, found.uns) == ("barcode", {"title": "cell"})
        names_there = set(GENES) & set(new.var_names) if join == "inner" else {*GENES, *new.var_names}
        assert set(found.var_names) == names_there
        of_old = [name for name in found.var_names if name in old.var_names]
        of_new = [name for name in found.var_names if name not in old.var_names]
        assert found.var_names.tolist() == [*of_old, *of_new]
        assert found.var.loc[of_old, "n"].tolist() == old.var.loc[of_old, "n"].tolist()
        assert found.var.loc[of_new, "id"].tolist() == new.var.loc[of_new, "id"].tolist()
        np.testing.assert_array_equal(found[:, of_old].varm["PCs"], old[:, of_old].varm["PCs"])
        np.testing.assert_array_equal(found[:, of_new].varm["PCs"], new[:, of_new].varm["PCs"])


@pytest.mark.parametrize("join", ["inner", "outer"])
@pytest.mark.parametrize("lacks", ["file", "data"])
def test_what_one_of_them_lacks(new_file: hsparse.File, join: Any, lacks: str, tmp_path: Path) -> None:
    """Columns, layers and obsm go with "inner"; with "outer" there is nothing where they lack."""
    old, new = first(), more()
    poor = old if lacks == "file" else new
    for name in ("cell type", "is_primary", "n_genes", "donor"):
        del poor.obs[name]
    del poor.layers["counts"], poor.layers["dense"], poor.obsm["X_pca"], poor.obsm["sparse"]
    new_file.write_anndata(old)
    hsparse.append_anndata(new_file, new, join=join)
    for found in both(new_file, tmp_path):
        wanted = concatenated(old, new, join=join, genes=found.var_names)
        wanted.strings_to_categoricals()
        assert_like(found, wanted)
        assert ("donor" in found.obs, "dense" in found.layers) == (join == "outer",) * 2


@pytest.mark.parametrize("stored", ["csr", "csc", "dense"])
@pytest.mark.parametrize("given", ["csr", "csc", "dense", "backed"])
def test_matrices_of_two_forms(new_file: hsparse.File, stored: str, given: str, tmp_path: Path) -> None:
    """That of the file remains, and its chunks and filters."""
    old, new = first(stored), more(OTHERS["some of both"], "csr" if given == "backed" else given)
    old.X, new.X = old.X.astype("i2"), new.X.astype("f4")
    wanted = anndata.concat([old, new], join="outer")
    if given == "backed":
        new.write_h5ad(tmp_path / "backed.h5ad")
        new = anndata.read_h5ad(tmp_path / "backed.h5ad", backed="r")
    new_file.write_anndata(old, chunks=(8, 8), filters=["gzip"])
    hsparse.append_anndata(new_file, new, join="outer")
    found = new_file.to_anndata()
    assert (found.X.format if stored != "dense" else type(found.X)) == (
        stored if stored != "dense" else np.ndarray
    )
    values = wanted[:, found.var_names].X
    np.testing.assert_array_equal(*(one.toarray() if sp.issparse(one) else one for one in (found.X, values)))
    if stored != "dense":
        assert new_file["X"].chunks == (8, 8)  # type: ignore[union-attr]
        assert len(new_file["X"].record["creationProperties"]["filters"]) == 1  # type: ignore[union-attr]


def test_raw_grows_too(new_file: hsparse.File, tmp_path: Path) -> None:
    old, new = first(), more(OTHERS["some of both"])
    for data in (old, new):
        data.raw = data.copy()
    old, new = old[:, 2:].copy(), new[:, 1:].copy()
    new_file.write_anndata(old)
    hsparse.append_anndata(new_file, new)
    for found in both(new_file, tmp_path):
        wanted = anndata.concat([old, new])
        np.testing.assert_array_equal(found.raw.X.toarray(), wanted.raw[:, found.raw.var_names].X.toarray())
        assert set(found.raw.var_names) == set(wanted.raw.var_names)
        assert found.raw.var["n"].tolist() == old.raw.var.loc[found.raw.var_names, "n"].tolist()


@pytest.mark.parametrize("old", ["empty", "without_x", "without_elements", "dense", "column_kinds"])
def test_examples_to_which_they_are_appended_again(new_file: hsparse.File, old: str, tmp_path: Path) -> None:
    data = EXAMPLES[old]()
    new = data.copy() if data.n_obs else EXAMPLES["without_elements"]()[:, :5].copy()
    if not data.n_obs:
        new.var_names = data.var_names
    new_file.write_anndata(data)
    wanted = [data]
    for turn in range(2):
        part = new.copy()
        part.obs_names = names(f"turn{turn}-", new.n_obs)
        wanted.append(part)
        hsparse.append_anndata(new_file, part)
    expected = anndata.concat(wanted)
    for found in (new_file.to_anndata(), download(new_file, tmp_path / "domain.h5ad")):
        assert found.obs_names.tolist() == expected.obs_names.tolist()
        if expected.X is not None:
            np.testing.assert_array_equal(
                *(one.X.toarray() if sp.issparse(one.X) else one.X for one in (found, expected))
            )


def test_an_anndata_below_a_group_and_an_imported_file(
    url: str, new_file: hsparse.File, tmp_path: Path
) -> None:
    new_file.write_anndata(first(), "mod/rna")
    hsparse.append_anndata(new_file, more(), "mod/rna")
    assert_like(new_file.to_anndata("mod/rna"), anndata.concat([first(), more()]))
    first().write_h5ad(tmp_path / "first.h5ad", compression="gzip")
    with open_file(url + import_file(url, tmp_path / "first.h5ad")) as file:
        hsparse.append_anndata(file, more())
        found, wanted = file.to_anndata(), anndata.concat([first(), more()])
        for one in (found, wanted):
            one.strings_to_categoricals()
        assert_like(found, wanted)


def changed(change: Callable[[anndata.AnnData], Any]) -> anndata.AnnData:
    data = more()
    change(data)
    return data


def set_name(data: anndata.AnnData, name: str) -> None:
    data.obs_names = [name, *data.obs_names[1:]]


REFUSED: dict[str, tuple[Callable[[anndata.AnnData], Any], type[Exception], str]] = {
    "a cell that is there": (lambda data: set_name(data, "cell7"), InvalidValue, "'cell7'.*rename the cells"),
    "a cell twice": (lambda data: set_name(data, "more3"), InvalidValue, "'more3'.*rename the cells"),
    "no X": (lambda data: setattr(data, "X", None), InvalidValue, "the file has an X"),
    "a gene twice": (
        lambda data: setattr(data, "var_names", ["gene3", *GENES[1:]]),
        InvalidValue,
        "var has 'gene3' twice.*var_names_make_unique",
    ),
    "other genes": (
        lambda data: setattr(data, "var_names", names("ENSG", COLUMNS)),
        InvalidValue,
        "no gene in common.*'gene0'.*'ENSG0'",
    ),
    "an array for a frame": (lambda data: data.obsm.update(table=np.zeros((MORE, 1))), InvalidValue, "obsm"),
    "a column of dates": (
        lambda data: data.obs.__setitem__("n_genes", pd.Timestamp("2020")),
        WrongType,
        "obs/n_genes",
    ),
    "texts in a layer": (
        lambda data: data.layers.update(dense=np.full(data.shape, "x", object)),
        WrongType,
        "layers/dense would have values of",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_named_and_changes_nothing(new_file: hsparse.File, case: str) -> None:
    change, error, words = REFUSED[case]
    new_file.write_anndata(first())
    before = new_file.records()
    with pytest.raises(error, match=words):
        hsparse.append_anndata(new_file, changed(change), unique_names=True)
    assert new_file.records() == before


def test_files_to_which_nothing_can_be_appended(new_file: hsparse.File, imported_pbmc: str) -> None:
    with pytest.raises(InvalidValue, match="has no AnnData"):
        hsparse.append_anndata(new_file, more())
    with open_file(imported_pbmc) as old, pytest.raises(InvalidValue, match=r"before 0\.7.*write_anndata"):
        hsparse.append_anndata(old, more())
    data = first()
    data.obsp["distances"] = matrix(2, (ROWS, ROWS))
    data.varp["correlation"] = np.zeros((COLUMNS, COLUMNS))
    data.raw = data.copy()
    new_file.write_anndata(data)
    for change, words in (
        (lambda: new_file.__delitem__("obsp/distances"), r"obsp/distances.*del f\['obsp/distances'\]"),
        (lambda: new_file.__delitem__("raw"), "has raw, but the AnnData to append has none"),
        (lambda: new_file.__delitem__("varp/correlation"), "varp/correlation does not fit the changed genes"),
    ):
        with pytest.raises(InvalidValue, match=words):
            hsparse.append_anndata(new_file, more(OTHERS["some missing"]))
        change()
    hsparse.append_anndata(new_file, more(OTHERS["some missing"]))
    assert new_file.to_anndata().n_obs == ROWS + MORE
    with pytest.raises(InvalidValue, match="'left'"):
        hsparse.append_anndata(new_file, more(), join="left")  # type: ignore[arg-type]
    with pytest.raises(WrongType, match="takes an AnnData, not a DataFrame"):
        hsparse.append_anndata(new_file, more().obs)  # type: ignore[arg-type]


# --- in place -----------------------------------------------------------------------------------------


@given(st.data())
@settings(max_examples=4, deadline=None, phases=[Phase.generate])
def test_cells_appended_in_place_are_what_anndata_concatenates(url: str, data: st.DataObject) -> None:
    """Datasets stay the same ones while only rows, and categories of columns, are new."""
    kind = data.draw(st.sampled_from(["csr", "csc", "dense"]))
    parts = [cells("cell", data.draw(st.integers(20, 40)), GENES, 1, kind)]
    turns = data.draw(st.lists(st.tuples(st.integers(0, 20), st.booleans()), min_size=1, max_size=2))
    join = data.draw(st.sampled_from(["inner", "outer"]))
    for turn, (count, is_reordered) in enumerate(turns):
        parts.append(cells(f"turn{turn}", count, GENES[::-1] if is_reordered else GENES, turn + 2, kind))
    for part in parts:
        part.raw = part.copy()
    with (
        pytest.MonkeyPatch.context() as patch,
        open_file(f"{url}/in-place-{next(NUMBERS)}.h5ad", "x") as file,
    ):
        patch.setattr(cell_appender, "LEAST_ROWS", 1)
        file.write_anndata(parts[0], chunks=data.draw(st.sampled_from([None, (8, 8)])))
        before = {path: record["id"] for path, record in file.records().items()}
        for part in parts[1:]:
            hsparse.append_anndata(file, part, join=join)
        found, after = file.to_anndata(), file.records()
    if all(part.n_obs for part in parts):
        after_ids = {path: after[path]["id"] for path in before}
        assert after_ids | {"obsp": ""} == before | {"obsp": ""}
    wanted = concatenated(*parts, join=join, genes=pd.Index(GENES))
    wanted.strings_to_categoricals()
    found.strings_to_categoricals()
    assert_like(found, wanted)
    raw = found.raw.X, wanted.raw[:, found.raw.var_names].X
    np.testing.assert_array_equal(*(one.toarray() if sp.issparse(one) else one for one in raw))


def test_an_append_costs_what_is_appended(
    url: str, requests: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests and bytes of an append are the same if ten times as many cells are stored."""
    monkeypatch.setattr(cell_appender, "LEAST_ROWS", 1)
    received: list[int] = []
    read = http.client.HTTPResponse.readinto

    def counted(self: Any, buffer: Any) -> int:
        received.append(count := read(self, buffer))
        return count

    monkeypatch.setattr(http.client.HTTPResponse, "readinto", counted)
    costs = []
    for count in (40, 400):
        with open_file(f"{url}/in-place-{next(NUMBERS)}.h5ad", "x") as file:
            file.write_anndata(few("cell", count), chunks=(8, 4))
            requests.clear(), received.clear()
            hsparse.append_anndata(file, few("more", 10))
            costs.append(([re.sub("[dg]-[0-9a-f-]+", "ID", one) for one in requests], sum(received)))
    assert costs[0][0] == costs[1][0]
    assert costs[1][1] <= costs[0][1] + 100


@pytest.mark.parametrize("least_rows", [1], indirect=True)
def test_what_a_client_that_died_has_left_is_not_seen(
    new_file: hsparse.File, least_rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each request that changes something an append dies: reads have the old cells, and more can be appended."""
    old, more_of_few = few("cell", 30), few("more", 20)
    send = Connection.json
    for number in range(100):
        path, sent = f"turn{number}", 0
        new_file.write_anndata(old, path)

        def json(self: Connection, method: str, *args: Any, **params: Any) -> Any:
            nonlocal sent
            sent += method != "GET"
            if sent > number:  # noqa: B023
                raise StoreFailed("The client is gone.")
            return send(self, method, *args, **params)

        with monkeypatch.context() as patch, suppress(StoreFailed):
            patch.setattr(Connection, "json", json)
            hsparse.append_anndata(new_file, more_of_few, path)
        if (found := new_file.to_anndata(path)).n_obs == 50:
            break
        np.testing.assert_array_equal(found.X.toarray(), old.X.toarray())
        assert found.obs["kind"].tolist() == old.obs["kind"].tolist()
        assert new_file.query("kind == 'cell'", path=path).n_obs == 30
        np.testing.assert_array_equal(
            new_file.to_anndata(path, lazy=True).obsm["X_pca"].compute(), old.obsm["X_pca"]
        )
        hsparse.append_anndata(new_file, few("other", 10), path)
        found = new_file.to_anndata(path)
        found.obs["kind"] = found.obs["kind"].cat.remove_unused_categories()  # one may be left
        assert_like(found, anndata.concat([old, few("other", 10)]))
    assert number > 5


def test_names_may_be_there_twice_unless_others_are_asked_for(
    new_file: hsparse.File, least_rows: int
) -> None:
    new_file.write_anndata(few("cell", 30))
    with pytest.raises(InvalidValue, match=r"'cell0'.*rename the cells"):
        hsparse.append_anndata(new_file, few("cell", 2), unique_names=True)
    hsparse.append_anndata(new_file, few("cell", 2))
    assert new_file["obs/_index"][:].tolist() == [*names("cell", 30), *names("cell", 2)]  # type: ignore[union-attr]


# --- others meanwhile ---------------------------------------------------------------------------------


def test_a_reader_sees_the_old_or_the_new_one(
    url: str, new_file: hsparse.File, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each request of an append all is read, and the shapes are those of one state."""
    old, new = first(), more(OTHERS["some new"])
    new_file.write_anndata(old)
    seen: list[tuple[int, int]] = []
    busy: list[bool] = []
    reader = open_file(url + new_file.filename, "r")

    def look(method: str, target: str) -> None:
        if busy:
            return
        busy.append(True)
        tree = reader.records()
        shapes = {tuple(tree[path]["shape"]["dims"]) for path in ("X", "layers/dense", "layers/by gene")}
        assert shapes == {(tree["obs/barcode"]["shape"]["dims"][0], tree["var/_index"]["shape"]["dims"][0])}
        seen.append(reader.to_anndata().shape)
        busy.clear()

    with before_each(look, monkeypatch):
        hsparse.append_anndata(new_file, new, join="outer")
    assert (seen, set(seen)) == (sorted(seen), {(ROWS, COLUMNS), (ROWS + MORE, COLUMNS + 2)})
    reader.close()


def test_a_read_begins_again_if_all_was_replaced_meanwhile(
    url: str, new_file: hsparse.File, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_file.write_anndata(first())
    waiting = [more()]

    def append(method: str, target: str) -> None:
        if waiting and "/datasets/values" in target:
            data = waiting.pop()
            with open_file(url + new_file.filename) as other:
                hsparse.append_anndata(other, data)

    with before_each(append, monkeypatch):
        assert new_file.to_anndata().n_obs == ROWS + MORE


def few(prefix: str, count: int) -> anndata.AnnData:
    """Cells of which little has to be stored."""
    data = anndata.AnnData(matrix(count, (count, 7)), pd.DataFrame(index=names(prefix, count)))
    data.obs["kind"], data.obsm["X_pca"] = pd.Categorical([prefix] * count), np.full((count, 2), count)
    return data


@pytest.mark.parametrize("is_lost", [False, True], ids=["refused", "the answer is lost"])
def test_a_failure_at_any_request_leaves_the_old_state(
    new_file: hsparse.File, is_lost: bool, least_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request of an append fails in turn, until none is left; what was made is deleted again."""
    old = few("cell", 30)
    send = Connection.json
    for number in range(100):
        path = f"turn{number}"
        new_file.write_anndata(old, path)
        made: list[str] = []
        sent = 0

        def json(self: Connection, method: str, path: str, *args: Any, **params: Any) -> Any:
            nonlocal sent
            sent += method != "DELETE"
            if method != "DELETE" and sent == number + 1 and not is_lost:  # noqa: B023
                raise QuotaExceeded("The folder is full.")
            answer = send(self, method, path, *args, **params)
            if method == "POST":
                made.extend(one["id"] for one in answer.get("objects", [answer]) if "id" in one)  # noqa: B023
            if method != "DELETE" and sent == number + 1 and is_lost:  # noqa: B023
                raise StoreFailed("The answer is lost.")
            return answer

        with monkeypatch.context() as patch:
            patch.setattr(Connection, "json", json)
            is_done = False
            with suppress(QuotaExceeded, StoreFailed):
                hsparse.append_anndata(new_file, few("more", 20), path)
                is_done = True
        found = new_file.to_anndata(path)
        if sent <= number:
            break
        if found.n_obs == 30:
            assert_same(found, old)
        else:
            assert is_done or is_lost
            assert_like(found, anndata.concat([old, few("more", 20)]))
        linked = {record["id"] for record in new_file.records().values()}
        left = [id for id in made if id not in linked and is_stored(new_file, id)]
        assert is_lost or not left
    assert_like(found, anndata.concat([old, few("more", 20)]))
    assert number > 8


def test_another_append_at_any_request(
    url: str, new_file: hsparse.File, least_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Either both are there, or the first one fails with a `Conflict`, and can be repeated."""
    conflicts = 0
    for number in range(100):
        path = f"turn{number}"
        new_file.write_anndata(few("cell", 30), path)
        sent = 0

        def append(method: str, target: str) -> None:
            nonlocal sent
            sent += method != "DELETE"
            if method != "DELETE" and sent == number + 1:  # noqa: B023
                data = few("other", 10)
                with open_file(url + new_file.filename) as other:
                    hsparse.append_anndata(other, data, path)  # noqa: B023

        problem = ""
        with before_each(append, monkeypatch):
            try:
                hsparse.append_anndata(new_file, few("more", 20), path)
            except Conflict as error:
                problem = error.message
        if problem:
            assert problem.endswith("was changed by another client meanwhile: append the cells again.")
            conflicts += 1
            assert new_file.to_anndata(path).n_obs == 30 + 10
            hsparse.append_anndata(new_file, few("more", 20), path)
        found = new_file.to_anndata(path)
        if number >= sent:
            break
        wanted = {*names("cell", 30), *names("more", 20), *names("other", 10)}
        assert set(found.obs_names) == wanted
    assert conflicts > 5


def test_many_append_at_once(url: str, new_file: hsparse.File, least_rows: int) -> None:
    new_file.write_anndata(few("cell", 30))

    def append(number: int) -> None:
        data = few(f"writer{number}-", 5)
        with open_file(url + new_file.filename) as file:
            while True:
                try:
                    hsparse.append_anndata(file, data)
                except Conflict:
                    continue
                return

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(append, range(4)))
    found = new_file.to_anndata()
    assert set(found.obs_names) == {
        *names("cell", 30),
        *(f"writer{w}-{n}" for w in range(4) for n in range(5)),
    }
    assert found.X.shape == (30 + 20, 7)


@pytest.mark.parametrize("path", ["obs/leiden", "obsp/distances", "layers/new"])
def test_what_is_added_meanwhile_is_not_lost(
    url: str, new_file: hsparse.File, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_file.write_anndata(few("cell", 30))
    waiting = [True]

    def assign(method: str, target: str) -> None:
        if waiting and method == "POST" and target.startswith("/groups"):
            waiting.clear()
            with open_file(url + new_file.filename) as other:
                other[path] = np.ones(30) if path == "obs/leiden" else np.ones((30, 30))

    with before_each(assign, monkeypatch), pytest.raises(Conflict):
        hsparse.append_anndata(new_file, few("more", 20))
    assert new_file[path].shape[0] == 30  # type: ignore[union-attr]
    assert new_file["X"].shape[0] == 30  # type: ignore[union-attr]
