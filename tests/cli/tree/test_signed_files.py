"""Files of datasets with a lower bound: they count from 0, and say where that is, which an import takes back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

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
        about = [
            (d.shape, d.lower, d.minlower, d.maxshape, d.chunks, type(d), dict(d.attrs))
            for d in (before, after)
        ]
        assert about[0] == about[1], name
        np.testing.assert_array_equal(np.asarray(before), np.asarray(after))
    assert places(one["sparse"]) == places(other["sparse"])


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
    with (
        hsparse.open(f"{embedded_url}{signed}") as one,
        hsparse.open(f"{embedded_url}{folder}/back.h5", "a") as other,
    ):
        compare(one, other)
        assert other["sparse"].prepend(sp.csr_array(np.full((1, 5), 7))) == slice(-9, -8)


def test_a_copy_keeps_the_bounds(run: Run, signed: str, folder: str, embedded_url: str) -> None:
    run("cp", signed, f"{folder}/copy.h5")
    with (
        hsparse.open(f"{embedded_url}{signed}") as one,
        hsparse.open(f"{embedded_url}{folder}/copy.h5") as other,
    ):
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
    with (
        hsparse.open(f"{embedded_url}{signed}") as one,
        hsparse.open(f"{embedded_url}{folder}/back.h5") as other,
    ):
        for name in ("sparse", "dense"):
            assert other[name].lower == other[name].minlower == (-7, 100)
            np.testing.assert_array_equal(np.asarray(one[name]), np.asarray(other[name]))
        assert places(other["sparse"]) == [(row + 1, column + 103) for row, column in places(one["sparse"])]
        assert other["ordinary"].attrs[LOWER] == "not a bound"
        assert other["ordinary"].lower == (0,)


def test_a_matrix_keeps_the_bound(
    run: Run, signed: str, folder: str, embedded_url: str, tmp_path: Path
) -> None:
    path = tmp_path / "matrix.h5"
    run("export", signed, str(path), "--matrices", "anndata-csr")
    with h5py.File(path) as file:
        assert tuple(file["sparse"].attrs[LOWER]) == (-8, -3)
    run("import", str(path), f"{folder}/back.h5", "--quiet")
    with (
        hsparse.open(f"{embedded_url}{signed}") as one,
        hsparse.open(f"{embedded_url}{folder}/back.h5") as other,
    ):
        assert other["sparse"].lower == (-8, -3)
        assert places(one["sparse"]) == places(other["sparse"])
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
            assert file[name].shape == (12, 5)
            assert file[name][1, 4] == 77


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
    with (
        hsparse.open(f"{embedded_url}{signed}") as one,
        hsparse.open(f"{embedded_url}{folder}/copy.h5") as other,
    ):
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
