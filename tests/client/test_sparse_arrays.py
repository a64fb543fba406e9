"""Datasets as scipy's arrays, sparse.COO, numpy's and Arrow's: types, labels, blocks, reductions, limits."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import sparse

import hsparse
from hsparse.client.connection import Connection
from hsparse.client.creation import SPARSE
from hsparse.client.errors import InvalidValue, MissingKey, OutOfRange, ResultTooLarge, WrongType
from hsparse.client.sparse_dataset import SparseDataset
from tests.client.dataset_access import DatasetAccess, Model
from tests.client.test_array_keys import CHUNKS, SHAPES, check_equal


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
    assert dataset.to_numpy().dtype == dtype
    assert dataset[1, 2] == values[1, 2]
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
        assert found.dtype == dtype
        assert (found[...] != matrix.astype(dtype)).nnz == 0
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


class Requests:
    """What a connection is asked: the method of each request, and what follows the dataset's id."""

    def __init__(self, connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: list[str] = []
        for name in ("json", "binary", "stream"):
            monkeypatch.setattr(connection, name, self._counted(getattr(connection, name)))

    def _counted(self, send: Callable[..., Any]) -> Callable[..., Any]:
        def count(method: str, path: str, *args: Any, **params: Any) -> Any:
            self.sent.append(f"{method} {path.rsplit('/', 1)[-1]}")
            return send(method, path, *args, **params)

        return count

    def take(self) -> list[str]:
        sent, self.sent = self.sent, []
        return sent


def test_a_selection_is_one_request(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = DatasetAccess("http", connection).create((5000, 300, 4), "f4", (100, 100, 4))
    rows = np.random.default_rng(1).permutation(5000)[:3000]
    dataset.write(np.stack([rows, rows % 300, rows % 4], 1), np.ones(3000))
    requests = Requests(connection, monkeypatch)
    for key, method in (
        (np.s_[:, ::-1], "GET"),
        (3, "GET"),
        (rows, "POST"),
        ((rows, rows % 300), "POST"),
        ((rows, rows % 300, rows % 4), "POST"),
        ((1, 2, 3), "GET"),
    ):
        dataset[key]
        assert requests.take() == [f"{method} value"]
    columns = np.unique(rows[:200] % 300)[::-1]
    found = dataset.oindex[rows, columns, 0]
    assert requests.take() == ["POST value"]
    assert found.shape == (3000, len(columns))
    assert dataset[rows, rows % 300, rows % 4].todense().tolist() == [1.0] * 3000
    requests.take()
    assert dataset.count(dataset.oindex.key((rows, columns, 0))) == found.nnz
    assert requests.take() == ["POST defined"]


def test_wrong_keys_fetch_nothing(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = DatasetAccess("http", connection).create((5, 4), "f4", (5, 4))
    requests = Requests(connection, monkeypatch)
    for key in (5, (0, -5), np.ones(4, bool), (0, 0, 0), None, "[0:1,:]"):
        with pytest.raises(OutOfRange):
            dataset[key]
        assert set(requests.take()) == {"GET shape"}, "others may have extended the dataset"


def test_a_result_that_is_too_large_is_refused(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = DatasetAccess("http", connection).create((1000, 100), "f8", (100, 100))
    dataset.write([(n, n % 100) for n in range(1000)], np.ones(1000))
    requests = Requests(connection, monkeypatch)
    dataset.max_bytes = 20_000
    assert dataset[...].nnz == 1000
    assert requests.take() == ["GET defined", "GET value"]
    dataset.max_bytes = 10_000
    with pytest.raises(ResultTooLarge, match=r"\[1000, 100\].*iter_rows.*to_dask") as caught:
        dataset[...]
    assert isinstance(caught.value, MemoryError)
    assert requests.take() == ["GET defined"]
    with pytest.raises(MemoryError):
        dataset.read()
    assert requests.take() == ["GET defined"]
    with pytest.raises(MemoryError):
        dataset.to_numpy()
    with pytest.raises(MemoryError):
        dataset.read_dense()
    with pytest.raises(MemoryError):
        dataset.sum(axis=0 if dataset.shape[0] > 1000 else 1)
    assert requests.take() == []
    assert dataset[:5].nnz == 5
    assert dataset[[0] * 200, :].shape == (200, 100)
    assert requests.take() == ["GET value", "GET defined", "GET value"]


def test_rows_come_in_blocks(dataset_access: DatasetAccess) -> None:
    model = Model.random((11, 4), np.int64, 5)
    dataset = dataset_access.filled(model, (4, 4))
    for count, start, stop in [(3, 0, None), (4, 2, 10), (20, 0, None), (5, 7, 3)]:
        blocks = list(dataset.iter_rows(count, start, stop))
        assert all(block.shape[0] == count for block in blocks[:-1])
        whole = [block.toarray() for block in blocks]
        assert np.array_equal(np.concatenate([model.values[:0], *whole]), model.values[start:stop])
    dataset_access.check_way(dataset)


def test_an_error_in_a_block_is_raised(http_access: DatasetAccess) -> None:
    dataset = http_access.create((4, 4), "i4", (2, 2), maxshape=(None, 4))
    rows = dataset.iter_rows(2)
    assert next(rows).shape == (2, 4)
    with pytest.raises(InvalidValue, match="a count of 1 or more"):
        dataset.iter_rows(0)


@pytest.mark.parametrize("dtype", ["i2", "u8", "f4", "f8", "?", ">i4"])
@pytest.mark.parametrize("fill", [0, 1])
def test_reductions_are_numpys(http_access: DatasetAccess, dtype: str, fill: int) -> None:
    model = Model.random((9, 7, 3), dtype, 4, fill)
    dataset = http_access.filled(model, (4, 3, 3))
    values = model.values.astype(np.dtype(dtype).newbyteorder("="))
    for axis in (None, 0, 1, -1, (0, 2), (2, 1, 0)):
        for name in ("sum", "mean", "var", "min", "max"):
            found, wanted = getattr(dataset, name)(axis=axis), getattr(values, name)(axis=axis)
            assert (np.shape(found), found.dtype) == (np.shape(wanted), wanted.dtype), (name, axis)
            np.testing.assert_allclose(found, wanted, rtol=1e-6)
        if axis is not None:
            assert np.array_equal(dataset.count(axis=axis), model.is_defined.sum(axis=axis))
    assert dataset.count() == model.is_defined.sum()


def test_reductions_of_nothing(http_access: DatasetAccess) -> None:
    dataset = http_access.create((0, 3), "f4", (2, 3), maxshape=(None, 3))
    assert dataset.sum() == 0
    assert dataset.sum(axis=0).tolist() == [0, 0, 0]
    assert dataset.sum(axis=1).tolist() == []
    assert np.isnan(dataset.mean())
    with pytest.raises(ValueError, match="There is no max of no elements"):
        dataset.max()
    with pytest.raises(InvalidValue, match="There is no axis 2"):
        dataset.sum(axis=2)
    with pytest.raises(InvalidValue, match="not both"):
        dataset.count("[0:1,:]", axis=1)
    text = http_access.create((3, 3), "S2", (2, 3))
    with pytest.raises(WrongType, match=r"have no sum; read them with to_numpy\(\)"):
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
