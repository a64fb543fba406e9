"""`hsparse.concat` beside `anndata.concat`."""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from anndata.tests.helpers import assert_equal

import hsparse
from hsparse.cli.main import main
from hsparse.client.errors import AlreadyExists, InvalidValue, WrongType
from hsparse.client.integrations.anndata.concatenation import MOST_PASSES, ascending_passes
from tests.client.access_ways import open_file
from tests.client.anndata.conftest import NUMBERS
from tests.client.anndata.test_cell_appender import GENES, OTHERS, cells


def stored(url: str, *datas: anndata.AnnData, **options: Any) -> list[hsparse.File]:
    """Open new domains that have these AnnDatas."""
    files = [open_file(f"{url}/concat-{next(NUMBERS)}.h5ad", "x") for _ in datas]
    for file, data in zip(files, datas, strict=True):
        file.write_anndata(data, **options)
    return files


def new() -> str:
    return f"/concat-{next(NUMBERS)}.h5ad"


def check(url: str, datas: list[anndata.AnnData], *, copy: bool = False, **how: Any) -> str:
    """Compare what is concatenated with what AnnData makes of it, whole and lazily read."""
    wanted = anndata.concat(datas, **how)
    with ExitStack() as stack:
        files = [stack.enter_context(file) for file in stored(url, *datas)]
        file = stack.enter_context(hsparse.concat(files, new(), copy=copy, **how))
        for found in (file.to_anndata(), file.to_anndata(lazy=True).to_memory()):
            assert_alike(found, wanted)
        return file.filename


def assert_alike(found: anndata.AnnData, wanted: anndata.AnnData) -> None:
    wanted = wanted.copy()
    for one in (found, wanted):
        one.strings_to_categoricals()
    assert_equal(found.obs, wanted.obs)
    assert_equal(found, wanted)
    assert found.var_names.tolist() == wanted.var_names.tolist()
    matrices = [(found.X, wanted.X), *((found.layers[name], wanted.layers[name]) for name in wanted.layers)]
    matrices += [(found.raw.X, wanted.raw.X)] if wanted.raw is not None else []
    for one, other in matrices:
        assert type(one) is type(other)
        assert one is None or one.dtype == other.dtype


def parts(kind: str, genes: str) -> list[anndata.AnnData]:
    return [
        cells("a", 40, GENES, 1, kind),
        cells("b", 25, OTHERS[genes], 20, kind),
        cells("c", 3, GENES, 5, kind),
    ]


@pytest.mark.parametrize("copy", [False, True], ids=["linked", "copied"])
@pytest.mark.parametrize("join", ["inner", "outer"])
@pytest.mark.parametrize("genes", OTHERS)
@pytest.mark.parametrize("kind", ["csr", "csc", "dense"])
def test_it_is_what_anndata_concatenates(url: str, kind: str, genes: str, join: Any, copy: bool) -> None:
    check(url, parts(kind, genes), copy=copy, join=join)


@pytest.mark.parametrize("copy", [False, True], ids=["linked", "copied"])
@pytest.mark.parametrize(
    "how",
    [
        {"label": "batch"},
        {"label": "batch", "keys": ["x", "y", "z"], "index_unique": "-"},
        {"join": "outer", "index_unique": "_", "merge": "first", "uns_merge": "unique"},
        {"merge": "same", "fill_value": 0},
        {"join": "outer", "pairwise": True, "axis": "obs"},
        *({"uns_merge": name, "merge": name} for name in ("same", "unique", "first", "only")),
        {"uns_merge": lambda all: {"titles": [one["title"] for one in all]}},
    ],
    ids=lambda how: "-".join([*how, str(how.get("uns_merge"))[:6]]),
)
def test_options_are_those_of_anndata(url: str, how: dict[str, Any], copy: bool) -> None:
    datas = parts("csr", "some of both")
    for number, data in enumerate(datas):
        data.obsp["near"] = sp.random(data.n_obs, data.n_obs, 0.1, "csr", random_state=number)
        data.obsp["dense"] = np.full((data.n_obs, data.n_obs), number)
        data.uns |= {"same": {"deep": 1, "other": number}, f"only {number}": [1, 2]}
        data.varm["same"] = np.ones((data.n_vars, 2))
    check(url, datas, copy=copy, **how)


@pytest.mark.parametrize("copy", [False, True], ids=["linked", "copied"])
@pytest.mark.parametrize("fill", [7, -1.5, np.nan, 0])
def test_a_fill_value_is_what_dense_matrices_have_of_genes_that_are_missing(
    url: str, fill: float, copy: bool
) -> None:
    datas = [tiny(np.ones((2, 3), "f4"), "abc"), tiny(np.full((3, 2), 2, "f4"), "bd", "xyz")]
    for data in datas:
        data.layers["whole"] = data.X + 1
    check(url, datas, copy=copy, join="outer", fill_value=fill)
    check(url, [tiny(EYE, "ab"), tiny(EYE, "ab", "xy")], copy=copy, fill_value=fill)  # nothing is missing


def test_a_mapping_names_the_sources(url: str) -> None:
    data = parts("csr", "the same genes")
    with hsparse.concat(dict(zip("abc", stored(url, *data), strict=True)), new(), label="run") as file:
        assert file.obs["run"].tolist() == ["a"] * 40 + ["b"] * 25 + ["c"] * 3


def tiny(values: Any, genes: str, cells: str = "") -> anndata.AnnData:
    obs = pd.DataFrame(index=list(cells) or [f"c{n}" for n in range(values.shape[0])])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of genes that are there twice
        return anndata.AnnData(values, obs=obs, var=pd.DataFrame(index=list(genes)))


SMALL: dict[str, list[anndata.AnnData]] = {
    "no cells": [
        tiny(sp.csr_matrix((0, 3), dtype="f4"), "abc"),
        tiny(sp.csr_matrix(np.eye(3, dtype="f4")), "abc"),
    ],
    "no elements": [
        tiny(sp.csr_matrix((2, 3), dtype="f4"), "abc"),
        tiny(sp.csr_matrix(np.eye(3, dtype="f4")), "bca"),
    ],
    "no genes in common": [tiny(sp.csr_matrix(np.eye(2)), "ab"), tiny(sp.csr_matrix(np.eye(2)), "cd", "xy")],
    "other types": [
        tiny(sp.csr_matrix(np.eye(2, dtype="i2")), "ab"),
        tiny(sp.csr_matrix(np.eye(2, dtype="f4")), "ab", "xy"),
    ],
    "dense integers": [tiny(np.eye(3, dtype="i4"), "abc"), tiny(np.eye(2, dtype="i4"), "bd", "xy")],
    "zeros": [
        tiny(sp.csr_matrix((np.array([0.0, 2.0]), [0, 1], [0, 1, 2])), "ab"),
        tiny(sp.csr_matrix(np.eye(2)), "ab", "xy"),
    ],
    "no X": [anndata.AnnData(obs=pd.DataFrame(index=["c"]), var=pd.DataFrame(index=["a", "b"]))] * 2,
}


@pytest.mark.filterwarnings("ignore:(Observation|Variable) names are not unique")
@pytest.mark.parametrize("join", ["inner", "outer"])
@pytest.mark.parametrize("name", SMALL)
def test_corner_cases(url: str, name: str, join: Any) -> None:
    check(url, SMALL[name], join=join)


def test_raw_is_concatenated_if_all_have_it(url: str) -> None:
    datas = parts("csr", "in another order")
    for data in datas:
        data.raw = data.copy()
    cut = [data[:, 3:9].copy() for data in datas]
    check(url, cut, join="outer")
    cut[2].raw = None
    with pytest.warns(UserWarning, match="has no raw, so the concatenation has none"):
        file = hsparse.concat(stored(url, *cut), new())
    with file:
        assert "raw" not in file


def test_nothing_is_copied_and_what_changes_shows(url: str) -> None:
    files = stored(url, *parts("csr", "the same genes"))
    with hsparse.concat(files, new()) as file:
        layout = file.records()["X"]["creationProperties"]["layout"]
        assert [one["file"] for one in layout["mappings"]] == [one.filename for one in files]
        files[1]["X"][2, 3] = 77
        assert file["X"][42, 3] == 77
        assert file.query("n_genes >= 0", ["gene3"]).to_anndata().X[42, 0] == 77


@pytest.mark.parametrize("genes", ["the same genes", "in another order"])
def test_batches_are_of_all_sources(url: str, genes: str, requests: list[str]) -> None:
    """Sources whose rows are whole in the concatenation are read as they are by themselves, others through it."""
    datas = parts("csr", genes)
    files = stored(url, *datas)
    with hsparse.concat(files, new(), label="run") as file:
        wanted, matrix = anndata.concat(datas, label="run"), file["X"]
        assert isinstance(matrix, hsparse.SparseDataset)
        batches = hsparse.Batches(matrix, ["run"], size=16, format="numpy", seed=3)
        requests.clear()
        check_batches(batches, wanted)
        assert (f"GET /datasets/{matrix.id}/value" in requests) == (genes == "in another order")
        datas[1].X = datas[1].X * 2
        files[1].write_anndata(
            datas[1], overwrite=True
        )  # other datasets in the place of those that are known
        check_batches(batches, anndata.concat(datas, label="run"))


def check_batches(batches: hsparse.Batches, wanted: anndata.AnnData) -> None:
    found = {row: (x, run) for b in batches for x, run, row in zip(b.x, b.obs["run"], b.rows, strict=True)}
    assert sorted(found) == list(range(68))
    for row, (x, run) in found.items():
        np.testing.assert_array_equal(x, wanted.X[row].toarray()[0])
        assert run == wanted.obs["run"].cat.codes.iloc[row]


def test_a_group_of_a_file_is_a_source(url: str, new_file: hsparse.File) -> None:
    one, two, _ = parts("csr", "some missing")
    new_file.write_anndata(one, "mod/rna")
    with hsparse.concat([new_file["mod/rna"], *stored(url, two)], new()) as file:  # type: ignore[list-item]
        assert_alike(file.to_anndata(), anndata.concat([one, two]))


def test_addresses_are_opened(url: str) -> None:
    one, two, _ = parts("csr", "the same genes")
    names_there = [f"{url}{file.filename}" for file in stored(url, one, two)]
    for to in (url + new(), new()):
        with hsparse.concat(names_there, to) as file:
            assert_alike(file.to_anndata(), anndata.concat([one, two]))


def with_x(values: Any) -> anndata.AnnData:
    return tiny(values, "ab")


EYE = sp.csr_matrix(np.eye(2))


@pytest.mark.parametrize(
    ("datas", "how", "message"),
    [
        (
            [with_x(EYE), with_x(np.eye(2))],
            {},
            r"X of /concat.* is dense, but not in another source.*--copy",
        ),
        ([with_x(EYE), tiny(EYE, "aa")], {}, "var of /concat.* has 'a' twice: genes are matched by name"),
        (
            [with_x(EYE), anndata.AnnData(obs=with_x(EYE).obs, var=with_x(EYE).var)],
            {},
            "/concat.* has no X, but",
        ),
        ([with_x(EYE)], {"keys": ["a", "b"]}, "There are 2 keys for 1 files"),
        ([with_x(EYE)], {"join": "left"}, "join is 'inner' or 'outer'"),
        (
            [with_x(EYE), tiny(EYE, "bc", "xy")],
            {"join": "outer", "fill_value": 7},
            "X is sparse, so its missing elements are 0, not 7",
        ),
        ([], {}, "needs one or more sources"),
        (
            [with_x(EYE)],
            {"axis": "var"},
            "along the axis 'obs' only, not 'var': read the AnnDatas and use anndata.concat",
        ),
        (
            [with_x(EYE)],
            {"merge": "last"},
            "merge is a function or one of same, unique, first, only, not 'last'",
        ),
        ([with_x(EYE)], {"uns_merge": "all"}, "uns_merge is a function or one of same, unique"),
    ],
)
@pytest.mark.filterwarnings("ignore:(Observation|Variable) names are not unique")
def test_what_does_not_fit_is_named(url: str, datas: Any, how: dict[str, Any], message: str) -> None:
    to = new()
    with pytest.raises(InvalidValue, match=message):
        hsparse.concat(stored(url, *datas), to, **how)
    with pytest.raises(KeyError):
        hsparse.open(url + to)


def test_arguments_of_anndata_alone_are_refused_by_name(url: str) -> None:
    with pytest.raises(WrongType, match="has no argument 'force_lazy'"):
        hsparse.concat(stored(url, with_x(EYE)), new(), force_lazy=True)


def test_places_that_are_refused(url: str, two_nodes_url: str, new_file: hsparse.File) -> None:
    (one,) = stored(url, with_x(EYE))
    with pytest.raises(InvalidValue, match="is a source: give the concatenation another path"):
        hsparse.concat([one], one.filename, overwrite=True)
    with pytest.raises(AlreadyExists):
        hsparse.concat([one], new_file.filename)
    number = one.snapshot().number
    with pytest.raises(
        InvalidValue, match=r"@.* is a snapshot, which virtual datasets cannot use: give copy=True"
    ):
        hsparse.concat([f"{url}{one.filename}@{number}"], new())
    (far,) = stored(two_nodes_url, with_x(EYE))
    with pytest.raises(
        InvalidValue, match=r"is on http.*sources on their own server; give copy=True \(--copy\)"
    ):
        hsparse.concat([one, far], new())
    with hsparse.concat([one, far], new_file.filename, copy=True, overwrite=True, index_unique="-") as file:
        assert_alike(file.to_anndata(), anndata.concat([with_x(EYE)] * 2, index_unique="-"))


def test_genes_in_wild_order_are_refused_by_their_number(url: str) -> None:
    genes = [f"g{n:03}" for n in range(MOST_PASSES + 1)]
    datas = [
        anndata.AnnData(np.zeros((1, len(genes))), var=pd.DataFrame(index=some))
        for some in (genes, genes[::-1])
    ]
    files = stored(url, *datas)
    with pytest.raises(
        InvalidValue, match=f"genes of {files[1].filename} are in another.*{MOST_PASSES + 1} mappings"
    ):
        hsparse.concat(files, new(), index_unique="-")
    with hsparse.concat(files, new(), index_unique="-", copy=True) as file:
        assert file["X"].shape == (2, len(genes))


def test_columns_are_divided_into_few_ascending_parts() -> None:
    at = np.array([3, 1, -1, 4, 2, 0, 5])
    found = [(places.tolist(), columns.tolist()) for places, columns in ascending_passes(at)]
    assert found == [([0, 3, 6], [3, 4, 5]), ([1, 4], [1, 2]), ([5], [0])]


def test_the_command(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    one, two, _ = parts("csr", "some missing")
    one.obsp["near"] = sp.eye(one.n_obs, format="csr")
    two.obsp["near"] = sp.eye(two.n_obs, format="csr") * 2
    paths, to = [file.filename for file in stored(url, one, two)], new()
    flags = ["--label", "run", "--keys", "a,b", "--index-unique", "-", "--join", "outer", "--endpoint", url]
    flags += ["--merge", "first", "--uns-merge", "unique", "--fill-value", "0", "--pairwise"]
    assert main(["concat", *paths, "--to", to, *flags]) == 0
    assert capsys.readouterr().out == f"concatenated {paths[0]}, {paths[1]} to {to}\n"
    how: Any = {"label": "run", "index_unique": "-", "join": "outer", "fill_value": 0, "pairwise": True}
    wanted = anndata.concat({"a": one, "b": two}, merge="first", uns_merge="unique", **how)
    assert_alike(open_file(url + to).to_anndata(), wanted)
    assert main(["concat", paths[0], "--to", to, "--endpoint", url]) == 2
    assert f"{to} exists already" in capsys.readouterr().err


@pytest.mark.parametrize("genes", ["the same genes", "some of both"])
@pytest.mark.parametrize("kind", ["csr", "csc", "dense"])
def test_a_file_of_it_is_what_anndata_concatenates(url: str, kind: str, genes: str, tmp_path: Path) -> None:
    """Its matrices have their values in the file."""
    datas, path, to = parts(kind, genes), tmp_path / "out.h5ad", new()
    for data in datas:
        data.raw = data.copy()
    wanted = anndata.concat(datas, join="outer", index_unique="-", label="run")
    with hsparse.concat(stored(url, *datas), new(), join="outer", index_unique="-", label="run") as file:
        assert main(["export", file.filename, str(path), "--endpoint", url]) == 0
        assert main(["cp", file.filename, to, "--endpoint", url]) == 0
        before = file.records()["X"]["creationProperties"]["layout"]
    assert_alike(anndata.read_h5ad(path), wanted)
    copy = open_file(url + to)
    assert copy.records()["X"]["creationProperties"]["layout"] == before
    assert_alike(copy.to_anndata(), wanted)


@pytest.mark.parametrize("join", ["inner", "outer"])
def test_ten_files_of_many_cells(url: str, join: Any) -> None:
    """Each of them lacks other genes, which all have in one order."""
    count, genes = 20_000, np.array([f"g{number:03}" for number in range(300)])
    datas = []
    for number in range(10):
        rng = np.random.default_rng(number)
        own = genes[np.arange(300) % 11 != number]
        values = sp.random(count, len(own), 0.02, "csr", dtype="f4", random_state=rng)
        obs = pd.DataFrame({"n": np.arange(count)}, index=[f"{number}-{cell}" for cell in range(count)])
        datas.append(anndata.AnnData(values, obs=obs, var=pd.DataFrame(index=own)))
    check(url, datas, join=join, label="run")


def test_cells_are_not_appended_to_a_concatenation(url: str) -> None:
    """They would replace what shows the others' cells by a copy of these."""
    datas = parts("csr", "the same genes")
    with ExitStack() as stack:
        files = [stack.enter_context(file) for file in stored(url, *datas)]
        file = stack.enter_context(hsparse.concat(files, new()))
        more = datas[0].copy()
        more.obs_names = [f"new-{name}" for name in more.obs_names]
        with pytest.raises(InvalidValue, match=r"X of .* is virtual"):
            hsparse.append_anndata(file, more)
        assert_alike(file.to_anndata(), anndata.concat(datas))
