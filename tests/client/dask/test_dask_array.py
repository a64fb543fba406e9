"""Datasets as arrays of dask: equal to numpy's, by dask's own checks."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import dask.array as da
import numpy as np
import pytest
import scipy.sparse
import sparse
from dask.array.utils import assert_eq

import hsparse
from hsparse.client.connection import Connection
from hsparse.client.opening import open_connection
from hsparse.client.sparse_dataset import SparseDataset
from tests.client.access_ways import Access

SHAPE = (30, 21)


@pytest.fixture(scope="module")
def file(url: str) -> Iterator[hsparse.File]:
    found = hsparse.open(f"{url}/dask.h5", "w")
    assert isinstance(found, hsparse.File)
    with found:
        yield found


@pytest.fixture(scope="module")
def whole() -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(1)
    return np.where(rng.random(SHAPE) < 0.2, rng.integers(1, 100, SHAPE), 0).astype("f4")


@pytest.fixture(scope="module")
def dataset(file: hsparse.File, whole: np.ndarray[Any, Any]) -> SparseDataset:
    made = file.create_sparse("x", SHAPE, "f4", (7, 8))
    made.write(np.argwhere(whole), whole[whole != 0])
    return made


def test_blocks_are_sparse(dataset: SparseDataset, whole: np.ndarray[Any, Any]) -> None:
    array = dataset.to_dask(chunks=(14, 16))
    assert array.chunks == ((14, 14, 2), (16, 5))
    assert isinstance(array._meta, sparse.COO)
    assert isinstance(array.compute(), sparse.COO)
    assert_eq(array, whole)
    assert_eq((array + 1).map_blocks(lambda block: block.todense()), whole + 1)


def test_blocks_are_rows_of_scipy(dataset: SparseDataset, whole: np.ndarray[Any, Any]) -> None:
    array = dataset.to_dask(format="csr", chunks=(10, -1))
    assert isinstance(array._meta, scipy.sparse.csr_array)
    found = array.compute()
    assert isinstance(found, scipy.sparse.csr_array)
    assert np.array_equal(found.toarray(), whole)
    assert found.dtype == np.float32
    part = array[3:12].compute()
    assert np.array_equal(part.toarray(), whole[3:12])


@pytest.mark.parametrize("dtype", ["f4", ">f4", ">i8", "u1", "?"])
def test_every_block_is_what_its_array_says(access: Access, dtype: str) -> None:
    access.connection.direct = access.direct
    file = open_connection(access.connection)
    assert isinstance(file, hsparse.File)
    values = np.arange(SHAPE[0] * SHAPE[1]).reshape(SHAPE).astype(dtype)
    sparse_one = file.create_sparse("sparse", SHAPE, dtype, (7, 8))
    sparse_one[...] = values
    dense = file.create_dataset("dense", data=values, chunks=(10, 21))
    for array in (
        sparse_one.to_dask((10, -1)),
        sparse_one.to_dask((10, -1), format="csr"),
        dense.to_dask((10, -1)),
    ):
        for block in array.blocks.ravel():
            found = block.compute()
            assert (type(found), found.dtype) == (type(array._meta), array._meta.dtype)
        assert array.dtype == array._meta.dtype
        found = array.compute()
        for name in ("todense", "toarray"):
            found = getattr(found, name)() if hasattr(found, name) else found
        assert np.array_equal(found, values)


@pytest.mark.parametrize("key", [np.s_[2:12, 3:14], np.s_[-3, :9], np.s_[:10, 5], np.s_[15:25, 17]])
def test_slices_are_those_of_numpy(key: Any, dataset: SparseDataset, whole: np.ndarray[Any, Any]) -> None:
    found = dataset.to_dask(chunks=(14, 16))[key].compute(scheduler="synchronous")
    assert np.array_equal(found.todense(), whole[key])


def test_a_slice_reads_no_more(dataset: SparseDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    to_coo = SparseDataset.to_coo
    monkeypatch.setattr(SparseDataset, "to_coo", lambda self, key: asked.append(key) or to_coo(self, key))
    array = dataset.to_dask(chunks=(14, 16))
    array[2:5, 17:19].compute(scheduler="synchronous")
    assert asked == [(slice(2, 5, None), slice(17, 19, None))]


def test_dense_datasets(file: hsparse.File) -> None:
    values = np.random.default_rng(1).random((50, 40, 3))
    made = file.create_dataset("dense", data=values, chunks=(10, 40, 3))
    array = made.to_dask(chunks=(20, 40, 3))
    assert array.chunks == ((20, 20, 10), (40,), (3,))
    assert_eq(array, values)
    assert_eq(array[3, ::2, -1], values[3, ::2, -1])
    assert_eq(array[[1, 4, 2]].std(axis=0), values[[1, 4, 2]].std(axis=0))
    words = file.create_dataset("words", data=np.array(["a", "bb", "ü"], object))
    assert words.to_dask().compute().tolist() == ["a", "bb", "ü"]
    file.attrs["scalar"] = 1
    assert_eq(file.create_dataset("scalar", data=7).to_dask(), np.array(7))


def test_blocks_are_made_of_stored_chunks_and_have_about_100_mb(
    dataset: SparseDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hsparse.client.integrations.dask.dask_array.BLOCK_BYTES", 1000)
    array = dataset.to_dask()
    for lengths, length in zip(array.chunks, (7, 8), strict=True):
        assert all(one % length == 0 for one in lengths[:-1])
    assert array.npartitions > 1
    sizes = [block.nbytes for block in (one.compute() for one in dataset.to_dask().blocks.ravel())]
    assert max(sizes) < 3000
    monkeypatch.undo()
    assert dataset.to_dask().numblocks == (1, 1)


def test_no_two_arrays_have_one_name(dataset: SparseDataset, file: hsparse.File) -> None:
    other = file["x"]
    assert isinstance(other, SparseDataset)
    before = dataset.to_dask(chunks=(14, 16))
    after = other.to_dask(chunks=(14, 16))  # perhaps after a write
    assert before.name != after.name, "dask would take the values before a write for those after it"


def test_tasks_run_in_other_processes(dataset: SparseDataset, whole: np.ndarray[Any, Any]) -> None:
    array = pickle.loads(pickle.dumps(dataset.to_dask(chunks=(14, 21), format="csr")))
    found = array.compute(scheduler="processes", num_workers=1)
    assert np.array_equal(found.toarray(), whole)


def test_other_fill_values_and_ranks(connection: Connection) -> None:
    made = SparseDataset.create(connection, "/deep", (4, 5, 6), "i2", (2, 5, 3), fillvalue=-1)
    made.write([[0, 0, 0], [3, 4, 5]], [7, 0])
    wanted = made.read_dense()
    array = made.to_dask(chunks=(2, 5, 3))
    assert_eq(array.map_blocks(lambda block: block.todense()), wanted)
    assert array.compute().fill_value == -1
    assert array[0, 0, 0].compute() == 7
    with pytest.raises(ValueError, match="format='coo'"):
        made.to_dask(format="csr")
    with pytest.raises(ValueError, match="no format"):
        made.to_dask(format="csc")  # type: ignore[arg-type]


def test_an_extent_of_nothing(connection: Connection) -> None:
    made = SparseDataset.create(connection, "/empty", (0, 6), "f4", (5, 5), maxshape=(None, 6))
    for format in ("coo", "csr"):
        assert made.to_dask(format=format).compute().shape == (0, 6)  # type: ignore[arg-type]
    assert isinstance(made.to_dask(), da.Array)


@pytest.mark.parametrize("format", ["coo", "csr"])
def test_a_dataset_that_was_shrunk_is_a_conflict_and_no_short_block(file: hsparse.File, format: Any) -> None:
    dataset = file.create_sparse(f"shrunk-{format}", (20, 6), "f4", (5, 6), maxshape=(None, 6))
    dataset[...] = np.ones((20, 6), np.float32)
    array = dataset.to_dask(chunks=(10, 6), format=format)
    other = file[f"shrunk-{format}"]
    assert isinstance(other, SparseDataset)
    other.resize((15, 6), erase=True)
    with pytest.raises(hsparse.Conflict, match="open it again"):
        array[10:].compute()
