"""Copies, files and imports of domains with virtual datasets: what HDF5's layout has no place for stays, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import hsparse
from tests.cli.tree.conftest import Run


@pytest.fixture
def virtual(embedded_url: str, folder: str) -> str:
    """A domain with virtual datasets over one beside it, dense and sparse; return its path."""
    path = f"{folder}/v.h5"
    with hsparse.open(f"{embedded_url}{folder}/source.h5", "w") as file:
        file.create_dataset(
            "dense", data=np.arange(24, dtype="i4").reshape(6, 4), maxshape=(None, 4), chunks=(2, 4)
        )
        file.create_sparse("sparse", (6, 4), "f4", chunks=(2, 4)).write(
            [[0, 1], [5, 3], [4, 0]], [0.0, 7.5, -1.0]
        )
    with hsparse.open(f"{embedded_url}{path}", "w") as file:
        for name, options in {
            "plain": {},
            "dims": {"chunks": (3, 2)},
            "fill": {"missing": "fill"},
            "both": {"chunks": (4, 3), "missing": "fill"},
        }.items():
            for kind in ("dense", "sparse"):
                is_sparse = kind == "sparse"
                layout = hsparse.VirtualLayout(
                    (12, 4), "f4" if is_sparse else "i4", sparse=is_sparse, **options
                )
                layout[0:6] = hsparse.VirtualSource("source.h5", kind, (6, 4))
                if "missing" in options:
                    layout[6:12] = hsparse.VirtualSource("away.h5", kind, (6, 4))
                made = file.create_virtual_dataset(f"{kind}/{name}", layout)
                made.attrs["unit"] = "s"
                made.attrs["DIMENSION_LABELS"] = ["time", "x"]
        file.create_virtual_dataset("none", hsparse.VirtualLayout((5, 4), "f4", sparse=True))
    return path


def about(url: str, path: str) -> dict[str, Any]:
    """Return what is to stay: layouts, but for the names of files, and values."""
    found: dict[str, Any] = {}
    with hsparse.open(f"{url}{path}") as file:
        for name in [f"{kind}/{name}" for kind in ("dense", "sparse") for name in file[kind]] + ["none"]:
            one = file[name]
            layout = file.records()[name]["creationProperties"]["layout"]
            for mapping in layout.get("mappings", []):
                mapping["file"] = mapping["file"].rpartition("/")[2]
            values = one[:] if isinstance(one, hsparse.DenseDataset) else one[:].toarray()
            attributes = {title: np.asarray(value).tolist() for title, value in one.attrs.items()}
            found[name] = (layout, one.shape, one.chunks, values.tolist(), attributes)
            if isinstance(one, hsparse.SparseDataset):
                found[name] += (one.defined().tolist(),)
    return found


def test_a_copy_has_the_layouts(run: Run, virtual: str, folder: str, embedded_url: str) -> None:
    run("mkdir", f"{folder}/other")
    before = about(embedded_url, virtual)
    for target in (f"{folder}/copy.h5", f"{folder}/other/copy.h5"):
        run("cp", virtual, target)
        assert about(embedded_url, target) == before


def test_a_file_has_those_of_dense_ones(
    run: Run, virtual: str, folder: str, embedded_url: str, tmp_path: Path
) -> None:
    """An import gives them back; sparse ones are there with their values."""
    path = tmp_path / "v.h5"
    run("export", virtual, str(path))
    with h5py.File(path) as file:
        assert all(one.is_virtual for one in file["dense"].values())
        assert not any(one.is_virtual for one in file["sparse"].values())
    before = about(embedded_url, virtual)
    with hsparse.open(f"{embedded_url}{folder}/away.h5", "w") as file:  # else it is no source in reach
        file.create_dataset("dense", data=np.full((6, 4), 3, "i4"))
    run("import", str(path), f"{folder}/back.h5")
    after = about(embedded_url, f"{folder}/back.h5")
    for name, was in before.items():
        if name.startswith("dense"):
            assert (after[name][0], after[name][2], after[name][4]) == (was[0], was[2], was[4])
        else:
            assert after[name][3:] == was[3:]
            assert after[name][0]["class"] == "H5D_STRUCT_CHUNK"
    run("import", str(path), f"{folder}/copied.h5", "--copy", status=3)  # the sources are not beside the file
    with hsparse.open(f"{embedded_url}{folder}/copied.h5") as file:
        assert set(file["dense/both"].attrs) == set(before["dense/both"][4])


def test_an_export_of_copied_ones_has_the_values_alone(
    run: Run, virtual: str, embedded_url: str, tmp_path: Path
) -> None:
    path = tmp_path / "v.h5"
    run("export", virtual, str(path), "--virtual", "copied")
    before = about(embedded_url, virtual)
    with h5py.File(path) as file:
        for name, was in before.items():
            assert not file[name].is_virtual
            assert file[name][()].tolist() == was[3]
            assert "hsparse_virtual" not in file[name].attrs


@pytest.mark.parametrize("layout", ["auto", "stock", "structured"])
def test_elements_of_any_kind(run: Run, folder: str, embedded_url: str, tmp_path: Path, layout: str) -> None:
    """Text and compounds come back from a file of each layout."""
    pair, path = np.dtype([("a", "i4"), ("b", "f8")]), tmp_path / "v.h5"
    with hsparse.open(f"{embedded_url}{folder}/source.h5", "w") as file:
        words = np.array(["a", "bcd", ""], object)
        file.create_sparse("text", (6, 4), str, chunks=(2, 4)).write([[0, 1], [5, 3], [4, 0]], words)
        pairs = np.array([(1, 2.5), (3, 4.5)], pair)
        file.create_sparse("pairs", (6, 4), pair, chunks=(2, 4)).write([[1, 1], [5, 0]], pairs)
        file.create_dataset("words", data=["x", "yy", "zzz"], dtype=object)
    with hsparse.open(f"{embedded_url}{folder}/v.h5", "w") as file:
        for name, kind in {"text": str, "pairs": pair}.items():
            made = hsparse.VirtualLayout((8, 4), kind, sparse=True)
            made[2:8] = hsparse.VirtualSource("source.h5", name, (6, 4))
            file.create_virtual_dataset(name, made)
        made = hsparse.VirtualLayout((4,), str)
        made[1:4] = hsparse.VirtualSource("source.h5", "words", (3,))
        file.create_virtual_dataset("words", made)
    run("export", f"{folder}/v.h5", str(path), "--virtual", "copied", "--layout", layout)
    run("import", str(path), f"{folder}/back.h5")
    with hsparse.open(f"{embedded_url}{folder}/back.h5") as file:
        assert file["words"][:].tolist() == ["", "x", "yy", "zzz"]
        assert file["text"].defined().tolist() == [[2, 1], [6, 0], [7, 3]]
        assert [file["text"][place] for place in [(2, 1), (6, 0), (7, 3)]] == ["a", "", "bcd"]
        assert file["pairs"].defined().tolist() == [[3, 1], [7, 0]]
        assert file["pairs"][7, 0].tolist() == (3, 4.5)
