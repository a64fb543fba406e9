"""What h5py's users write, by the same words in h5py and here: the values are h5py's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.sparse as sp
import sparse

import hsparse
from hsparse.client.connection import Connection

FRAME = np.arange(12.0).reshape(4, 3)


@pytest.fixture
def file(connection: Connection) -> Iterator[hsparse.File]:
    with hsparse.open(f"{connection.url}{connection.domain}") as found:
        assert isinstance(found, hsparse.File)
        yield found


@pytest.fixture
def both(file: hsparse.File, tmp_path: Path) -> Iterator[tuple[Any, Any]]:
    """A file of h5py and one of hsparse with the same groups and datasets."""
    with h5py.File(tmp_path / "same.h5", "w") as local:
        for one in (local, file):
            one.create_group("a/b").create_dataset("x", data=FRAME, compression="gzip")
            one["a/y"] = np.array([1, 2, 3])
            one["a/y"].attrs["unit"] = "s"
            one["a/b"].attrs.update({"title": "text", "numbers": np.arange(3)})
            one["same"] = one["a/y"]
            one["soft"] = h5py.SoftLink("/a/y")
        yield local, file


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "gzip"},
        {"compression": "gzip", "compression_opts": 9, "shuffle": True},
        {"compression": 7},
        {"compression": "lzf", "fletcher32": True},
        {"chunks": True},
        {"chunks": (2, 3), "shuffle": True, "compression": True},
        {"maxshape": (None, 3)},
        {"maxshape": (8, None), "compression": "gzip", "fillvalue": 5},
        {"maxshape": (8, 3)},
        {"fillvalue": -1.5},
    ],
    ids=str,
)
def test_options_of_a_dataset_are_h5pys(file: hsparse.File, tmp_path: Path, options: dict[str, Any]) -> None:
    with h5py.File(tmp_path / "options.h5", "w") as local:
        wanted = local.create_dataset("x", (4, 3), "f8", **options)
        found = file.create_dataset("x", (4, 3), "f8", **options)
        again = hsparse.open(f"{file.connection.url}{file.filename}")
        assert isinstance(again, hsparse.File)
        for one in (found, again["x"]):
            assert isinstance(one, hsparse.DenseDataset)
            for name in (
                "shape",
                "maxshape",
                "compression",
                "compression_opts",
                "shuffle",
                "fletcher32",
                "nbytes",
            ):
                assert getattr(one, name) == getattr(wanted, name), name
            assert one.fillvalue == wanted.fillvalue
            np.testing.assert_array_equal(one[...], wanted[...])
        if options.get("chunks") is not True:
            sparse_one = file.create_sparse("s", (4, 3), "f8", **options)
            assert (sparse_one.maxshape, sparse_one.compression) == (wanted.maxshape, wanted.compression)
            assert sparse_one.fillvalue == wanted.fillvalue


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ((5,), {"dtype": "i2"}),
        ((None,), {"data": [1, 2, 3], "maxshape": (None,)}),
        ((None,), {"data": 7.5}),
        ((None,), {"data": "text é"}),
        (((3, 2),), {"data": np.arange(6)}),
        (((2,),), {"data": ["a", "é"]}),
        (((),), {"dtype": "i8"}),
    ],
    ids=str,
)
def test_forms_of_a_shape(
    file: hsparse.File, tmp_path: Path, arguments: tuple[Any, ...], options: dict[str, Any]
) -> None:
    with h5py.File(tmp_path / "shape.h5", "w") as local:
        wanted = local.create_dataset("x", *arguments, **options)
        found = file.create_dataset("x", *arguments, **options)
        assert found.shape == wanted.shape
        values = wanted.asstr()[()] if wanted.dtype == object else wanted[()]
        np.testing.assert_array_equal(found[...], values)
    with pytest.raises(ValueError, match="6 values"):
        file.create_dataset("y", (4,), data=np.arange(6))
    with pytest.raises(ValueError, match="whole pipeline"):
        file.create_dataset("y", (4,), "f4", compression="gzip", filters=["lzf"])


def test_a_registered_filter_has_its_client_values(file: hsparse.File) -> None:
    """As hdf5plugin's classes give them."""
    x = file.create_dataset(
        "x", data=FRAME, chunks=(2, 3), compression=32001, compression_opts=(0, 0, 0, 0, 5, 1, 0)
    )
    np.testing.assert_array_equal(x[...], FRAME)
    assert x.compression is not None


def test_objects_are_visited_as_in_h5py(both: tuple[Any, Any]) -> None:
    found: list[list[Any]] = []
    for one in both:
        names: list[Any] = []
        one.visit(names.append)
        kinds: list[tuple[str, bool]] = []
        one.visititems(lambda path, member, kinds=kinds: kinds.append((path, hasattr(member, "shape"))))
        stopped = one.visititems(lambda path, member: member.name if path.endswith("x") else None)
        below: list[Any] = []
        one["a"].visit(below.append)
        found.append([names, kinds, stopped, below])
    assert found[0] == found[1]


def test_links_are_asked_for_as_in_h5py(both: tuple[Any, Any]) -> None:
    local, file = both
    for path in ("a", "a/b/x", "soft", "same"):
        assert type(local.get(path, getlink=True)).__name__ == type(file.get(path, getlink=True)).__name__
        assert (local.get(path, getclass=True) is h5py.Group) == (
            file.get(path, getclass=True) is hsparse.Group
        )
    assert local.get("soft", getlink=True).path == file.get("soft", getlink=True).path
    for one in both:
        assert one.get("none") is None
        assert one.get("a/none", 5) == 5
        assert one.get("none/x", 5, getlink=True) == 5
        assert one["same"] == one["a/y"] == one["soft"]
        assert one["a"] == one["a"] != one["a/b"]
        assert len({one["a"], one["a"], one["same"], one["soft"]}) == 2


def test_objects_are_moved_as_in_h5py(both: tuple[Any, Any]) -> None:
    for one in both:
        one.move("a/b", "new/place")
        one.move("soft", "a/soft")
        one["deep/link"] = one["same"]
        del one["a/y"]
        with pytest.raises((KeyError, ValueError)):
            one.move("none", "other")
        with pytest.raises(KeyError):
            del one["a/none"]
        assert sorted(one) == ["a", "deep", "new", "same"]
        assert sorted(one["a"]) == ["soft"]
        assert one["new/place/x"][1, 2] == 5
        assert one["deep/link"] == one["same"]


def test_objects_are_copied_as_in_h5py(both: tuple[Any, Any]) -> None:
    for one in both:
        one.copy("a", "copies/a")
        one.copy(one["a/y"], one["copies"])
        one.copy("a/y", one["copies"], "named", without_attrs=True)
        one.copy("a", "flat", shallow=True)
        one["a/y"][0] = 9
        assert sorted(one["copies"]) == ["a", "named", "y"]
        assert one["copies/a/y"][...].tolist() == one["copies/y"][...].tolist() == [1, 2, 3]
        assert one["copies/a/y"] != one["a/y"]
        assert one["copies/a/y"].attrs["unit"] == "s"
        assert not len(one["copies/named"].attrs)
        assert one["copies/a/b"].attrs["title"] == "text"
        assert one["copies/a/b"].attrs["numbers"].tolist() == [0, 1, 2]
        np.testing.assert_array_equal(one["copies/a/b/x"][...], FRAME)
        assert (sorted(one["flat"]), len(one["flat/b"])) == (["b", "y"], 0)
        with pytest.raises((ValueError, RuntimeError, FileExistsError)):
            one.copy("a", "copies/a")


def test_copies_between_files_and_of_sparse_datasets(file: hsparse.File, url: str) -> None:
    x = file.create_sparse(
        "x", (50, 40), "u2", (8, 40), maxshape=(None, 40), fillvalue=3, attributes={"a": 1}
    )
    x.write([[0, 0], [49, 39]], [3, 7])
    file["null"] = np.zeros((0, 4))
    with hsparse.open(f"{url}/copied.h5", "w") as other:
        assert isinstance(other, hsparse.File)
        for name in ("x", "null"):
            file.copy(name, other)
        found = other["x"]
        assert isinstance(found, hsparse.SparseDataset)
        assert (found.nnz, found.chunks, found.maxshape, found.fillvalue) == (2, (8, 40), (None, 40), 3)
        assert (found[49, 39], found.attrs["a"], other["null"].shape) == (7, 1, (0, 4))  # type: ignore[union-attr]


def test_datasets_are_required_as_in_h5py(both: tuple[Any, Any]) -> None:
    for one in both:
        assert one.require_dataset("a/y", (3,), "i8") == one["a/y"]
        assert one.require_dataset("a/y", 3, "i4") == one["a/y"]
        assert one.require_dataset("a/z", (2, 2), "f4").shape == (2, 2)
        for shape, dtype, exact in (((4,), "i8", False), ((3,), "f8", False), ((3,), "i4", True)):
            with pytest.raises(TypeError):
                one.require_dataset("a/y", shape, dtype, exact)
        with pytest.raises(TypeError):
            one.require_dataset("a/b", (3,), "i8")


def test_a_tree_is_printed(file: hsparse.File) -> None:
    file["a/words"] = ["x", "y"]
    file.create_sparse("a/x", (0, 512, 512), "u2", maxshape=(None, 512, 512))
    assert file.tree().splitlines() == [
        "/",
        "  a/",
        "    words  (2,) object",
        "    x  (0, 512, 512) uint16, sparse",
    ]


@pytest.mark.parametrize("rank", [1, 2, 3, 4])
@pytest.mark.parametrize("fill", [0, 5])
def test_sparse_arrays_are_assigned_to_a_path(file: hsparse.File, rank: int, fill: int) -> None:
    dense = np.random.default_rng(rank).integers(0, 3, (7, 5, 4, 3)[:rank]) + fill
    array = sparse.COO.from_numpy(dense, fill_value=fill)
    file["deep/x"] = array
    made = file.create_sparse("data", data=array)
    plain = file.create_sparse("plain", data=dense, fillvalue=fill)
    for found in (file["deep/x"], made, plain):
        assert isinstance(found, hsparse.SparseDataset)
        assert (found.nnz, found.fillvalue, found.dtype) == (array.nnz, fill, dense.dtype)
        np.testing.assert_array_equal(found.to_numpy(), dense)
    if rank > 2 or fill:
        return
    for number, form in enumerate((sp.csr_array, sp.csc_matrix, sp.coo_array, sparse.GCXS)):
        file[f"form{number}"] = form(np.atleast_2d(dense))
        member = file[f"form{number}"]
        assert isinstance(member, hsparse.SparseDataset)
        assert member.nnz == array.nnz


def test_arrays_of_sparse_are_stored_by_from_scipy(file: hsparse.File) -> None:
    array = sparse.random((20, 30, 10), 0.05, random_state=1)
    stored = hsparse.from_scipy(file, "a/b/x", array, chunks=(5, 30, 10), progress=False)
    assert (stored.name, stored.chunks, stored.nnz) == ("/a/b/x", (5, 30, 10), array.nnz)
    assert (stored.to_coo() != array).nnz == 0
    with pytest.raises(FileExistsError):
        hsparse.from_scipy(file, "a/b/x", array)
    with pytest.raises(TypeError, match="sparse"):
        hsparse.from_scipy(file, "y", np.zeros((2, 2)))  # type: ignore[arg-type]


def test_links_of_h5py_are_taken(both: tuple[Any, Any]) -> None:
    for one in both:
        one["outside"] = h5py.ExternalLink("/home/admin/other.h5", "/x")
        link = one.get("outside", getlink=True)
        assert (link.filename, link.path) == ("/home/admin/other.h5", "/x")
        assert one.get("soft", getlink=True).path == "/a/y"
