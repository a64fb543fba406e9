"""Labels along the dimensions of an AnnData's arrays."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import hsparse
from hsparse.client.anndata.axis_labels import AxisLabels, frames_of
from hsparse.client.anndata.domain_tree import DomainTree
from tests.client.anndata.anndata_examples import COLUMNS, ROWS, names


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
    tree = DomainTree(file.connection, file.records())
    labels = AxisLabels(lambda: tree)
    requests.clear()
    of_x, of_raw = labels.of("/X"), labels.of("/raw/X")
    assert requests == []
    for _ in range(2):
        assert list(of_x(0)) == list(of_raw(0)) == names("cell", ROWS)  # type: ignore[arg-type]
        assert list(of_x(1)) == names("gene", COLUMNS)[::2]  # type: ignore[arg-type]
        assert list(of_raw(1)) == names("gene", COLUMNS)  # type: ignore[arg-type]
    assert len(requests) == 3
    assert labels.of("/varp/x")(2) is None
    assert labels.of("/uns/x")(0) is None


def test_a_domain_without_frames_has_no_labels(new_file: hsparse.File) -> None:
    tree = DomainTree(new_file.connection, {})
    assert AxisLabels(lambda: tree).of("/X")(0) is None
