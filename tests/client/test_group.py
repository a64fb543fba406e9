"""Groups, links, attributes and datasets by the words of h5py: the values are h5py's."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.sparse as sp
import sparse

import hsparse
from hsparse.client.file import File
from tests.client.access_ways import open_file


def test_paths_lead_to_objects(file: File) -> None:
    file.create_group("a/b").create_dataset("x", data=np.arange(6).reshape(2, 3))
    assert list(file) == ["a"]
    assert "a/b/x" in file
    assert "a/none" not in file
    assert file["a"]["b"]["x"].name == "/a/b/x"
    assert file["a/b"]["/a/b/x"][1].tolist() == [3, 4, 5]  # type: ignore[index]
    with pytest.raises(KeyError, match="/a/c"):
        file["a/c"]


def test_links(file: File) -> None:
    x = file.create_dataset("x", data=[1, 2])
    file["same"] = x
    file["soft"] = hsparse.SoftLink("/x")
    file["away"] = hsparse.ExternalLink("/other.h5", "/y")
    file["array"] = np.array(["é", "b"])
    assert sorted(file) == ["array", "away", "same", "soft", "x"]
    assert file["same"].id == file["soft"].id == x.id
    assert file["array"][...].tolist() == ["é", "b"]  # type: ignore[index]
    with pytest.raises(FileExistsError):
        file.create_group("x")
    with pytest.raises(FileExistsError):
        file["same"] = hsparse.SoftLink("/y")
    del file["same"]
    assert "same" not in file
    with pytest.raises(KeyError):
        del file["same"]


@pytest.mark.parametrize(
    "value",
    [
        7, 2.5, "text é", True, np.uint8(3), np.array([1.5, np.nan]), ["a", "bc"], np.array([[True, False]]),
        np.array([(1, 2.5)], [("i", "i4"), ("f", "f8")]), np.zeros((0, 3), np.int16), None, b"bytes",
    ],
    ids=repr,
)  # fmt: skip
def test_attributes_come_back(file: File, value: object) -> None:
    file.attrs["a/b"] = value
    found = hsparse.open(f"{file.connection.url}{file.filename}").attrs["a/b"]  # type: ignore[union-attr]
    if value is None:
        assert found is None
        return
    expected = np.asarray(value)
    if expected.dtype.kind == "S":
        expected = expected.astype("U")
    np.testing.assert_array_equal(np.asarray(found).astype(expected.dtype), expected)
    assert np.shape(found) == expected.shape


RECORD = np.dtype([("name", "S4"), ("place", "f8", (2,)), ("wave", "c8")])
GAPS = np.dtype([("n", "u1"), ("x", "f8")], align=True)


@pytest.mark.parametrize(
    "value",
    [
        b"raw\xff",
        [b"raw\xff", b"a"],
        np.bytes_(b"\xb0C"),
        np.array([[b"\xb0C", b"K"]]),
        np.array([(b"\xb0C\xff", [1, 2], 1j)], RECORD),
        np.array((b"K", [1, 2], 1 + 2j), RECORD)[()],
        np.array([(b"\xb0", ([b"\xff", b"b"],))], [("a", "S2"), ("b", [("c", "S1", (2,))])]),
        np.array([(1, 2.5)], GAPS),
        np.complex64(1 + 2j),
        np.array([1j, np.nan], ">c16"),
        np.void(b"a\0\xff"),
    ],
    ids=repr,
)
def test_attributes_are_those_of_h5py(file: File, value: Any) -> None:
    file.attrs["a"] = value
    file.attrs.refresh()
    found = file.attrs["a"]
    with h5py.File(io.BytesIO(), "w") as reference:
        reference.attrs["a"] = value
        expected = reference.attrs["a"]
    assert np.asarray(found).dtype == np.asarray(expected).dtype
    np.testing.assert_array_equal(found, expected)


ASCII = {"class": "H5T_STRING", "charSet": "H5T_CSET_ASCII", "strPad": "H5T_STR_NULLPAD", "length": 2}
VLEN = ASCII | {"length": "H5T_VARIABLE"}


@pytest.mark.parametrize(
    ("kind", "shape", "data", "expected"),
    [
        (ASCII, [], b"\xb0C", b"\xb0C"),
        (ASCII, [2], b"\xb0CK\0", [b"\xb0C", b"K"]),
        (VLEN, [], b"\2\0\0\0\xb0C", "\udcb0C"),
        (
            {"class": "H5T_COMPOUND", "fields": [{"name": "u", "type": VLEN}, {"name": "v", "type": ASCII}]},
            [1],
            b"\1\0\0\0\xb0\xb0C",
            [("\udcb0", b"\xb0C")],
        ),
        ({"class": "H5T_VLEN", "base": ASCII}, [1], b"\4\0\0\0\xb0CK\0", [[b"\xb0C", b"K"]]),
        ({"class": "H5T_ARRAY", "dims": [2], "base": ASCII}, [1], b"\xb0CK\0", [[b"\xb0C", b"K"]]),
        ({"class": "H5T_ARRAY", "dims": [2], "base": VLEN}, [], b"\1\0\0\0\xb0\1\0\0\0K", ["\udcb0", "K"]),
        (
            {"class": "H5T_ARRAY", "dims": [3], "base": "H5T_STD_U8LE"},
            [2],
            b"\1\2\3\4\5\6",
            [[1, 2, 3], [4, 5, 6]],
        ),
        (
            {"class": "H5T_VLEN", "base": {"class": "H5T_VLEN", "base": "H5T_STD_U8LE"}},
            [1],
            b"\5\0\0\0\1\0\0\0\7",
            [[[7]]],
        ),
    ],
)
def test_any_attribute_of_a_server_is_read(
    file: File, kind: Any, shape: list[int], data: bytes, expected: Any
) -> None:
    body = {"type": kind, "shape": shape, "value": base64.b64encode(data).decode(), "encoding": "base64"}
    file.connection.json("PUT", f"/groups/{file.id}/attributes/a", body)
    found = dict(file.attrs)["a"]
    while isinstance(found, np.ndarray) and (found.dtype != object or found.shape):
        found = found.tolist()
    assert _lists(found) == expected


def _lists(value: Any) -> Any:
    """Return arrays in lists as lists."""
    if isinstance(value, list | np.ndarray):
        return [_lists(one) for one in value]
    return value.item() if isinstance(value, np.generic) else value


def test_region_references_and_unset_attributes_do_not_hide_others(file: File) -> None:
    target = file.create_dataset("x", data=[1, 2, 3])
    region = {"class": "H5T_REFERENCE", "base": "H5T_STD_REF_DSETREG"}
    selected = {"id": target.id[2:], "select_type": "H5S_SEL_POINTS", "selection": [[1]]}
    bodies = {
        "one": {"type": region, "value": selected},
        "some": {"type": region, "shape": [2], "value": [selected, None]},
        "unset": {"type": "H5T_STD_I8LE", "shape": [2]},
    }
    file.connection.json("PUT", f"/groups/{file.id}/attributes", {"attributes": bodies})
    found = dict(file.attrs)
    assert found["one"]["selection"] == [[1]]
    assert [one and one["selection"] for one in found["some"]] == [[[1]], None]
    assert found["unset"].tolist() == [0, 0]


@pytest.mark.parametrize("name", ["x" * 1025, "é" * 32_767])
def test_names_of_attributes_are_as_long_as_those_of_hdf5(file: File, name: str) -> None:
    file.attrs[name] = 7
    file.attrs.refresh()
    assert dict(file.attrs) == {name: 7}
    with pytest.raises(ValueError, match="65534 bytes of UTF-8"):
        file.attrs["x" * 65_535] = 7


def test_attributes_change(file: File) -> None:
    file.attrs.update({"one": 1, "two": "zwei"})
    file.attrs["one"] = "eins"
    assert dict(file.attrs) == {"one": "eins", "two": "zwei"}
    del file.attrs["one"]
    assert list(file.attrs) == ["two"]
    with pytest.raises(KeyError, match="one"):
        del file.attrs["one"]
    with pytest.raises(KeyError, match="two"):
        file.attrs["one"]


def test_the_records_of_a_tree_come_by_paths(file: File) -> None:
    group = file.create_group("a")
    group.create_dataset("x", data=[1])
    group["loop"] = group
    assert sorted(file.records()) == ["a", "a/loop", "a/x"]
    assert sorted(group.records()) == ["loop", "x"]


FRAME = np.arange(12.0).reshape(4, 3)


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
            one["soft"], one["outside"] = h5py.SoftLink("/a/y"), h5py.ExternalLink("/home/other.h5", "/x")
        yield local, file


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "gzip"}, {"compression": "gzip", "compression_opts": 9, "shuffle": True},
        {"compression": 7}, {"compression": "lzf", "fletcher32": True}, {"chunks": True},
        {"chunks": (2, 3), "shuffle": True, "compression": True}, {"maxshape": (None, 3)},
        {"maxshape": (8, None), "compression": "gzip", "fillvalue": 5}, {"maxshape": (8, 3)},
        {"fillvalue": -1.5},
    ],
    ids=str,
)  # fmt: skip
def test_options_of_a_dataset_are_h5pys(file: hsparse.File, tmp_path: Path, options: dict[str, Any]) -> None:
    with h5py.File(tmp_path / "options.h5", "w") as local:
        wanted = local.create_dataset("x", (4, 3), "f8", **options)
        found = file.create_dataset("x", (4, 3), "f8", **options)
        again = open_file(f"{file.connection.url}{file.filename}")
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
    with pytest.raises(ValueError, match="data has 6"):
        file.create_dataset("y", (4,), data=np.arange(6))
    with pytest.raises(ValueError, match="must list all filters"):
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
        link = one.get("outside", getlink=True)
        assert (link.filename, link.path) == ("/home/other.h5", "/x")
        assert one.get("none") is None
        assert (one.get("a/none", 5), one.get("none/x", 5, getlink=True)) == (5, 5)
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
        assert sorted(one) == ["a", "deep", "new", "outside", "same"]
        assert (sorted(one["a"]), one["new/place/x"][1, 2]) == (["soft"], 5)
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
    with open_file(f"{url}/copied.h5", "w") as other:
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
        member: Any = file[f"form{number}"]
        assert member.nnz == array.nnz


def test_arrays_of_sparse_are_stored_by_from_scipy(file: hsparse.File) -> None:
    array = sparse.random((20, 30, 10), 0.05, random_state=1)
    stored = hsparse.from_scipy(file, "a/b/x", array, chunks=(5, 30, 10), progress=False)
    assert (stored.name, stored.chunks, stored.nnz) == ("/a/b/x", (5, 30, 10), array.nnz)
    assert (stored.to_coo() != array).nnz == 0
