"""Virtual datasets of the client: made as in h5py, and read as any other dataset."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import hsparse


@pytest.fixture
def file(tmp_path: Path) -> Iterator[hsparse.File]:
    with hsparse.open("/home/all.h5", "w", root=tmp_path / "store") as file:
        yield file


def test_a_dense_one_is_read_as_any_other(file: hsparse.File, tmp_path: Path) -> None:
    data = np.arange(60.0).reshape(3, 4, 5)
    for number in range(3):
        with hsparse.open(tmp_path / "store" / "home" / f"{number}.h5", "w") as part:
            part.create_dataset("g/x", data=data[number])
    layout = hsparse.VirtualLayout((3, 4, 5), "f8")
    for number in range(3):
        layout[number] = hsparse.VirtualSource(f"{number}.h5", "g/x", (4, 5))
    made = file.create_virtual_dataset("v", layout, fillvalue=-1, attributes={"unit": "mm"})
    assert isinstance(made, hsparse.DenseDataset)
    v = file["v"]
    assert v.attrs["unit"] == "mm"
    assert np.array_equal(v[...], data)
    assert np.array_equal(v[1:, ::2, [0, 3]], data[1:, ::2, [0, 3]])
    assert v.sum() == data.sum()
    with pytest.raises(hsparse.BadRequest, match="write to its sources"):
        v[0] = 1


def test_a_sparse_one_is_read_as_any_other(file: hsparse.File) -> None:
    data = np.zeros((6, 8), "f4")
    data[[0, 1, 3, 5], [1, 7, 2, 2]] = 1, 2, 3, 4
    file.create_sparse("x", data=data, chunks=(2, 4))
    layout = hsparse.VirtualLayout((12, 8), "f4", sparse=True)
    source = hsparse.VirtualSource(".", "x", (6, 8))
    layout[:6], layout[6:9], layout[9:] = source, source[::2], source[1::2]
    made = file.create_virtual_dataset("v", layout)
    expected = np.concatenate((data, data[::2], data[1::2]))
    assert isinstance(made, hsparse.SparseDataset)
    assert made.chunks == (2, 4)
    assert np.array_equal(file["v"].read_dense(...), expected)
    assert np.array_equal(file["v"].to_scipy().toarray(), expected)
    assert file["v"].nnz == np.count_nonzero(expected)
    assert np.array_equal(file["v"].sum(axis=0), expected.sum(axis=0))


@pytest.mark.parametrize("key", [(0, 0, 0), "x", slice(None, None, -1), 9, [1, 2]])
def test_parts_are_of_numbers_and_ascending_slices(key: object) -> None:
    with pytest.raises(hsparse.BadRequest):
        hsparse.VirtualSource(".", "x", (6, 8))[key]  # type: ignore[index]


def test_a_part_has_as_many_elements_as_its_source() -> None:
    layout = hsparse.VirtualLayout((6,))
    with pytest.raises(hsparse.BadRequest, match=r"shape \[6\] is mapped to a source of shape \[5\]"):
        layout[:] = hsparse.VirtualSource(".", "x", 5)
    with pytest.raises(hsparse.BadRequest, match="unlimited source"):
        layout[0:"H5S_UNLIMITED"] = hsparse.VirtualSource(".", "x", 5)


def test_a_pattern_is_of_blocks(file: hsparse.File) -> None:
    layout = hsparse.VirtualLayout((0, 3), "i8", maxshape=(None, 3))
    layout[0:"H5S_UNLIMITED"] = hsparse.VirtualSource(".", "part%b", (2, 3))
    for number in range(3):
        file.create_dataset(f"part{number}", data=np.arange(6).reshape(2, 3) + 6 * number)
    v = file.create_virtual_dataset("v", layout)
    assert v.shape == (6, 3)
    assert np.array_equal(v[...], np.arange(18).reshape(6, 3))


def test_elements_are_of_any_length(file: hsparse.File) -> None:
    words = np.array(["a", "", "ccc", "dd"], object).reshape(2, 2)
    file.create_dataset("words", data=words)
    places = file.create_sparse("places", (4, 5), str, (2, 2))
    places.write([[0, 0], [3, 4]], np.array(["x", "yy"], object))
    layout = hsparse.VirtualLayout((3, 4), str)
    layout[1:, ::2] = hsparse.VirtualSource(".", "words", (2, 2))
    dense = file.create_virtual_dataset("dense", layout, fillvalue="-")
    assert dense[...].tolist() == [["-"] * 4, ["a", "-", "", "-"], ["ccc", "-", "dd", "-"]]
    layout = hsparse.VirtualLayout((8, 5), str, sparse=True)
    layout[:4] = layout[4:] = hsparse.VirtualSource(".", "places", (4, 5))
    coords, values = file.create_virtual_dataset("sparse", layout).read(...)
    found = sorted(zip(map(tuple, coords.tolist()), values, strict=True))
    assert found == [((0, 0), "x"), ((3, 4), "yy"), ((4, 0), "x"), ((7, 4), "yy")]


def test_the_extent_follows_the_source_wherever_it_is_shown(file: hsparse.File) -> None:
    source = file.create_dataset("x", data=np.arange(6).reshape(3, 2), maxshape=(None, 2))
    layout = hsparse.VirtualLayout((0, 2), "i8", maxshape=(None, 2))
    layout[0:"H5S_UNLIMITED"] = hsparse.VirtualSource(".", "x", (3, 2))[0:"H5S_UNLIMITED"]
    file.create_virtual_dataset("v", layout)
    source.append(np.array([[6, 7]]))
    assert file["v"].shape == (4, 2)
    assert {name: file[name].shape for name in file} == {"v": (4, 2), "x": (4, 2)}
    listed = file.connection.json("GET", "/", getobjs=1, include_attrs=1)["domain_objs"]
    dims = [one["shape"]["dims"] for one in listed.values() if "shape" in one]
    assert dims == [[4, 2], [4, 2]]
    assert file["v"][3].tolist() == [6, 7]
