"""Compressed rows of selections, read directly, against numpy; and where elements are read in their place."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings

from hsparse.client.integrations.direct.direct_elements import DirectElements
from hsparse.client.sparse.compressed_rows import CompressedRows
from hsparse.client.sparse_dataset import SparseDataset
from hsparse.format.chunk_spec import chunk_key
from hsparse.format.selections.orthogonal import Orthogonal
from tests.client.access_ways import Access, open_access
from tests.format.selection_strategies import list_axis, orthogonals

EXTENT = (23, 17)


def random_matrix(access: Access) -> tuple[SparseDataset, np.ndarray]:
    """Return a dataset in chunks of which one row of them is empty, and its values."""
    dataset = access.create(EXTENT)
    dense = np.where(np.random.default_rng(3).random(EXTENT) < 0.3, np.arange(1, 392).reshape(EXTENT), 0)
    dense[5:10] = 0
    coords = np.argwhere(dense)
    dataset.write(coords, dense[tuple(coords.T)])
    return dataset, dense


@pytest.fixture(scope="module")
def matrix(request: pytest.FixtureRequest) -> Iterator[tuple[DirectElements, SparseDataset, np.ndarray]]:
    with open_access("directory", request) as opened:
        dataset, dense = random_matrix(opened)
        source = opened.source(dataset)
        assert isinstance(source, DirectElements)
        dataset.source = source
        yield source, dataset, dense


@settings(max_examples=60)
@given(selection=orthogonals(EXTENT))
def test_random_selections(
    matrix: tuple[DirectElements, SparseDataset, np.ndarray], selection: Orthogonal
) -> None:
    source, _, dense = matrix
    axes = tuple(np.unique(list_axis(axis)).astype(np.uint64) for axis in selection.axes)
    found = source.compressed_rows(Orthogonal(EXTENT, axes))
    if not selection.size:
        assert found is None
        return
    assert isinstance(found, CompressedRows)
    csr = found.to_scipy()
    csr.check_format()
    np.testing.assert_array_equal(csr.toarray(), dense[np.ix_(*(axis.astype(np.intp) for axis in axes))])
    assert csr.nnz == np.count_nonzero(csr.toarray())


@pytest.mark.parametrize(
    "key",
    [
        (slice(None), slice(None)),
        (slice(20, 2, -3), slice(4, None)),
        ([4, 1, 1, 22], slice(None, None, -1)),
        (slice(3, 3), slice(None)),
    ],
    ids=str,
)
def test_keys_that_turn_and_repeat(
    matrix: tuple[DirectElements, SparseDataset, np.ndarray], key: tuple[object, object]
) -> None:
    _, dataset, dense = matrix
    found = dataset[key]
    found.check_format()
    assert found.has_sorted_indices
    np.testing.assert_array_equal(found.toarray(), dense[key])


def test_columns_in_any_order(matrix: tuple[DirectElements, SparseDataset, np.ndarray]) -> None:
    _, dataset, dense = matrix
    found = dataset.oindex[[7, 3, 12], [16, 0, 5, 5]]
    found.check_format()
    np.testing.assert_array_equal(found.toarray(), dense[np.ix_([7, 3, 12], [16, 0, 5, 5])])


def test_a_chunk_that_changes_meanwhile_is_read_by_elements(directory_access: Access) -> None:
    dataset, dense = random_matrix(directory_access)
    source = directory_access.source(dataset)
    assert isinstance(source, DirectElements)
    assert directory_access.root is not None
    path = directory_access.root / chunk_key(dataset.id, (3, 1))
    whole = Orthogonal.all(EXTENT)
    assert source.compressed_rows(whole) is not None
    path.unlink()
    assert source.compressed_rows(whole) is None
    dataset.source = source
    found = dataset[...]
    np.testing.assert_array_equal(found.toarray(), dense)
    assert source.statistics.fallbacks == 1
