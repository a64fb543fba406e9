from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse
import sparse

import hsparse
from hsparse.client.connection import Connection
from hsparse.client.dense_dataset import DenseDataset
from hsparse.client.sparse_dataset import SparseDataset


@pytest.fixture
def file(connection: Connection) -> Iterator[hsparse.File]:
    found = hsparse.open(f"{connection.url}{connection.domain}")
    assert isinstance(found, hsparse.File)
    with found:
        yield found


@pytest.fixture
def whole() -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(2)
    return np.where(rng.random((20, 12)) < 0.3, rng.random((20, 12)), 0)


@pytest.mark.parametrize("kind", [sparse.COO, scipy.sparse.csr_array, scipy.sparse.csc_matrix])
def test_sparse_blocks_make_a_sparse_dataset(
    file: hsparse.File, whole: np.ndarray[Any, Any], kind: Any
) -> None:
    array = da.from_array(whole, chunks=(6, 5)).map_blocks(kind)
    made = hsparse.from_dask(file, "a/x", array, chunks=(10, 10))
    assert isinstance(made, SparseDataset)
    assert made.chunks == (10, 10)
    assert made.count() == np.count_nonzero(whole)
    assert np.array_equal(made.read_dense(), whole)
    assert made.dtype == whole.dtype


def test_numpy_blocks_make_a_dense_dataset(file: hsparse.File, whole: np.ndarray[Any, Any]) -> None:
    made = hsparse.from_dask(file, "y", da.from_array(whole, chunks=(6, 5)))
    assert isinstance(made, DenseDataset)
    assert np.array_equal(made[...], whole)


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
