"""`hsparse.torch.Batches` in a `DataLoader`, with workers that are forked and spawned."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import hsparse
from hsparse.client.sparse_dataset import SparseDataset
from tests.client.test_batches import entropy
from tests.support.docstring_examples import Sample, documented, run_example, sample

__all__ = ["sample"]

torch: Any = None
"""Imported when a test here runs: that takes seconds, and each process of pytest-xdist collects all files."""
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create 4 worker processes")
ROWS = 4000
SIZE = 100
MEMORY = 200_000
"""For buffers of an eighth of the rows: each of 4 workers has some."""
KINDS = 10


@pytest.fixture(scope="module", autouse=True)
def torch_is_there() -> None:
    global torch
    torch = pytest.importorskip("torch", reason='torch is not installed: pip install "hsparse[torch]"')


@pytest.fixture(scope="module")
def matrix() -> Any:
    return scipy.sparse.random_array((ROWS, 20), density=0.2, rng=1, dtype="f4", format="csr")


@pytest.fixture(scope="module")
def dataset(embedded_url: str, matrix: Any) -> Iterator[SparseDataset]:
    with hsparse.open(f"{embedded_url}/torch.h5", "w") as file:
        assert isinstance(file, hsparse.File)
        made = file.create_sparse("X", matrix.shape, "f4", (64, 20))
        made[:] = matrix
        yield made


def batches(dataset: SparseDataset, **options: Any) -> Any:
    labels = {"label": np.arange(ROWS) % 7, "name": np.array([f"row {row}" for row in range(ROWS)])}
    return hsparse.torch.Batches(dataset, labels, **{"size": SIZE, "seed": 4, "memory": MEMORY} | options)


def loader(dataset: SparseDataset, start: str, **options: Any) -> Any:
    return torch.utils.data.DataLoader(
        batches(dataset), batch_size=None, multiprocessing_context=start, **{"num_workers": 4} | options
    )


def rows_of(found: list[Any]) -> list[int]:
    return [row for batch in found for row in batch.rows.tolist()]


@pytest.mark.parametrize("format", ["torch", "torch_csr"])
def test_batches_are_tensors(dataset: SparseDataset, matrix: Any, format: str) -> None:
    found = list(batches(dataset, format=format))
    assert sorted(rows_of(found)) == list(range(ROWS))
    for x, obs, rows in found:
        assert x.layout == (torch.sparse_csr if format == "torch_csr" else torch.strided)
        assert np.array_equal(x.to_dense().numpy(), matrix[rows.numpy()].toarray())
        assert obs["label"].tolist() == (rows % 7).tolist()
        assert obs["name"].tolist() == [f"row {row}" for row in rows.tolist()]


def test_arrays_are_passed_on(dataset: SparseDataset) -> None:
    first = next(iter(batches(dataset, format="csr")))
    assert isinstance(first.x, scipy.sparse.csr_array)
    assert isinstance(first.obs["label"], np.ndarray)


def test_four_workers_have_each_row_once_in_an_order_of_the_epoch(
    dataset: SparseDataset, matrix: Any
) -> None:
    loading = loader(dataset, "fork", persistent_workers=True)
    orders = []
    for epoch in (0, 1, 0):
        loading.dataset.set_epoch(epoch)
        found = list(loading)
        orders.append(rows_of(found))
        assert sorted(orders[-1]) == list(range(ROWS))
    assert orders[0] == orders[2] != orders[1]
    assert np.array_equal(found[0].x.numpy(), matrix[found[0].rows.numpy()].toarray())


def test_four_spawned_workers_have_the_order_of_forked_ones(dataset: SparseDataset) -> None:
    rows = rows_of(list(loader(dataset, "spawn")))
    assert (sorted(rows), rows) == (list(range(ROWS)), rows_of(list(loader(dataset, "fork"))))


def test_batches_of_workers_are_nearly_as_mixed_as_random_ones(dataset: SparseDataset) -> None:
    """The measure of scDataset, as in tests/client/test_batches.py: here of the rows, sorted by kind."""
    kinds = np.arange(ROWS) // (ROWS // KINDS)
    rng = np.random.default_rng(5)
    random = np.mean([entropy(kinds[rng.permutation(ROWS)[:SIZE]]) for _ in range(100)])
    assert batches(dataset)._batches.plan.buffer_rows < ROWS / 4
    for found in (batches(dataset), loader(dataset, "fork")):
        whole = [kinds[batch.rows.numpy()] for batch in found if len(batch.rows) == SIZE]
        assert len(whole) >= ROWS // SIZE - 4
        assert np.mean([entropy(labels) for labels in whole]) >= 0.88 * random


def test_ranks_are_given_or_those_of_torch(dataset: SparseDataset) -> None:
    rows = [row for rank in range(3) for row in rows_of(list(batches(dataset, rank=rank, world=3)))]
    assert (sorted(rows), batches(dataset)._batches.plan.world) == (list(range(ROWS)), 1)


def test_docstrings_have_examples_that_print_what_they_say(sample: Sample) -> None:
    for one in documented(hsparse.torch.Batches):
        assert one.has_example, f"The docstring of {one.name} has no example."
        run_example(one, sample)
