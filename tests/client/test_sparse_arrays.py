"""Sparse datasets as scipy's arrays, sparse.COO, numpy's and Arrow's, by every form of key and way to a dataset."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import sparse
from hypothesis import example, given, settings
from hypothesis import strategies as st

import hsparse
from hsparse.client.connection import Connection
from hsparse.client.creation import SPARSE
from hsparse.client.errors import InvalidValue, MissingKey, WrongType
from hsparse.client.sparse_dataset import SparseDataset
from tests.client.access_ways import DatasetAccess, Model
from tests.client.key_strategies import (
    key_forms,
    keys_of,
    numpy_key,
    orthogonal_forms,
    orthogonal_keys_of,
    take_orthogonal,
)

SHAPES: dict[int, tuple[int, ...]] = {1: (11,), 2: (6, 5), 3: (3, 4, 5), 4: (3, 2, 4, 3)}
CHUNKS: dict[int, tuple[int, ...]] = {1: (4,), 2: (4, 3), 3: (2, 4, 3), 4: (2, 2, 3, 3)}
DTYPES = ("f4", "?", "i1", ">f8", "u8", "f2", "i4", "u2", ">i2", "i8", "u1", "f8", "u4", ">u8", "i2", ">f4")


class Samples:
    """Datasets of a rank, one of each type, made when they are asked for, and what they should be."""

    def __init__(self, access: DatasetAccess, rank: int) -> None:
        self.access = access
        self.rank = rank
        self.made: dict[str, tuple[Model, SparseDataset]] = {}

    def of(self, dtype: str) -> tuple[Model, SparseDataset]:
        if dtype not in self.made:
            model = Model.random(SHAPES[self.rank], dtype, self.rank)
            add_extremes(model)
            self.made[dtype] = model, self.access.filled(model, self.chunks())
        return self.made[dtype]

    def chunks(self) -> tuple[int, ...]:
        """Return chunks that divide two dimensions; in a bucket, where each is a request, one."""
        chunks = CHUNKS[self.rank]
        return (*chunks[:1], *SHAPES[self.rank][1:]) if self.access.way in ("s3", "presigned") else chunks

    def check_ways(self) -> None:
        for model, dataset in self.made.values():
            check_equal(dataset[...], model.values, model.is_defined)
            self.access.check_way(dataset)


def add_extremes(model: Model) -> None:
    """Make the first two defined values the least and the greatest of their type."""
    dtype = model.values.dtype
    if dtype.kind != "b":
        limits: Any = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
        for place, value in zip(np.argwhere(model.is_defined), (limits.min, limits.max), strict=False):
            model.values[tuple(place)] = value


def check_equal(found: Any, wanted: Any, is_defined: Any, fill: Any = 0) -> None:
    """See that what a key returned has the values, the shape, the dtype and the stored elements that it should."""
    wanted = np.asarray(wanted)
    assert (found.dtype, found.shape) == (wanted.dtype.newbyteorder("="), wanted.shape)
    if isinstance(found, np.generic | np.ndarray):
        assert np.array_equal(found, wanted)
        return
    stored = np.zeros(wanted.shape, bool)
    if isinstance(found, sparse.COO):
        assert found.fill_value == fill
        assert np.array_equal(found.todense(), wanted)
        stored[tuple(found.coords)] = True
    else:
        assert np.array_equal(found.toarray(), wanted)
        coo = found.tocoo()
        stored[coo.coords] = True
        index = found.indices if found.format == "csr" else found.coords[0]
        assert index.dtype == np.int32
        if found.format == "csr":
            check = sp.csr_array((found.data, found.indices, found.indptr), shape=found.shape)
            assert check.has_canonical_format
    assert np.array_equal(stored, is_defined)
    assert found.nnz == np.sum(is_defined)


def check_class(found: Any, model: Model, key: Any) -> None:
    """See that the result is of the class that scipy returns; where it has none, a COO."""
    native = model.values.dtype.newbyteorder("=")
    like = None if native == np.float16 else scipy_result(model, key, native)
    if like is not None:
        assert (found.shape, found.dtype) == (like.shape, like.dtype)
    if np.ndim(found) == 2 and native != np.float16:  # scipy has a coo_array for a 2-D list beside an index
        assert isinstance(found, sp.csr_array)
    elif like is not None:
        assert type(found) is type(like)
    elif np.ndim(found):
        assert isinstance(found, sparse.COO)


def scipy_result(model: Model, key: Any, dtype: np.dtype[Any]) -> Any:
    """Return what scipy returns for a key of a matrix, None for a key that it does not take."""
    if model.values.ndim != 2:
        return None
    coords = np.nonzero(model.is_defined)
    csr = sp.csr_array((model.values[coords].astype(dtype), coords), shape=model.values.shape)
    try:
        return csr[numpy_key(key)]
    except (IndexError, ValueError):  # more than 2 dimensions; a list beside a negative step
        return None


def forms(dtypes: list[str], keys: list[Any]) -> Iterator[dict[str, Any]]:
    """Yield arguments with each key, of one type after the other."""
    for number, key in enumerate(keys):
        yield {"dtype": dtypes[number % len(dtypes)], "key": key, "is_dense": number % 3 == 0}


@pytest.mark.endurance
@pytest.mark.parametrize("rank", SHAPES)
def test_keys_return_what_scipy_and_numpy_return(dataset_access: DatasetAccess, rank: int) -> None:
    samples, dtypes = Samples(dataset_access, rank), dataset_access.some(DTYPES, rank)

    @settings(max_examples=dataset_access.examples(120, short=16), deadline=None)
    @given(dtype=st.sampled_from(dtypes), key=keys_of(SHAPES[rank]), is_dense=st.booleans())
    def check(dtype: str, key: Any, is_dense: bool) -> None:
        model, dataset = samples.of(dtype)
        try:
            wanted, is_defined = model.values[numpy_key(key)], model.is_defined[numpy_key(key)]
        except IndexError:
            with pytest.raises(IndexError):
                dataset[key]
            return
        try:
            found = dataset[key]
        except IndexError:
            assert not wanted.size, (
                "numpy lets an index pass that is beyond the extent, if nothing is selected"
            )
            return
        check_equal(found, wanted, is_defined)
        check_class(found, model, key)
        if is_dense:
            dense = dataset.to_numpy(key)
            assert dense.dtype == model.values.dtype
            assert np.array_equal(dense, wanted)

    for arguments in forms(dtypes, key_forms(SHAPES[rank])):
        check = example(**arguments)(check)
    check()
    samples.check_ways()


@pytest.mark.endurance
@pytest.mark.parametrize("rank", SHAPES)
def test_orthogonal_keys_return_products(dataset_access: DatasetAccess, rank: int) -> None:
    samples, dtypes = Samples(dataset_access, rank), dataset_access.some(DTYPES, rank + len(SHAPES))

    @settings(max_examples=dataset_access.examples(60, short=8), deadline=None)
    @given(dtype=st.sampled_from(dtypes), key=orthogonal_keys_of(SHAPES[rank]), is_dense=st.booleans())
    def check(dtype: str, key: Any, is_dense: bool) -> None:
        model, dataset = samples.of(dtype)
        try:
            wanted = take_orthogonal(model.values, key)
        except IndexError:
            with pytest.raises(IndexError):
                dataset.oindex[key]
            return
        check_equal(dataset.oindex[key], wanted, take_orthogonal(model.is_defined, key))
        if is_dense:
            assert np.array_equal(dataset.to_numpy(dataset.oindex.key(key)), wanted)

    for arguments in forms(dtypes, orthogonal_forms(SHAPES[rank])):
        check = example(**arguments)(check)
    check()
    samples.check_ways()


@pytest.mark.parametrize("rank", SHAPES)
def test_another_fill_value_gives_coo(dataset_access: DatasetAccess, rank: int) -> None:
    model = Model.random(SHAPES[rank], np.int32, rank, fill_value=7)
    dataset = dataset_access.filled(model, CHUNKS[rank])
    for key in (..., slice(None, None, -2), [2, 0, 2], (-1, ...)):
        found = dataset[key]
        if model.values[key].ndim:
            assert isinstance(found, sparse.COO)
        check_equal(found, model.values[key], model.is_defined[key], 7)
    with pytest.raises(InvalidValue, match=r"fill value 7: take to_coo\(\)"):
        dataset.to_scipy()


@pytest.mark.parametrize("dtype", ["?", "f2", ">f8", "c8", ">c16", "S3", [("a", "<i4"), ("b", "<f8")]])
def test_types_keep_their_values(dataset_access: DatasetAccess, dtype: Any) -> None:
    dtype = np.dtype(dtype)
    dataset = dataset_access.create((4, 3), dtype, (2, 2))
    values = np.zeros((4, 3), dtype)
    one = (3, 2.5) if dtype.names else b"xyz" if dtype.kind == "S" else 1
    values[1, 2] = values[3, 0] = one
    dataset.write([(1, 2), (3, 0)], values[[1, 3], [2, 0]])
    found, native = dataset[1:], dtype.newbyteorder("=")
    assert found.dtype == native
    assert isinstance(found, sp.csr_array if native.kind in "biufc" and native != np.float16 else sparse.COO)
    dense = found.toarray() if isinstance(found, sp.csr_array) else found.todense()
    assert np.array_equal(dense, values[1:].astype(native))
    paired = dataset[[1, 3], [2, 0]]
    assert paired.dtype == native
    paired = paired if isinstance(paired, np.ndarray) else paired.todense()
    assert np.array_equal(paired, values[[1, 3], [2, 0]].astype(native))
    assert np.array_equal(dataset.to_numpy(), values)
    assert (dataset.to_numpy().dtype, dataset[1, 2]) == (dtype, values[1, 2])
    assert dataset[0, 0] == values[0, 0]
    assert type(dataset[1, 2]) is type(values[1, 2])


@pytest.mark.parametrize(
    "dtype",
    [("f8", (3,)), (">i2", (2, 2)), ("c8", (2,)), np.dtype([("n", "u1"), ("x", "f8")], align=True)],
    ids=str,
)
def test_elements_that_are_arrays_or_have_gaps(dataset_access: DatasetAccess, dtype: Any) -> None:
    kind = np.dtype(dtype)
    dataset = dataset_access.create((4, 3), kind, (2, 2))
    assert dataset.dtype == kind
    values = np.zeros((4, 3, *kind.shape), kind.base)
    some = np.arange(2 * kind.itemsize, dtype=np.uint8) % 60
    elements = np.ndarray((2, *kind.shape), kind.base, some.tobytes())
    values[1, 2], values[3, 0] = elements
    dataset.write([(1, 2)], elements[:1])
    dataset[3, 0] = elements[1]
    places, found = dataset.read()
    assert np.array_equal(found[np.argsort(places[:, 0])], elements)
    for key in (..., np.s_[1:], 3, np.s_[::2, 1:]):
        assert np.array_equal(dataset.to_numpy(key), values[key])
        assert np.array_equal(dataset.read_dense(key), values[key])
        assert np.array_equal(dataset[key].todense(), values[key].astype(kind.base.newbyteorder("=")))
    assert np.array_equal(dataset[1, 2], values[1, 2])
    assert np.array_equal(dataset.read_points([[3, 0], [0, 0]]), [values[3, 0], values[0, 0]])
    if kind.shape:
        lazy = dataset.to_dask()
        assert lazy.shape == values.shape
        assert np.array_equal(lazy[1:].compute().todense(), values[1:])


def test_complex_matrices(connection: Connection) -> None:
    group = hsparse.open(f"{connection.url}{connection.domain}")
    matrix = sp.random_array((40, 30), density=0.1, format="csr", rng=1) * (1 + 2j)
    for dtype in ("c8", "c16"):
        found = hsparse.from_scipy(group, dtype, matrix.astype(dtype))
        assert (found.dtype, (found[...] != matrix.astype(dtype)).nnz) == (dtype, 0)
        np.testing.assert_allclose(found.sum(axis=0), matrix.toarray().sum(axis=0), rtol=1e-5)
        np.testing.assert_allclose(found.mean(), matrix.toarray().mean(), rtol=1e-5)
        found[0, 0] = 5 - 1j
        assert found[0, 0] == 5 - 1j


def test_enums_are_their_numbers(connection: Connection) -> None:
    members = [{"name": "LOW", "value": -3}, {"name": "HIGH", "value": 300}]
    enum = {
        "class": "H5T_ENUM",
        "base": {"class": "H5T_INTEGER", "base": "H5T_STD_I16BE"},
        "members": members,
    }
    layout = {"creationProperties": {"layout": SPARSE | {"dims": [2, 2]}}}
    connection.json("POST", "/datasets", {"type": enum, "shape": [4, 3], "h5path": "/levels"} | layout)
    dataset = SparseDataset.open(connection, "/levels")
    dataset[1:3, [0, 2, 0]] = [[-3, 300, -3]]
    found = dataset[::-1]
    assert (type(found), found.dtype) == (sp.csr_array, np.dtype("i2"))
    assert found.toarray().tolist() == [[0, 0, 0], [-3, 0, 300], [-3, 0, 300], [0, 0, 0]]
    assert dataset.dtype == np.dtype(">i2")


def test_conversions(http_access: DatasetAccess) -> None:
    model = Model.random((9, 7), np.float64, 3)
    dataset = http_access.filled(model, (4, 4))
    for form in ("csr", "csc", "coo", "lil"):
        found = dataset.to_scipy(form, np.s_[2:, ::-1])
        assert found.format == form
        assert np.array_equal(found.toarray(), model.values[2:, ::-1])
    row = dataset.to_scipy("coo", 3)
    assert np.array_equal(row.toarray(), model.values[3])
    assert np.array_equal(dataset.to_coo().todense(), model.values)
    assert np.array_equal(dataset.to_coo(3).todense(), model.values[3])
    table = dataset.to_arrow(np.s_[2:, ::-1])
    assert table.column_names == ["dim_0", "dim_1", "value"]
    rows, columns, values = (table[name].to_numpy() for name in table.column_names)
    assert np.array_equal(model.values[2:, ::-1][rows, columns], values)
    assert len(values) == model.is_defined[2:].sum()
    assert np.array_equal(np.asarray(dataset), model.values)
    with pytest.raises(ValueError, match="numpy gets a copy"):
        np.array(dataset, copy=False)
    assert (dataset.nnz, dataset.density) == (model.is_defined.sum(), model.is_defined.mean())


def test_a_dataset_says_what_it_is(http_access: DatasetAccess) -> None:
    dataset = http_access.create((4, 30), "u2", (2, 10), fillvalue=3)
    assert (dataset.ndim, dataset.size, len(dataset), dataset.chunks) == (2, 120, 4, (2, 10))
    assert dataset.fillvalue == 3
    assert (
        repr(dataset)
        == f"<SparseDataset {dataset.name}: shape (4, 30), uint16, chunks (2, 10), fill value 3>"
    )


@pytest.fixture
def labelled(connection: Connection) -> SparseDataset:
    dataset = DatasetAccess("http", connection).create((2, 4), "i4", (2, 4))
    dataset[...] = np.arange(8).reshape(2, 4)
    names = np.array(["CD3E", "NKG7", "MS4A1", "CD3E"])
    return SparseDataset(connection, dataset.record, labels=lambda axis: names if axis else None)


def test_labels_stand_for_indices(labelled: SparseDataset) -> None:
    assert labelled.oindex[:, ["MS4A1", "NKG7"]].toarray().tolist() == [[2, 1], [6, 5]]
    assert labelled.oindex[1, "NKG7"] == 5
    assert labelled.oindex[..., np.array(["NKG7"])].toarray().tolist() == [[1], [5]]
    key = labelled.oindex.key((slice(None), ["MS4A1"]))
    assert labelled.to_numpy(key).tolist() == [[2], [6]]
    labelled.oindex[0, ["MS4A1", "NKG7"]] = [20, 10]
    assert labelled.to_numpy(0).tolist() == [0, 10, 20, 3]


def test_labels_that_are_not_there_are_named(labelled: SparseDataset) -> None:
    with pytest.raises(MissingKey, match="Axis 1 has no label 'CD4'") as caught:
        labelled.oindex[:, ["NKG7", "CD4"]]
    assert isinstance(caught.value, KeyError)
    with pytest.raises(InvalidValue, match="'CD3E' more than once"):
        labelled.oindex[:, "CD3E"]
    with pytest.raises(MissingKey, match="Axis 0 has no labels"):
        labelled.oindex["NKG7"]


def taken(requests: list[str]) -> list[str]:
    """Return what was asked, by the last word of its path, and forget it."""
    found = [f"{one.partition(' ')[0]} {one.rpartition('/')[2]}" for one in requests]
    requests.clear()
    return found


def test_a_selection_is_one_request(http_access: DatasetAccess, requests: list[str]) -> None:
    dataset = http_access.create((5000, 300, 4), "f4", (100, 100, 4))
    rows = np.random.default_rng(1).permutation(5000)[:3000]
    dataset.write(np.stack([rows, rows % 300, rows % 4], 1), np.ones(3000))
    requests.clear()
    for key, method in (
        (np.s_[:, ::-1], "GET"),
        (3, "GET"),
        (rows, "POST"),
        ((rows, rows % 300), "POST"),
        ((rows, rows % 300, rows % 4), "POST"),
        ((1, 2, 3), "GET"),
    ):
        dataset[key]
        assert taken(requests) == [f"{method} value"]
    columns = np.unique(rows[:200] % 300)[::-1]
    found = dataset.oindex[rows, columns, 0]
    assert (taken(requests), found.shape) == (["POST value"], (3000, len(columns)))
    assert dataset[rows, rows % 300, rows % 4].todense().tolist() == [1.0] * 3000
    requests.clear()
    assert dataset.count(dataset.oindex.key((rows, columns, 0))) == found.nnz
    assert taken(requests) == ["POST defined"]


def test_rows_come_in_blocks(dataset_access: DatasetAccess) -> None:
    model = Model.random((11, 4), np.int64, 5)
    dataset = dataset_access.filled(model, (4, 4))
    for count, start, stop in [(3, 0, None), (4, 2, 10), (20, 0, None), (5, 7, 3)]:
        blocks = list(dataset.iter_rows(count, start, stop))
        assert all(block.shape[0] == count for block in blocks[:-1])
        whole = [block.toarray() for block in blocks]
        assert np.array_equal(np.concatenate([model.values[:0], *whole]), model.values[start:stop])
    with pytest.raises(InvalidValue, match="a count of at least 1"):
        dataset.iter_rows(0)
    dataset_access.check_way(dataset)


def test_reductions_of_nothing(http_access: DatasetAccess) -> None:
    dataset = http_access.create((0, 3), "f4", (2, 3), maxshape=(None, 3))
    assert (dataset.sum(), dataset.sum(axis=0).tolist()) == (0, [0, 0, 0])
    assert dataset.sum(axis=1).tolist() == []
    assert np.isnan(dataset.mean())
    with pytest.raises(ValueError, match="max needs at least one element"):
        dataset.max()
    with pytest.raises(InvalidValue, match="There is no axis 2"):
        dataset.sum(axis=2)
    with pytest.raises(InvalidValue, match="only one of select and axis"):
        dataset.count("[0:1,:]", axis=1)
    text = http_access.create((3, 3), "S2", (2, 3))
    with pytest.raises(WrongType, match=r"sum does not support .* read the values by to_numpy\(\)"):
        text.sum()
    assert text.count(axis=0).tolist() == [0, 0, 0]


def test_a_plot_takes_frames_and_datasets(http_access: DatasetAccess) -> None:
    """Numpy makes an array of one object of scipy's sparse arrays, which `imshow` refuses."""
    dense = np.random.default_rng(3).integers(0, 3, (5, 8, 6)).astype("u2")
    frames = http_access.create(dense.shape, "u2", (2, 8, 6))
    frames.write_region(None, dense, drop_fill=True)
    for found, wanted in (
        (frames[3], dense[3]),
        (frames[-1, 2:, ::-1], dense[-1, 2:, ::-1]),
        (frames[:, 2], dense[:, 2]),
        (frames[[4, 0], 1], dense[[4, 0], 1]),
        (frames, dense),
    ):
        np.testing.assert_array_equal(np.asarray(found), wanted)
        assert np.asarray(found, "f8").dtype == np.float64
        with pytest.raises(ValueError, match="copy"):
            np.asarray(found, copy=False)
    frame = pickle.loads(pickle.dumps(frames[3]))
    assert isinstance(frame, sp.csr_array)
    np.testing.assert_array_equal((frame + frame).toarray(), 2 * dense[3])
    assert type(frames.to_scipy("csr", 3)) is sp.csr_array
