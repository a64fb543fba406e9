"""Experiments of TileDB-SOMA, imported and compared with the AnnData that tiledbsoma makes of them."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
from anndata.tests.helpers import assert_equal

import hsparse
from hsparse.cli.main import main
from tests.cli.importer.conftest import Import, Refused, opened
from tests.client.anndata.anndata_examples import EXAMPLES
from tests.support.changed_bytes import change_bytes

pytestmark = pytest.mark.filterwarnings("ignore")
NAMES = [
    "plain", "column_kinds", "layers", "unstructured", "by_gene", "dense", "without_elements", "dimensions",
]  # fmt: skip


def example(name: str) -> anndata.AnnData:
    """Return an AnnData without what tiledbsoma does not write."""
    data = EXAMPLES[name]()
    for key in ("table", "cube"):
        data.obsm.pop(key, None)
    data.obsp.pop("dense", None)
    for key in ("nothing", "complex", "waves", "matrix"):
        data.uns.pop(key, None)
    if name == "column_kinds":
        data.obs["maybe text"] = [None if n % 3 == 0 else f"é{n}" for n in range(data.n_obs)]
    return data


def context() -> Any:
    """Return a context of little memory: by default each column has a buffer of a gigabyte."""
    import tiledbsoma

    return tiledbsoma.SOMATileDBContext(tiledb_config={"soma.init_buffer_bytes": 1 << 20})


def opened_for_writing(path: Path) -> Any:
    import tiledbsoma

    return tiledbsoma.Experiment.open(str(path), "w", context=context())


def write(path: Path, data: anndata.AnnData, **options: Any) -> None:
    """Write an experiment by tiledbsoma 2.3, which cannot write the X that is among the layers of AnnData 0.13."""
    import tiledbsoma.io

    layers = type(data.layers)
    items = layers.items
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layers, "items", lambda all: ((name, one) for name, one in items(all) if name))
        tiledbsoma.io.from_anndata(str(path), data, "RNA", context=context(), **options)


def experiment(path: Path, name: str = "plain") -> Path:
    write(path, example(name))
    return path


def read(path: Path, name: str = "RNA") -> anndata.AnnData:
    import tiledbsoma.io

    with tiledbsoma.open(str(path), context=context()) as file:
        layers = [one for one in file.ms[name].X if one != "data"]
        return tiledbsoma.io.to_anndata(file, name, extra_X_layer_names=layers)


@pytest.mark.parametrize("name", NAMES)
def test_an_experiment_is_what_tiledbsoma_reads(imported: Import, tmp_path: Path, name: str) -> None:
    path = experiment(tmp_path / "cells", name)
    with warnings.catch_warnings(action="error"):
        connection = imported(path)
    with opened(connection) as file:
        found, expected = file.to_anndata(), read(path)
        if name == "column_kinds":  # AnnData has no truth values and text with gaps but in these forms
            expected.obs["smoker"] = expected.obs["smoker"].astype("boolean")
            expected.obs["maybe text"] = pd.Categorical(expected.obs["maybe text"])
        assert_equal(found, expected)
        assert found.X.dtype == expected.X.dtype
        assert isinstance(file["X"], hsparse.SparseDataset)


def test_one_of_several_measurements(refused: Refused, imported: Import, tmp_path: Path) -> None:
    """What AnnData calls raw is a measurement of its own."""
    path = experiment(tmp_path / "cells", "with_raw")
    assert "has 2 measurements: name one of RNA, raw by --part" in refused(path)
    assert "has no measurement ATAC" in refused(path, "--part", "ATAC")
    for name in ("RNA", "raw"):
        with opened(imported(path, "--part", name)) as file:
            assert_equal(file.to_anndata(), read(path, name))


def test_a_dense_layer(imported: Import, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dense layers are read by rows, sparse ones by tables."""
    import tiledbsoma.io

    monkeypatch.setattr("hsparse.hdf5.importer.formats.soma_experiment.BAND_BYTES", 1000)
    monkeypatch.setattr("hsparse.hdf5.importer.formats.soma_experiment.COLUMN_BYTES", 1 << 10)
    monkeypatch.setattr("hsparse.hdf5.importer.formats.part_upload.MAX_INLINE_BYTES", 100)
    data = example("dense")
    path = tmp_path / "cells"
    write(path, data, X_kind=tiledbsoma.DenseNDArray)
    with opened(imported(path)) as file:
        assert np.array_equal(file["X"][()], data.X)
    shutil.rmtree(path)
    write(path, data)
    with opened(imported(path)) as file:
        assert np.array_equal(file.to_anndata().X.toarray(), data.X)


@pytest.mark.parametrize("count", [2, 6])
def test_an_import_that_was_stopped_goes_on(resumed: Import, tmp_path: Path, count: int) -> None:
    path = experiment(tmp_path / "cells")
    with opened(resumed(path, count)) as file:
        assert_equal(file.to_anndata(), read(path))


# --- damage ---------------------------------------------------------------------------------------


def only(path: Path, pattern: str) -> Path:
    return sorted(path.glob(pattern))[0]


def removed(pattern: str) -> Callable[[Path], None]:
    def run(path: Path) -> None:
        found = only(path, pattern)
        shutil.rmtree(found) if found.is_dir() else found.unlink()

    return run


def overwritten(pattern: str) -> Callable[[Path], None]:
    return lambda path: only(path, pattern).write_bytes(b"no such thing" * 9) and None


def cut(pattern: str) -> Callable[[Path], None]:
    return lambda path: os.truncate(only(path, pattern), 40)


def linked(path: Path) -> None:
    (path / "obs" / "link").symlink_to("/etc/passwd")


def elsewhere(path: Path) -> None:
    """Let the experiment have a member that is not below it."""
    import tiledbsoma

    other = experiment(path.parent / "other")
    with opened_for_writing(path) as file, tiledbsoma.open(str(other), context=context()) as wanted:
        file.set("more", wanted.obs, use_relative_uri=False)


def not_an_experiment(path: Path) -> None:
    found = path.rename(path.parent / "whole")
    (found / "ms" / "RNA").rename(path)


def negative(path: Path) -> None:
    """Let a layer have an element beyond the frames."""
    import pyarrow

    with opened_for_writing(path) as file:
        layer = file.ms["RNA"].X.add_new_sparse_ndarray("big", type=pyarrow.float32(), shape=(1000, 1000))
        place = np.array([[900, 900]])
        layer.write(pyarrow.SparseCOOTensor.from_numpy(np.ones(1, np.float32), place, shape=(1000, 1000)))


DAMAGES: list[tuple[Callable[[Path], None], str]] = [
    (removed("obs"), "tiledbsoma cannot read it"),
    (removed("ms/RNA/var"), "tiledbsoma cannot read it"),
    (removed("ms/RNA/X/data/__schema"), "tiledbsoma cannot read it"),
    (overwritten("ms/RNA/X/data/__schema/__*"), "tiledbsoma cannot read it"),
    (overwritten("ms/RNA/X/data/__fragments/*/a0.tdb"), "/X: tiledbsoma cannot read it"),
    (cut("ms/RNA/X/data/__fragments/*/d1.tdb"), "/X: tiledbsoma cannot read it"),
    (cut("obs/__fragments/*/a0_var.tdb"), "/ms/RNA: tiledbsoma cannot read it"),
    (removed("__group"), ""),
    (linked, "is a link, or no file"),
    (elsewhere, "outside of the experiment: copy it into the experiment"),
    (not_an_experiment, "is a Measurement of TileDB-SOMA; an Experiment is imported"),
    (negative, "/layers/big: "),
]


@pytest.mark.parametrize(("damage", "said"), DAMAGES)
def test_a_damaged_experiment_is_refused(refused: Refused, tmp_path: Path, damage: Any, said: str) -> None:
    path = experiment(tmp_path / "cells")
    damage(path)
    errors = refused(path)
    assert said in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize("seed", range(10))
def test_an_experiment_with_other_bytes_is_refused_or_read_as_tiledbsoma_does(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], seed: int
) -> None:
    path = experiment(tmp_path / "cells")
    rng = np.random.default_rng(seed)
    for file in rng.choice(np.array(sorted(one for one in path.rglob("*") if one.is_file())), 3):
        change_bytes(file, rng, 1)
    domain = f"/home/admin/soma-{seed}-damaged.h5"
    if main(["import", str(path), domain, "--endpoint", url]) == 2:
        assert "cannot read it" in capsys.readouterr().err
        return
    with hsparse.open(f"{url}{domain}") as file:
        assert_equal(file.to_anndata(), read(path))
