"""Dense and virtual datasets, with numpy's keys."""

from __future__ import annotations

import io
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import hsparse
from hsparse.client.file import File
from hsparse.errors import HsparseError


def test_writes_are_numpys(file: File) -> None:
    dataset = file.create_dataset("x", (3, 4), "f8", fillvalue=-1, maxshape=(None, 4), chunks=(2, 2))
    dataset[1, 1:3] = [5, 6]
    dataset[[0, 2], 0] = 9
    assert dataset[...].tolist() == [[9, -1, -1, -1], [-1, 5, 6, -1], [9, -1, -1, -1]]
    assert (dataset.fillvalue, dataset.maxshape) == (-1.0, (None, 4))
    dataset.extend(1)
    assert (np.asarray(dataset).shape, len(dataset)) == ((4, 4), 4)


@pytest.mark.parametrize(
    "data",
    [
        np.array(["a", "", "grüße"], object),
        np.array([b"ab", b"c"]),
        np.array([True, False]),
        np.array([(1, True)], [("n", "u1"), ("b", "?")]),
        np.float32(2.5),
        "text",
    ],
    ids=repr,
)
def test_types_come_back(file: File, data: object) -> None:
    file.create_dataset("x", data=data)  # type: ignore[arg-type]
    dataset: Any = file["x"]
    found = dataset[()]
    expected = np.asarray(data, object if isinstance(data, str) else None)
    assert np.shape(found) == expected.shape
    assert np.asarray(found).dtype == expected.dtype or isinstance(data, str)
    assert np.asarray(found).tolist() == expected.tolist()


ARRAY = np.dtype(("f8", (3,)))
GAPS = np.dtype([("n", "u1"), ("x", "f8")], align=True)


@pytest.mark.parametrize(
    ("dtype", "inner"),
    [
        (ARRAY, (3,)),
        (np.dtype((">i2", (2, 2))), (2, 2)),
        (np.dtype(("S3", (2,))), (2,)),
        (np.dtype(([("p", "f4", (2,)), ("q", "?")], (2,))), (2,)),
        (np.dtype("c8"), ()),
        (np.dtype(">c16"), ()),
        (np.dtype(("c16", (2,))), (2,)),
        (GAPS, ()),
        (np.dtype([("a", GAPS), ("b", GAPS, (2,)), ("c", "c8")], align=True), ()),
        (np.dtype({"names": ["b", "a"], "formats": ["u1", "u2"], "offsets": [4, 0], "itemsize": 8}), ()),
        (np.dtype("V5"), ()),
    ],
    ids=repr,
)
def test_elements_of_any_type_are_those_of_h5py(
    file: File, dtype: np.dtype[Any], inner: tuple[int, ...]
) -> None:
    bits = np.random.default_rng(1).integers(0, 2, (5, 2, dtype.itemsize)).astype(np.uint8)
    values = np.ndarray((5, 2, *inner), dtype.base, bits.tobytes())
    dataset = file.create_dataset("x", (5, 2), dtype, chunks=(2, 2))
    with h5py.File(io.BytesIO(), "w") as reference:
        expected = reference.create_dataset("x", (5, 2), dtype, chunks=(2, 2))
        for one in (dataset, expected):
            one[...] = values
            one[1:3, 0] = values[3:5, 1]
            one[4, 1] = values[0, 0]
        opened: Any = file["x"]
        assert (opened.shape, opened.dtype, opened.dtype.itemsize) == (
            expected.shape,
            expected.dtype,
            expected.dtype.itemsize,
        )
        for key in (..., 0, (slice(None, None, 2), [0, 1]), (4, 1), (slice(0, 0),)):
            found, right = opened[key], expected[key]
            assert np.shape(found) == np.shape(right)
            np.testing.assert_array_equal(found, right)
        lazy = opened.to_dask(chunks=(2, 2))
        assert lazy.shape == (5, 2, *inner)
        np.testing.assert_array_equal(lazy[1:].compute(), expected[1:])
        np.testing.assert_array_equal(opened.fillvalue, np.zeros(inner, dtype.base))


def test_a_fill_value_in_base64(file: File) -> None:
    fill = b64encode(np.array(2.5, ">f8").tobytes()).decode()
    properties = {"fillValue": fill, "fillValue_encoding": "base64"}
    body = {"type": "H5T_IEEE_F64BE", "shape": [2], "h5path": "/x", "creationProperties": properties}
    file.connection.json("POST", "/datasets", body)
    assert file["x"].fillvalue == 2.5


def test_values_for_an_array_type_end_with_its_shape(file: File) -> None:
    dataset = file.create_dataset("x", (2,), ARRAY, fillvalue=[1, 2, 3])
    assert dataset[...].tolist() == [[1, 2, 3], [1, 2, 3]]
    for value in (5, [1, 2]):
        with pytest.raises(ValueError, match=r"must end with \[3\]"):
            dataset[0] = value
    dataset[:] = [7, 8, 9]
    assert file["x"][...].tolist() == [[7, 8, 9], [7, 8, 9]]  # type: ignore[index]
    assert file.create_dataset("y", data=np.zeros((4, 3)), dtype=ARRAY).shape == (4,)


@pytest.mark.parametrize("dtype", ["c8", "c16", ">c16"])
def test_complex_numbers_are_reduced(file: File, dtype: str) -> None:
    data = (np.arange(12).reshape(3, 4) + 1j * np.arange(12)[::-1].reshape(3, 4)).astype(dtype)
    dataset = file.create_dataset("x", data=data)
    for axis in (None, 0, (0, 1)):
        for name in ("sum", "mean", "var"):
            found, expected = getattr(dataset, name)(axis), getattr(data, name)(axis)
            np.testing.assert_allclose(found, expected, rtol=1e-6)
            assert found.dtype == expected.dtype.newbyteorder("=")
    with pytest.raises(TypeError, match="max does not support"):
        dataset.max()


def test_what_is_no_text_is_refused_before_it_is_sent(file: File) -> None:
    dataset = file.create_dataset("x", data=["a", "b"])
    with pytest.raises(TypeError, match="text"):
        dataset[0] = 7
    assert dataset[...].tolist() == ["a", "b"]


def test_lists_of_any_length_are_written(file: File) -> None:
    rng = np.random.default_rng(0)
    for data in (
        np.arange(6000).reshape(20, 30, 10),
        np.arange(6000).astype(str).astype(object).reshape(20, 30, 10),
    ):
        dataset = file.create_dataset(f"x-{data.dtype}", data=data)
        wanted = data.copy()
        many = rng.integers(0, 20, 900), rng.integers(0, 30, 900), rng.integers(0, 10, 900)
        for key in (([3, 1, 3], slice(None), [2, 0, 2]), (slice(5), [4, 1], [0, 9]), many):
            values = wanted[key][::-1].copy()
            wanted[key] = values
            dataset[key] = values
            assert np.array_equal(dataset[...], wanted)
            assert np.array_equal(dataset[key], wanted[key])
    long = file.create_dataset("long", (100_000,), "i4")
    rows = rng.permutation(100_000)[:5000]
    long[rows] = rows
    assert np.array_equal(long[rows], rows)
    assert np.count_nonzero(long[...]) == np.count_nonzero(rows)


def test_errors_have_paths_and_the_words_of_h5py(file: File) -> None:
    dense = file.create_dataset("run/x", data=np.zeros((3, 4)))
    sparse = file.create_sparse("run/y", (3, 4), "f4", (2, 2))
    for fails in (
        lambda: dense.extend(1),
        lambda: dense.resize((4, 4)),
        lambda: sparse.append(np.zeros((1, 4), "f4")),
        lambda: file.create_dataset("z", (3, 4), maxshape=(None,)),
    ):
        with pytest.raises(HsparseError) as caught:
            fails()
        said = str(caught.value)
        assert "maxshape" in said
        assert "maxdims" not in said
        assert dense.id not in said
        assert sparse.id not in said
    with pytest.raises(IndexError, match="no axis 5: /run/x"):
        dense.extend(1, 5)
    with pytest.raises(HsparseError, match="A resize of /run/x"):
        dense.resize((2, 4), erase=False)


@pytest.fixture
def embedded_file(tmp_path: Path) -> Iterator[hsparse.File]:
    with hsparse.open("/home/all.h5", "w", root=tmp_path / "store") as embedded_file:
        yield embedded_file


def test_a_dense_one_is_read_as_any_other(embedded_file: hsparse.File, tmp_path: Path) -> None:
    data = np.arange(60.0).reshape(3, 4, 5)
    for number in range(3):
        with hsparse.open(tmp_path / "store" / "home" / f"{number}.h5", "w") as part:
            part.create_dataset("g/x", data=data[number])
    layout = hsparse.VirtualLayout((3, 4, 5), "f8")
    for number in range(3):
        layout[number] = hsparse.VirtualSource(f"{number}.h5", "g/x", (4, 5))
    made = embedded_file.create_virtual_dataset("v", layout, fillvalue=-1, attributes={"unit": "mm"})
    assert isinstance(made, hsparse.DenseDataset)
    v = embedded_file["v"]
    assert v.attrs["unit"] == "mm"
    assert np.array_equal(v[...], data)
    assert np.array_equal(v[1:, ::2, [0, 3]], data[1:, ::2, [0, 3]])
    assert v.sum() == data.sum()
    with pytest.raises(hsparse.BadRequest, match="write to its sources"):
        v[0] = 1


def test_a_sparse_one_is_read_as_any_other(embedded_file: hsparse.File) -> None:
    data = np.zeros((6, 8), "f4")
    data[[0, 1, 3, 5], [1, 7, 2, 2]] = 1, 2, 3, 4
    embedded_file.create_sparse("x", data=data, chunks=(2, 4))
    layout = hsparse.VirtualLayout((12, 8), "f4", sparse=True)
    source = hsparse.VirtualSource(".", "x", (6, 8))
    layout[:6], layout[6:9], layout[9:] = source, source[::2], source[1::2]
    made = embedded_file.create_virtual_dataset("v", layout)
    expected = np.concatenate((data, data[::2], data[1::2]))
    assert isinstance(made, hsparse.SparseDataset)
    assert made.chunks == (2, 4)
    assert np.array_equal(embedded_file["v"].read_dense(...), expected)
    assert np.array_equal(embedded_file["v"].to_scipy().toarray(), expected)
    assert embedded_file["v"].nnz == np.count_nonzero(expected)
    assert np.array_equal(embedded_file["v"].sum(axis=0), expected.sum(axis=0))


@pytest.mark.parametrize("key", [(0, 0, 0), "x", slice(None, None, -1), 9, [1, 2]])
def test_parts_are_of_numbers_and_ascending_slices(key: object) -> None:
    with pytest.raises(hsparse.BadRequest):
        hsparse.VirtualSource(".", "x", (6, 8))[key]  # type: ignore[index]


def test_a_part_has_as_many_elements_as_its_source() -> None:
    layout = hsparse.VirtualLayout((6,))
    with pytest.raises(hsparse.BadRequest, match=r"shape \[6\] needs a source of its size, not \[5\]"):
        layout[:] = hsparse.VirtualSource(".", "x", 5)
    with pytest.raises(hsparse.BadRequest, match="source is unlimited"):
        layout[0:"H5S_UNLIMITED"] = hsparse.VirtualSource(".", "x", 5)


def test_a_pattern_is_of_blocks(embedded_file: hsparse.File) -> None:
    layout = hsparse.VirtualLayout((0, 3), "i8", maxshape=(None, 3))
    layout[0:"H5S_UNLIMITED"] = hsparse.VirtualSource(".", "part%b", (2, 3))
    for number in range(3):
        embedded_file.create_dataset(f"part{number}", data=np.arange(6).reshape(2, 3) + 6 * number)
    v = embedded_file.create_virtual_dataset("v", layout)
    assert v.shape == (6, 3)
    assert np.array_equal(v[...], np.arange(18).reshape(6, 3))


def test_elements_are_of_any_length(embedded_file: hsparse.File) -> None:
    words = np.array(["a", "", "ccc", "dd"], object).reshape(2, 2)
    embedded_file.create_dataset("words", data=words)
    places = embedded_file.create_sparse("places", (4, 5), str, (2, 2))
    places.write([[0, 0], [3, 4]], np.array(["x", "yy"], object))
    layout = hsparse.VirtualLayout((3, 4), str)
    layout[1:, ::2] = hsparse.VirtualSource(".", "words", (2, 2))
    dense = embedded_file.create_virtual_dataset("dense", layout, fillvalue="-")
    assert dense[...].tolist() == [["-"] * 4, ["a", "-", "", "-"], ["ccc", "-", "dd", "-"]]
    layout = hsparse.VirtualLayout((8, 5), str, sparse=True)
    layout[:4] = layout[4:] = hsparse.VirtualSource(".", "places", (4, 5))
    coords, values = embedded_file.create_virtual_dataset("sparse", layout).read(...)
    found = sorted(zip(map(tuple, coords.tolist()), values, strict=True))
    assert found == [((0, 0), "x"), ((3, 4), "yy"), ((4, 0), "x"), ((7, 4), "yy")]


def test_the_extent_follows_the_source_wherever_it_is_shown(embedded_file: hsparse.File) -> None:
    source = embedded_file.create_dataset("x", data=np.arange(6).reshape(3, 2), maxshape=(None, 2))
    layout = hsparse.VirtualLayout((0, 2), "i8", maxshape=(None, 2))
    layout[0:"H5S_UNLIMITED"] = hsparse.VirtualSource(".", "x", (3, 2))[0:"H5S_UNLIMITED"]
    embedded_file.create_virtual_dataset("v", layout)
    source.append(np.array([[6, 7]]))
    assert embedded_file["v"].shape == (4, 2)
    assert {name: embedded_file[name].shape for name in embedded_file} == {"v": (4, 2), "x": (4, 2)}
    listed = embedded_file.connection.json("GET", "/", getobjs=1, include_attrs=1)["domain_objs"]
    dims = [one["shape"]["dims"] for one in listed.values() if "shape" in one]
    assert (dims, embedded_file["v"][3].tolist()) == ([[4, 2], [4, 2]], [6, 7])
