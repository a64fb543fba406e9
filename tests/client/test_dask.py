"""Datasets as arrays of dask, beside numpy's: read, written, and on every scheduler."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse
import sparse
from dask.array.utils import assert_eq

import hsparse
from hsparse.client.connection import Connection
from hsparse.client.dense_dataset import DenseDataset
from hsparse.client.opening import open_connection
from hsparse.client.sparse.coo_serialization import whole_array
from hsparse.client.sparse_dataset import SparseDataset
from tests.client.access_ways import Access, open_file

SHAPE = (30, 21)


@pytest.fixture(scope="module")
def stored(url: str) -> Iterator[hsparse.File]:
    found = open_file(f"{url}/dask.h5", "w")
    with found:
        yield found


@pytest.fixture(scope="module")
def whole() -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(1)
    return np.where(rng.random(SHAPE) < 0.2, rng.integers(1, 100, SHAPE), 0).astype("f4")


@pytest.fixture(scope="module")
def dataset(stored: hsparse.File, whole: np.ndarray[Any, Any]) -> SparseDataset:
    made = stored.create_sparse("x", SHAPE, "f4", (7, 8))
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
    stored = open_connection(access.connection)
    assert isinstance(stored, hsparse.File)
    values = np.arange(SHAPE[0] * SHAPE[1]).reshape(SHAPE).astype(dtype)
    sparse_one = stored.create_sparse("sparse", SHAPE, dtype, (7, 8))
    sparse_one[...] = values
    dense = stored.create_dataset("dense", data=values, chunks=(10, 21))
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


def test_dense_datasets(stored: hsparse.File) -> None:
    values = np.random.default_rng(1).random((50, 40, 3))
    made = stored.create_dataset("dense", data=values, chunks=(10, 40, 3))
    array = made.to_dask(chunks=(20, 40, 3))
    assert array.chunks == ((20, 20, 10), (40,), (3,))
    assert_eq(array, values)
    assert_eq(array[3, ::2, -1], values[3, ::2, -1])
    assert_eq(array[[1, 4, 2]].std(axis=0), values[[1, 4, 2]].std(axis=0))
    words = stored.create_dataset("words", data=np.array(["a", "bb", "ü"], object))
    assert words.to_dask().compute().tolist() == ["a", "bb", "ü"]
    stored.attrs["scalar"] = 1
    assert_eq(stored.create_dataset("scalar", data=7).to_dask(), np.array(7))


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


def test_no_two_arrays_have_one_name(dataset: SparseDataset, stored: hsparse.File) -> None:
    other: Any = stored["x"]
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
    assert (array.compute().fill_value, array[0, 0, 0].compute()) == (-1, 7)
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
def test_a_dataset_that_was_shrunk_is_a_conflict_and_no_short_block(
    stored: hsparse.File, format: Any
) -> None:
    dataset = stored.create_sparse(f"shrunk-{format}", (20, 6), "f4", (5, 6), maxshape=(None, 6))
    dataset[...] = np.ones((20, 6), np.float32)
    array = dataset.to_dask(chunks=(10, 6), format=format)
    other: Any = stored[f"shrunk-{format}"]
    other.resize((15, 6), erase=True)
    with pytest.raises(hsparse.Conflict, match="open it again"):
        array[10:].compute()


@pytest.fixture
def matrix() -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(2)
    return np.where(rng.random((20, 12)) < 0.3, rng.random((20, 12)), 0)


@pytest.mark.parametrize("kind", [sparse.COO, scipy.sparse.csr_array, scipy.sparse.csc_matrix])
def test_sparse_blocks_make_a_sparse_dataset(
    file: hsparse.File, matrix: np.ndarray[Any, Any], kind: Any
) -> None:
    array = da.from_array(matrix, chunks=(6, 5)).map_blocks(kind)
    made = hsparse.from_dask(file, "a/x", array, chunks=(10, 10))
    assert isinstance(made, SparseDataset)
    assert (made.chunks, made.count()) == ((10, 10), np.count_nonzero(matrix))
    assert np.array_equal(made.read_dense(), matrix)
    assert made.dtype == matrix.dtype


def test_numpy_blocks_make_a_dense_dataset(file: hsparse.File, matrix: np.ndarray[Any, Any]) -> None:
    made = hsparse.from_dask(file, "y", da.from_array(matrix, chunks=(6, 5)))
    assert isinstance(made, DenseDataset)
    assert np.array_equal(made[...], matrix)


def test_an_array_of_hsparse_goes_round(file: hsparse.File) -> None:
    first = file.create_sparse("first", (8, 8), "i4", (4, 4), fillvalue=-1)
    first.write([[0, 1], [5, 5]], [0, 9])
    second = hsparse.from_dask(file, "second", first.to_dask(chunks=(4, 8)))
    assert isinstance(second, SparseDataset)
    assert second.fillvalue == -1
    assert [part.tolist() for part in second.read()] == [part.tolist() for part in first.read()]


def test_duplicates_add_up(file: hsparse.File) -> None:
    twice = scipy.sparse.coo_array(([1.0, 2.0], ([3, 3], [4, 4])), shape=(5, 5))
    made = hsparse.from_dask(
        file, "twice", da.from_array(np.zeros((5, 5)), chunks=5).map_blocks(lambda _: twice, meta=twice)
    )
    assert made[3, 4] == 3 if isinstance(made, DenseDataset) else made.read_dense((3, 4)) == 3


def test_blocks_are_written_as_they_are_computed(file: hsparse.File, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one worker no block is computed before the one before it is written."""
    written: list[int] = []
    stored: list[int] = [0]
    write = SparseDataset.write

    def watched(self: SparseDataset, coords: Any, values: Any) -> None:
        write(self, coords, values)
        stored[0] = self.count()

    monkeypatch.setattr(SparseDataset, "write", watched)

    def block(block_id: tuple[int, ...]) -> Any:
        written.append(stored[0])
        return sparse.COO(np.ones((2, 2)))

    array = da.map_blocks(block, chunks=((2,) * 5, (2,)), dtype="f8", meta=sparse.COO(np.zeros((0, 0))))
    with dask.config.set(scheduler="synchronous"):
        hsparse.from_dask(file, "z", array)
    assert written == [0, 4, 8, 12, 16]


def test_what_cannot_be_written_is_refused_before(file: hsparse.File) -> None:
    unknown = da.from_array(np.arange(10), chunks=5)
    with pytest.raises(ValueError, match="compute_chunk_sizes"):
        hsparse.from_dask(file, "unknown", unknown[unknown > 3])
    assert "unknown" not in file


distributed = pytest.importorskip("distributed", reason="distributed is not installed")
BLOCKED = (16, 10)
"""Of blocks of 4 x 5, so that partial sums have the same fill value: sparse concatenates no others."""
FILLS = {"zero": 0.0, "below zero": -1.0, "no number": np.nan}
CALCULATIONS: dict[str, Callable[[Any], Any]] = {
    "all": lambda x: x,
    "sum": lambda x: x.sum(),
    "sum of columns": lambda x: x.sum(axis=0),
    "mean": lambda x: x.mean(axis=1),
    "max": lambda x: x.max(),
    "without an element": lambda x: x[5:7, 2:4],
    "over blocks": lambda x: x[3:11, ::3],
    "another fill value": lambda x: (x + 3)[:, 4],
    "transposed": lambda x: (2 * x).T[1],
    "joined": lambda x: np.concatenate([x, x + 0]).min(axis=1),
}


@pytest.fixture(scope="module")
def filled(url: str) -> Iterator[hsparse.File]:
    found = open_file(f"{url}/distributed.h5", "w")
    with found:
        for name, fill in FILLS.items():
            made = found.create_sparse(name, BLOCKED, "f8", (4, 5), fillvalue=fill)
            made.write([[0, 0], [3, 4], [11, 9]], [7, 0, 2])
        yield found


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A client of two processes, each with a thread: a sum needs blocks of both."""
    options: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with (
        warnings.catch_warnings(),
        distributed.LocalCluster(processes=True, **options) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as made:
        yield made


@pytest.mark.parametrize("calculation", CALCULATIONS)
@pytest.mark.parametrize("name", FILLS)
@pytest.mark.parametrize("scheduler", ["threads", "processes", "distributed"])
def test_every_scheduler_gives_what_numpy_gives(
    filled: hsparse.File, request: pytest.FixtureRequest, scheduler: str, name: str, calculation: str
) -> None:
    dataset, calculate = filled[name], CALCULATIONS[calculation]
    array = calculate(dataset.to_dask(chunks=(4, 5)))
    if scheduler == "distributed":
        found = request.getfixturevalue("cluster").compute(array).result()
    else:
        options = {"pool": request.getfixturevalue("pool")} if scheduler == "processes" else {}
        found = array.compute(scheduler=scheduler, **options)
    found = found.todense() if isinstance(found, sparse.COO) else found
    np.testing.assert_allclose(found, calculate(dataset.read_dense()))


def negative_after_a_journey(header: Any, frames: list[bytes]) -> Any:
    """Read an array as a worker that has imported nothing of hsparse, and send what is made of it."""
    from distributed.protocol import deserialize, serialize

    header, frames = serialize(-deserialize(header, frames))
    return header, [bytes(one) for one in frames]


@pytest.mark.parametrize("fill", [2, -0.5, np.nan, True, 1 + 2j], ids=str)
@pytest.mark.parametrize("shape", [(), (0, 3), (4, 5, 6)], ids=str)
def test_what_a_worker_has_received_is_sent_on_whole(shape: tuple[int, ...], fill: Any) -> None:
    protocol = distributed.protocol
    nothing = np.zeros((len(shape), 0), np.intp), np.zeros(0, np.result_type(fill, np.int8))
    array = whole_array(*nothing, shape, nothing[1].dtype.type(fill))  # as a worker receives it
    header, frames = protocol.serialize(array)
    frames = [bytes(one) for one in frames]
    found = protocol.deserialize(header, frames)
    assert (found.dtype, found.shape) == (array.dtype, shape)
    np.testing.assert_equal(found.fill_value, array.fill_value)


def test_a_worker_learns_it_from_the_first_array(pool: ProcessPoolExecutor) -> None:
    array = whole_array(np.array([[1], [2]]), np.array([5.0]), (3, 4), -1.0)
    header, frames = distributed.protocol.serialize(array)
    answer = pool.submit(negative_after_a_journey, header, [bytes(one) for one in frames])
    found = distributed.protocol.deserialize(*answer.result())
    np.testing.assert_array_equal(found.todense(), -array.todense())
