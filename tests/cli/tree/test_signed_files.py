"""Files of domains with lower bounds or virtual datasets: what HDF5's layout has no place for stays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.sparse as sp

import hsparse
from hsparse.cli.embedded_server import embedded_server
from hsparse.config import load_settings
from hsparse.hdf5.format.lower_bounds import LOWER, MINLOWER, NO_LIMIT
from tests.cli.tree.conftest import Run

BOUNDS = {"chunks": (4, 3), "maxshape": (None, 20), "lower": (-8, -3), "minlower": (None, -9)}
SHAPE = (11, 5)
LAYOUTS = {"auto": (), "stock": ("--layout", "stock"), "structured": ("--layout", "structured")}


@pytest.fixture
def signed(embedded_url: str, folder: str) -> str:
    """A domain with datasets that have lower bounds; return its path."""
    path = f"{folder}/signed.h5"
    whole = np.arange(1, 56, dtype="i4").reshape(SHAPE)
    with hsparse.open(f"{embedded_url}{path}", "w") as file:
        file.create_sparse("sparse", SHAPE, "i4", **BOUNDS).write_region(
            None, np.where(whole % 3, 0, whole), drop_fill=True
        )
        file.create_dataset("dense", data=whole, compression="gzip", attributes={"unit": "s"}, **BOUNDS)
        file.create_dataset("fixed", data=[1.5, 2.5], lower=-2, chunks=(2,))
        file.create_dataset("text", data=["a", "bc", ""], dtype=object, lower=-3, chunks=(3,))
        file.create_dataset("ordinary", data=[1, 2])
    return path


def compare(one: hsparse.File, other: hsparse.File) -> None:
    assert list(one) == list(other)
    for name in one:
        before, after = one[name], other[name]
        for part in ("shape", "lower", "minlower", "maxshape", "chunks", "__class__"):
            assert getattr(before, part) == getattr(after, part), (name, part)
        assert dict(before.attrs) == dict(after.attrs), name
        np.testing.assert_array_equal(np.asarray(before), np.asarray(after))
    assert places(one["sparse"]) == places(other["sparse"])


@contextmanager
def both(url: str, one: str, other: str, mode: str = "r") -> Iterator[tuple[hsparse.File, hsparse.File]]:
    with hsparse.open(url + one) as first, hsparse.open(url + other, mode) as second:
        yield first, second


def places(dataset: hsparse.SparseDataset) -> list[tuple[int, ...]]:
    return sorted(map(tuple, dataset.defined().tolist()))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_file_counts_from_0_and_an_import_from_the_bound(
    run: Run, signed: str, folder: str, embedded_url: str, tmp_path: Path, layout: str
) -> None:
    path = tmp_path / "signed.h5"
    run("export", signed, str(path), *LAYOUTS[layout])
    with h5py.File(path) as file, hsparse.open(f"{embedded_url}{signed}") as domain:
        names = ["dense", "fixed", "text"] + ["sparse"] * (layout != "structured")
        for name in names:
            values = file[name].asstr()[...] if name == "text" else file[name][...]
            np.testing.assert_array_equal(values, np.asarray(domain[name]))
            assert tuple(file[name].attrs[LOWER]) == domain[name].lower
        assert file["dense"].attrs[MINLOWER].tolist() == [NO_LIMIT, -9]
        assert file["dense"].maxshape == (None, 20)
        assert not file["ordinary"].attrs
    run("import", str(path), f"{folder}/back.h5", "--quiet")
    with both(embedded_url, signed, f"{folder}/back.h5", "a") as (one, other):
        compare(one, other)
        assert other["sparse"].prepend(sp.csr_array(np.full((1, 5), 7))) == slice(-9, -8)


def test_a_copy_keeps_the_bounds(run: Run, signed: str, folder: str, embedded_url: str) -> None:
    run("cp", signed, f"{folder}/copy.h5")
    with both(embedded_url, signed, f"{folder}/copy.h5") as (one, other):
        compare(one, other)


def test_a_file_changed_by_h5py_keeps_the_bound(
    run: Run, signed: str, folder: str, embedded_url: str, tmp_path: Path
) -> None:
    """The bound need not be that of a chunk: then values are sent, not chunks."""
    path = tmp_path / "signed.h5"
    run("export", signed, str(path))
    with h5py.File(path, "a") as file:
        for name in ("sparse", "dense"):
            file[name].attrs[LOWER] = np.array([-7, 100])
            del file[name].attrs[MINLOWER]
        file["ordinary"].attrs[LOWER] = "not a bound"
    run("import", str(path), f"{folder}/back.h5", "--quiet")
    with both(embedded_url, signed, f"{folder}/back.h5") as (one, other):
        for name in ("sparse", "dense"):
            assert other[name].lower == other[name].minlower == (-7, 100)
            np.testing.assert_array_equal(np.asarray(one[name]), np.asarray(other[name]))
        assert places(other["sparse"]) == [(row + 1, column + 103) for row, column in places(one["sparse"])]
        assert (other["ordinary"].attrs[LOWER], other["ordinary"].lower) == ("not a bound", (0,))


def test_matrices_keep_it(run: Run, signed: str, folder: str, embedded_url: str, tmp_path: Path) -> None:
    path = tmp_path / "matrix.h5"
    run("export", signed, str(path), "--matrices", "anndata-csr")
    with h5py.File(path) as file:
        assert tuple(file["sparse"].attrs[LOWER]) == (-8, -3)
    run("import", str(path), f"{folder}/back.h5", "--quiet")
    with both(embedded_url, signed, f"{folder}/back.h5") as (one, other):
        assert (other["sparse"].lower, places(one["sparse"])) == ((-8, -3), places(other["sparse"]))
        np.testing.assert_array_equal(np.asarray(one["sparse"]), np.asarray(other["sparse"]))


def test_h5pyd_sees_it_from_0(signed: str, embedded_url: str) -> None:
    h5pyd = pytest.importorskip("h5pyd", reason="h5pyd is not installed")
    with (
        hsparse.open(f"{embedded_url}{signed}", "a") as domain,
        h5pyd.File(signed, "a", endpoint=embedded_url) as file,
    ):
        for name in ("sparse", "dense"):
            np.testing.assert_array_equal(file[name][...], np.asarray(domain[name]))
            file[name][0, 4] = 77
            file.flush()
            assert (name, domain[name][-8, 1], domain[name].lower) == (name, 77, (-8, -3))
            domain[name].extend(1, side="lower")
    with h5pyd.File(signed, "r", endpoint=embedded_url) as file:
        for name in ("sparse", "dense"):
            assert (file[name].shape, file[name][1, 4]) == ((12, 5), 77)


def test_a_bound_inside_of_a_chunk_is_moved_to_the_first_one_of_a_file(
    run: Run, signed: str, folder: str, embedded_url: str, tmp_path: Path
) -> None:
    path = tmp_path / "moved.h5"
    with hsparse.open(f"{embedded_url}{signed}", "a") as domain:
        sparse, dense = domain["sparse"], domain["dense"]
        sparse.prepend(sp.csr_array([[0, 7, 0, 0, 0]]))
        sparse.prepend(sp.csr_array([[0, 9]] + [[0, 0]] * 11), axis=1)
        dense.drop_before(-6)
        for layout in LAYOUTS:
            run("export", signed, str(path), "--force", *LAYOUTS[layout])
            with h5py.File(path) as file:
                for name in ("sparse", "dense"):
                    np.testing.assert_array_equal(file[name][...], np.asarray(domain[name]))
                    assert file[name].chunks == domain[name].chunks
                    assert tuple(file[name].attrs[LOWER]) == domain[name].lower
                found = np.argwhere(file["sparse.defined"][...]) + sparse.lower
                assert sorted(map(tuple, found.tolist())) == places(sparse)
            run("import", str(path), f"{folder}/{layout}.h5", "--quiet")
            with hsparse.open(f"{embedded_url}{folder}/{layout}.h5") as other:
                compare(domain, other)
    run("cp", signed, f"{folder}/copy.h5")
    with both(embedded_url, signed, f"{folder}/copy.h5") as (one, other):
        compare(one, other)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A directory, and the URL of the place as which a server serves its files."""
    directory = tmp_path_factory.mktemp("signed") / "runs"
    directory.mkdir()
    root = tmp_path_factory.mktemp("root")
    with embedded_server(load_settings(root=root, port=0, fsync=False, files=(str(directory),))) as url:
        yield directory, f"{url}/runs"


FORMS = {**LAYOUTS, "anndata-csr": ("--matrices", "anndata-csr")}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("moved", [False, True], ids=["whole chunks", "inside of a chunk"])
def test_a_served_file_has_the_bounds(
    run: Run, signed: str, place: tuple[Path, str], embedded_url: str, form: str, moved: bool
) -> None:
    directory, url = place
    name = f"{form}-{moved}.h5"
    with hsparse.open(f"{embedded_url}{signed}", "a") as domain:
        domain.create_sparse("rows", (6, 5), "i4", chunks=(4, 5), maxshape=(None, 5), minlower=(None, 0))
        domain["rows"][5] = np.arange(5)
        domain["rows"].prepend(sp.csr_array(np.eye(8, 5, dtype="i4")))
        if moved:
            domain["sparse"].prepend(sp.csr_array([[0, 7, 0, 0, 0]]))
            domain["rows"].prepend(sp.csr_array([[0, 7, 0, 0, 8]]))
            domain["dense"].drop_before(-6)
    command = ("export", signed, str(directory / name), *FORMS[form])
    if moved and form == "anndata-csr":
        run(*command, status=2)
        return
    run(*command)
    with hsparse.open(f"{embedded_url}{signed}") as domain, hsparse.open(f"{url}/{name}") as served:
        for path in ("rows", "dense", "fixed", "text", "ordinary"):
            one, other = domain[path], served[path]
            assert (one.lower, one.shape) == (other.lower, other.shape)
            if form != "anndata-csr" or path != "rows":  # a matrix has a fixed shape and AnnData's attributes
                assert (one.minlower, one.maxshape) == (other.minlower, other.maxshape)
                assert dict(one.attrs) == dict(other.attrs)
            np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
            np.testing.assert_array_equal(np.asarray(one)[1:], other.to_numpy(slice(one.lower[0] + 1, None)))
        for path in ("rows",) if form == "anndata-csr" else ("rows", "sparse"):
            assert places(domain[path]) == places(served[path])
        if form == "anndata-csr":
            with pytest.raises(hsparse.HsparseError, match="sparse"):
                served["sparse"]


def test_a_map_of_a_file_is_refused_where_no_reader_has_bounds(signed: str, embedded_url: str) -> None:
    with hsparse.open(f"{embedded_url}{signed}") as domain:
        for places in ("signed", None):
            asked = {"format": "kerchunk", "addresses": "file", "layout": "stock", "places": places}
            with pytest.raises(hsparse.HsparseError, match="lower bound"):
                domain.connection.json("GET", f"/datasets/{domain['dense'].id}/map", **asked)
        answer = domain.connection.json(
            "GET", f"/datasets/{domain['sparse'].id}/map", addresses="file", places="signed"
        )
        assert {tuple(row["scaled"]) for row in answer["chunks"]} <= {
            (row, column) for row in (-2, -1, 0) for column in (-1, 0)
        }
        assert all(row["file"]["size"] for row in answer["chunks"] if row["defined"])


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


def test_a_file_has_the_dense(run: Run, virtual: str, folder: str, embedded_url: str, tmp_path: Path) -> None:
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
            assert (after[name][3:], after[name][0]["class"]) == (was[3:], "H5D_STRUCT_CHUNK")
    run("import", str(path), f"{folder}/copied.h5", "--copy", status=3)  # the sources are not beside the file
    with hsparse.open(f"{embedded_url}{folder}/copied.h5") as file:
        assert set(file["dense/both"].attrs) == set(before["dense/both"][4])


def test_an_exported_copy_has_the_values(run: Run, virtual: str, embedded_url: str, tmp_path: Path) -> None:
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
