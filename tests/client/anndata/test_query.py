"""Queries, their conditions and labels, beside the same rows and columns of the AnnData in memory."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
from anndata.tests.helpers import assert_equal
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hsparse
from hsparse.client.errors import InvalidValue, MissingKey, OutOfRange, WrongType
from hsparse.client.indexing.frame_labels import FrameLabels, frames_of
from hsparse.client.integrations.anndata.expression import Expression
from hsparse.client.opening import open_connection
from tests.client.access_ways import open_file
from tests.client.anndata.anndata_examples import COLUMNS, EXAMPLES, ROWS, names
from tests.client.anndata.conftest import NUMBERS, PBMC, assert_same, import_file


@pytest.fixture
def cells(new_file: hsparse.File) -> tuple[hsparse.File, anndata.AnnData]:
    data = EXAMPLES["column_kinds"]()
    data.layers["by gene"] = EXAMPLES["layers"]().layers["by gene"]
    extra = EXAMPLES["dimensions"]()
    for part in ("obsm", "varm", "obsp", "varp"):
        for name, value in getattr(extra, part).items():
            getattr(data, part)[name] = value
    del data.obsm["table"]
    data.raw = data.copy()
    new_file.write_anndata(data)
    return new_file, data


def test_one_or_two_requests(cells: tuple[hsparse.File, anndata.AnnData], requests: list[str]) -> None:
    file, data = cells
    file.query().n_obs  # noqa: B018 - the objects are asked for once
    mask = data.obs["cell type"].isin(["B cell"]) & (data.obs["n_genes"] > 300)
    for options, wanted in (
        ({"obs": "`cell type` == 'B cell' and n_genes > 300"}, data[mask]),
        (
            {"obs": "`cell type` == 'B cell' and n_genes > 300", "var": ["gene7", "gene2"]},
            data[mask, ["gene7", "gene2"]],
        ),
        ({"obs": slice(10, 20), "var": "a in ['x1', 'x9']"}, data[10:20, [1, 9]]),
    ):
        requests.clear()
        query = file.query(**options, **NOTHING)  # type: ignore[arg-type]
        assert requests == []
        found = query.to_anndata()
        assert requests == ["POST /datasets/values"] * 2
        assert_same(found, anndata.AnnData(wanted.X.copy(), obs=wanted.obs.copy(), var=wanted.var.copy()))
    requests.clear()
    file.query(obs=[3, 1]).to_scipy()
    assert len(requests) == 1


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name != "empty"])
@pytest.mark.parametrize("keys", ["strings", "slices", "all"])
def test_an_anndata_of_a_query_is_a_copy_of_a_view(
    name: str, keys: str, imported: Callable[[str], hsparse.File], example_file: Callable[[str], Path]
) -> None:
    data = anndata.read_h5ad(example_file(name))
    if "cell type" in data.obs:
        data.uns["cell type_colors"] = np.array(["#0", "#1", "#2"], object)
        file = imported("plain").connection.for_domain(f"/query-{next(NUMBERS)}.h5ad")
        file.json("PUT", "/", {})
        opened: Any = open_connection(file)
        opened.write_anndata(data)
    else:
        opened = imported(name)
    obs, var = {
        "strings": (data.obs_names[::7].tolist(), data.var_names[:9:-3].tolist()),
        "slices": (slice(3, 9), slice(None, None, 2)),
        "all": (None, None),
    }[keys]
    wanted = data[slice(None) if obs is None else obs, slice(None) if var is None else var].copy()
    found = opened.query(obs, var).to_anndata()
    assert_same(found, wanted)
    assert (found.raw is None) == (wanted.raw is None)
    if wanted.raw is not None:
        np.testing.assert_array_equal(found.raw.X.toarray(), wanted.raw.X.toarray())
        assert_equal(found.raw.var, wanted.raw.var)
        assert_equal(dict(found.raw.varm), dict(wanted.raw.varm))
    parts = list(opened.query(obs, var).iter(5))
    assert_equal(anndata.concat(parts, merge="same").layers, wanted.layers)


NOTHING: dict[str, Any] = dict.fromkeys(("layers", "obsm", "varm", "obsp", "varp"), ()) | {
    "uns": False,
    "raw": False,
}


def test_named_elements_come_along(cells: tuple[hsparse.File, anndata.AnnData]) -> None:
    file, data = cells
    found = file.query(
        obs="n_genes > 500",
        var=np.arange(COLUMNS) % 2 == 0,
        layer="by gene",
        columns=["score", "cell type"],
        var_columns=[],
        layers=["by gene"],
        obsm=["cube", "sparse"],
        varm=["PCs"],
        obsp=["distances", "dense"],
        varp=["by gene"],
        uns=False,
        raw=False,
    ).to_anndata()
    wanted = data[data.obs["n_genes"] > 500].copy()[:, data.var_names[::2]].copy()
    wanted.X = wanted.layers["by gene"]
    wanted.obs = wanted.obs[["score", "cell type"]]
    wanted.var = wanted.var[[]]
    del wanted.obsm["X_pca"]
    wanted.raw = None
    assert_same(found, wanted)


def test_raw_has_its_own_columns(new_file: hsparse.File) -> None:
    data = EXAMPLES["with_raw"]()
    new_file.write_anndata(data)
    found = new_file.query(var="n >= 20", layer="raw")
    assert (found.n_vars, found.var["n"].tolist()) == (3, [20, 21, 22])
    np.testing.assert_array_equal(found.to_scipy().toarray(), data.raw.X[:, 20:].toarray())


@pytest.mark.parametrize("layer", [None, "by gene", "dense"])
@pytest.mark.parametrize("axis", [0, 1, None, (0, 1)])
def test_reductions_are_those_of_the_matrix(new_file: hsparse.File, layer: str | None, axis: Any) -> None:
    data = EXAMPLES["layers"]()
    data.obs["kind"] = np.arange(ROWS) % 3
    data.var["kind"] = pd.Categorical(np.where(np.arange(COLUMNS) % 2, "odd", "even"))
    for path in ("/", "mod/rna"):
        new_file.write_anndata(data, path, overwrite=True)
        query = new_file.query("kind < 2", [7, 2, 5, 20], layer=layer, path=path)
        wanted = query.to_anndata().to_df()
        found = query.reduce("sum", "mean", axis=axis)
        values = wanted.to_numpy(np.float64)
        np.testing.assert_allclose(found["sum"], values.sum(axis))
        np.testing.assert_allclose(found["mean"], values.mean(axis))
        if isinstance(axis, int):
            grouped = query.reduce("sum", axis=axis, by="kind")
            kinds = (query.obs, query.var)[axis]["kind"].to_numpy()
            assert grouped["group"].tolist() == [0, 1, 2] if axis == 0 else ["even", "odd"]
            for place, kind in enumerate(grouped["group"].tolist()):
                row = grouped["sum"].take(place, axis)
                np.testing.assert_allclose(row, values.compress(kinds == kind, axis).sum(axis))


def test_what_cannot_be_reduced_is_refused(cells: tuple[hsparse.File, anndata.AnnData]) -> None:
    file, _ = cells
    with pytest.raises(InvalidValue, match="chooses a row or a column twice"):
        file.query(obs=[1, 1]).reduce("sum", axis=0)
    with pytest.raises(MissingKey, match="no column 'none'"):
        file.query().reduce("sum", axis=0, by="none")


CHOICES: dict[str, st.SearchStrategy[Any]] = {
    axis: st.one_of(
        st.none(),
        st.lists(st.integers(-length, length - 1), max_size=8),
        st.lists(st.integers(0, length - 1).map(lambda n, prefix=prefix: f"{prefix}{n}"), max_size=8),
        st.lists(st.booleans(), min_size=length, max_size=length).map(np.array),
        st.slices(length),
    )
    for axis, length, prefix in (("obs", ROWS, "cell"), ("var", COLUMNS, "gene"))
}


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(CHOICES["obs"], CHOICES["var"])
def test_rows_and_columns_by_names_indices_masks_and_slices(
    imported: Callable[[str], hsparse.File], obs: Any, var: Any
) -> None:
    """In any order, also repeated: as AnnData takes them, except that names and indices may repeat."""
    file = imported("plain")
    whole = EXAMPLES["plain"]()
    rows, columns = (
        np.arange(length)[
            slice(None)
            if choice is None
            else [int(one.removeprefix(prefix)) for one in choice]
            if isinstance(choice, list) and choice and isinstance(choice[0], str)
            else np.array(choice, int)
            if isinstance(choice, list)
            else choice
        ]
        for choice, length, prefix in ((obs, ROWS, "cell"), (var, COLUMNS, "gene"))
    )
    query = file.query(obs, var)
    assert (query.n_obs, query.n_vars) == (len(rows), len(columns))
    np.testing.assert_array_equal(query.to_scipy().toarray(), whole.X.toarray()[rows][:, columns])
    assert query.obs.index.tolist() == whole.obs_names[rows].tolist()
    assert query.var.index.tolist() == whole.var_names[columns].tolist()


def test_parts_are_read_in_order(cells: tuple[hsparse.File, anndata.AnnData]) -> None:
    file, data = cells
    parts = list(file.query(obs="n_genes > 200").iter(7))
    wanted = data[data.obs["n_genes"] > 200]
    assert [len(part) for part in parts][:-1] == [7] * (len(parts) - 1)
    assert [name for part in parts for name in part.obs_names] == wanted.obs_names.tolist()
    np.testing.assert_array_equal(np.concatenate([part.X.toarray() for part in parts]), wanted.X.toarray())
    assert list(file.query(obs=[]).iter(3)) == []
    with pytest.raises(InvalidValue, match="at least 1 row"):
        next(file.query().iter(0))


@pytest.mark.filterwarnings("ignore")
def test_a_file_of_before_0_7(url: str) -> None:
    data = anndata.read_h5ad(PBMC)
    with open_file(url + import_file(url, PBMC)) as file:
        found = file.query(
            obs="bulk_labels in ['CD19+ B', 'Dendritic'] and n_genes > 800",
            var=["CD3E", "NKG7"],
            columns=["phase", "n_genes"],
        ).to_anndata()
    mask = data.obs["bulk_labels"].isin(["CD19+ B", "Dendritic"]) & (data.obs["n_genes"] > 800)
    wanted = data[mask, ["CD3E", "NKG7"]]
    np.testing.assert_array_equal(found.X, wanted.X)
    assert found.obs["phase"].tolist() == wanted.obs["phase"].tolist()
    assert found.obs_names.tolist() == wanted.obs_names.tolist()


def test_what_is_wrong_is_refused_before_anything_is_read(
    cells: tuple[hsparse.File, anndata.AnnData], requests: list[str]
) -> None:
    file, _ = cells
    file.query()
    requests.clear()
    for error, words, options in (
        (MissingKey, "obs of .* has no column 'kind'", {"obs": "kind == 'a'"}),
        (MissingKey, "has no column 'z'", {"columns": ["z"]}),
        (MissingKey, "has no layers/z", {"layer": "z"}),
        (MissingKey, "has no obsm/z", {"obsm": ["z"]}),
        (InvalidValue, "cannot be read", {"var": "=="}),
    ):
        with pytest.raises(error, match=words):
            file.query(**options)  # type: ignore[arg-type]
    for error, words, choice in (
        (OutOfRange, "obs has 60 rows", [60]),
        (OutOfRange, "obs has 60 rows", np.ones(59, bool)),
        (WrongType, "a condition, a list of names", [1.5]),
        (WrongType, "a condition, a list of names", [[1]]),
    ):
        with pytest.raises(error, match=words):
            file.query(obs=choice).n_obs  # noqa: B018
    assert requests == []
    with pytest.raises(KeyError, match="has no name 'geneX'"):
        file.query(var=["gene1", "geneX"]).n_vars  # noqa: B018


def test_it_says_what_it_asks(cells: tuple[hsparse.File, anndata.AnnData]) -> None:
    file, _ = cells
    assert repr(file.query(obs="n_genes > 5")) == f"<Query of {file.filename}: obs='n_genes > 5'>"
    assert repr(file.query()) == f"<Query of {file.filename}>"


FRAME = pd.DataFrame(
    {
        "kind": pd.Categorical(["a", "b", "c", "a", None, "b"], categories=["c", "a", "b", "d"]),
        "stage": pd.Categorical.from_codes([0, 1, 2, -1, 1, 0], ["low", "mid", "top"], ordered=True),
        "n": [1, 5, 3, 0, -2, 5],
        "x": [0.5, np.nan, 2.5, 3.0, -1.0, np.inf],
        "flag": [True, False, True, True, False, False],
        "text": ["p", "q", "", "p", "r's", "q"],
    },
    index=[f"cell{n}" for n in range(6)],
)
WANTED, LEAST, WORD = [5, -2], 2, "q"
SERIES = {name: FRAME[name].reset_index(drop=True) for name in FRAME} | {"index": pd.Series(FRAME.index)}

OPERANDS = st.sampled_from(["n", "x", "n + 1", "x * 2 - n", "-n", "n / 2"])
TERMS = st.one_of(
    st.tuples(
        OPERANDS,
        st.sampled_from(["<", "<=", ">", ">=", "==", "!="]),
        st.sampled_from(["0", "2.5", "-1", "n"]),
    ).map(" ".join),
    st.sampled_from(
        [
            "kind == 'a'", "kind != 'b'", "kind == 'z'", "kind in ['a', 'c']", "kind not in ('a', 'zz')",
            "stage < 'top'", 'stage >= "mid"', "flag", "flag == False", "text in ['p', \"r's\"]",
            "text == ''", "n in [5, 0]", "0 < n < 5", "index == 'cell3'", "kind.isnull()", "x.notnull()",
            "kind.isna()", "kind.isin(['a', 'zz'])", "text.isin([\"r's\", 'p'])", "n.isin(@WANTED)",
            "n > @LEAST", "text != 'a & b | c = d'", "text == @WORD",
        ]
    ),
)  # fmt: skip
CONDITIONS = st.recursive(
    TERMS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(
            lambda one: f"({one[0]} {one[1]} {one[2]})"
        ),
        st.tuples(inner, st.sampled_from(["&", "|"]), inner).map(
            lambda one: f"(({one[0]}) {one[1]} ({one[2]}))"
        ),
        st.tuples(inner, st.sampled_from(["&", "|", "and", "or"]), inner).map(" ".join),
        inner.map(lambda one: f"not ({one})"),
    ),
    max_leaves=5,
)


@given(CONDITIONS)
def test_rows_are_those_of_pandas(text: str) -> None:
    found = Expression(text).evaluate(SERIES, len(FRAME))
    assert FRAME.index[found].tolist() == FRAME.query(text, engine="python").index.tolist()


def test_names_are_those_of_columns() -> None:
    found = Expression("`cell type` == 'B `x` cell' and `n (raw)` > 500 or not is_primary")
    assert found.names == {"cell type", "n (raw)", "is_primary"}
    columns = {
        "cell type": pd.Series(["B `x` cell", "B `x` cell", "T"]),
        "n (raw)": pd.Series([501, 3, 900]),
        "is_primary": pd.Series([True, True, True]),
    }
    assert found.evaluate(columns, 3).tolist() == [True, False, False]


def test_missing_values_match_nothing() -> None:
    columns = {
        "age": pd.Series(pd.array([1, None, 7], dtype="Int8")),
        "smoker": pd.Series(pd.array([None, True, False], dtype="boolean")),
    }
    for text, wanted in {
        "age > 0": [True, False, True],
        "not age > 3": [True, False, False],
        "smoker": [False, True, False],
        "isnull(age) or smoker": [False, True, False],
        "isnull(smoker)": [True, False, False],
        "smoker or age == 1": [True, True, False],
    }.items():
        assert Expression(text).evaluate(columns, 3).tolist() == wanted, text


def test_a_condition_without_columns_is_for_all_rows() -> None:
    assert Expression("1 < 2").evaluate({}, 3).tolist() == [True] * 3
    assert Expression("not 1 < 2").evaluate({}, 2).tolist() == [False] * 2


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')", "n.__class__ == 1", "(lambda: 1)() == 1", "[n for n in x] == 1",
        "n[0] == 1", "f'{n}' == 'x'", "isnull(n, x)", "isnull(n, axis=1)", "eval('1')", "n is None",
        "n == None", "n in [x]", "n ** 9 > 1", "n if x else 1", "(n := 1)", "n; x", "n ==", "", "b'x' == n",
        "... == n", "(" * 5000 + "n" + ")" * 5000,
    ],
)  # fmt: skip
def test_what_is_not_in_the_language_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match=r"[Tt]he condition"):
        Expression(text)


@pytest.mark.parametrize(
    "text",
    [
        "kind", "n", "n > 'a'", "text < 3", "kind < 'b'", "n and flag", "'a'", "n + text > 1", "1 in n",
        "3 in [3]",
    ],
)  # fmt: skip
def test_what_does_not_fit_the_columns_is_refused(text: str) -> None:
    with pytest.raises(WrongType, match="condition"):
        Expression(text).evaluate(SERIES, len(FRAME))


@pytest.mark.parametrize("text", ["n = 5", "kind='a'", "n > 1 and text = 'a=b'", "`n` =5"])
def test_a_single_equals_sign_names_the_remedy(text: str) -> None:
    with pytest.raises(InvalidValue, match=r"^The condition [^:]* has a single =: write == to compare\.$"):
        Expression(text)
    assert Expression("n <= 3 and n >= 1 and n != 2 and n == 1").evaluate(SERIES, len(FRAME)).sum() == 1


def test_what_cannot_be_read_is_said_without_pythons_file() -> None:
    with pytest.raises(InvalidValue, match=r"cannot be read: [^<>]*\.$"):
        Expression("n == == 5")


@pytest.mark.parametrize("wanted", [{5, -2}, (5, -2), np.array([5, -2]), pd.Series([5, -2]), range(-2, 6, 7)])
def test_variables_are_those_of_the_caller(wanted: object) -> None:
    most = np.int64(4)
    assert most
    found = Expression("n in @wanted or n.isin(@WANTED) and n > @most").evaluate(SERIES, len(FRAME))
    assert found.tolist() == [False, True, False, False, True, True]
    with pytest.raises(MissingKey, match="variable 'nobody' of the condition"):
        Expression("n > @nobody")
    with pytest.raises(WrongType, match="@pytest"):
        Expression("n > @pytest")
    with pytest.raises(WrongType, match="@SERIES"):
        Expression("n in @SERIES")


def test_a_column_that_is_not_there_is_named() -> None:
    with pytest.raises(MissingKey, match="no column 'kinds'"):
        Expression("kinds == 'a'").evaluate(SERIES, len(FRAME))


def test_a_name_with_a_space_names_the_remedy() -> None:
    with pytest.raises(InvalidValue, match="a column's name with spaces needs `backticks`"):
        Expression("pct mt < 0.1")


@pytest.mark.parametrize(
    ("path", "frames"),
    [
        ("/X", ("obs", "var")), ("layers/counts", ("obs", "var")), ("obsm/X_pca", ("obs",)),
        ("varm/PCs", ("var",)), ("obsp/distances", ("obs", "obs")), ("varp/x", ("var", "var")),
        ("raw/X", ("obs", "raw/var")), ("raw.X", ("obs", "raw.var")), ("uns/x", ()), ("layers", ()),
        ("X/data", ()), ("raw", ()), ("", ()),
    ],
)  # fmt: skip
def test_the_frames_of_a_path(path: str, frames: tuple[str, ...]) -> None:
    assert frames_of(path) == frames


def test_labels_are_asked_for_once(imported: Callable[[str], hsparse.File], requests: list[str]) -> None:
    file = imported("with_raw")
    labels = FrameLabels(file.connection, file.id)
    requests.clear()
    of_x, of_raw = labels("/X"), labels("/raw/X")
    assert requests == []
    for _ in range(2):
        assert list(of_x(0)) == list(of_raw(0)) == names("cell", ROWS)  # type: ignore[arg-type]
        assert list(of_x(1)) == names("gene", COLUMNS)[::2]  # type: ignore[arg-type]
        assert list(of_raw(1)) == names("gene", COLUMNS)  # type: ignore[arg-type]
    assert requests == ["GET /"] + ["POST /datasets/values"] * 3
    assert labels("/varp/x")(2) is None
    assert labels("/uns/x")(0) is None


def test_a_domain_without_frames_has_no_labels(new_file: hsparse.File) -> None:
    assert FrameLabels(new_file.connection, new_file.id)("/X")(0) is None


def test_arrays_are_indexed_by_names(new_file: hsparse.File, requests: list[str]) -> None:
    data = EXAMPLES["layers"]()
    new_file.write_anndata(data)
    for path in ("X", "layers/counts", "/layers/by gene"):
        wanted = (data.X if path == "X" else data.layers[path.rpartition("layers/")[2]]).tocsr()
        found = new_file[path].oindex[["cell7", "cell2"], ["gene3", "gene19", "gene0"]]  # type: ignore[union-attr]
        assert found.toarray().tolist() == wanted[[7, 2]][:, [3, 19, 0]].toarray().tolist()
    requests.clear()
    column = new_file["layers"]["counts"].oindex[:, ["gene5"]]  # type: ignore[index]
    assert len(requests) == 3, "the group, the dataset, the values: the names are known"
    assert column.toarray().tolist() == data.layers["counts"].tocsr()[:, [5]].toarray().tolist()
    with pytest.raises(KeyError, match="no label 'geneX'"):
        new_file["X"].oindex[:, "geneX"]  # type: ignore[union-attr]


def test_labels_are_not_kept_in_pickles_of_arrays(new_file: hsparse.File) -> None:
    data = EXAMPLES["plain"]()
    new_file.write_anndata(data)
    array = new_file["X"]
    size = len(pickle.dumps(array))
    array.oindex[["cell3"], :]  # type: ignore[union-attr]
    assert len(pickle.dumps(array)) < size + 2 * ROWS * 6
    array = pickle.loads(pickle.dumps(new_file["X"]))
    assert array.oindex[["cell3"], :].toarray().tolist() == data.X[3].toarray().tolist()


def test_a_name_that_is_there_twice_is_refused(new_file: hsparse.File) -> None:
    data = EXAMPLES["plain"]()
    data.var_names = [f"gene{number // 2}" for number in range(data.n_vars)]
    new_file.write_anndata(data)
    with pytest.raises(InvalidValue, match="has the name 'gene1' more than once"):
        new_file.query(var=["gene1"]).to_scipy()
