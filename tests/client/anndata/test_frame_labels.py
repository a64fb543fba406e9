"""Labels along the dimensions of an AnnData's arrays."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest

import hsparse
from hsparse.client.errors import InvalidValue
from hsparse.client.indexing.frame_labels import FrameLabels, frames_of
from tests.client.anndata.anndata_examples import COLUMNS, EXAMPLES, ROWS, names


@pytest.mark.parametrize(
    ("path", "frames"),
    [
        ("/X", ("obs", "var")),
        ("layers/counts", ("obs", "var")),
        ("obsm/X_pca", ("obs",)),
        ("varm/PCs", ("var",)),
        ("obsp/distances", ("obs", "obs")),
        ("varp/x", ("var", "var")),
        ("raw/X", ("obs", "raw/var")),
        ("raw.X", ("obs", "raw.var")),
        ("uns/x", ()),
        ("layers", ()),
        ("X/data", ()),
        ("raw", ()),
        ("", ()),
    ],
)
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
    with pytest.raises(InvalidValue, match="'gene1' is more than once among the names of var"):
        new_file.query(var=["gene1"]).to_scipy()
