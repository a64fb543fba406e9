"""Batches of rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import anndata
import numpy as np
import pandas
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

import hsparse
from hsparse.client.errors import MissingKey
from hsparse.client.integrations.batches.batches import COPIES, Batches, BatchPlan, choose_block_rows
from hsparse.client.sparse_dataset import SparseDataset

ROWS, WIDTH = 1000, 30
LABELS = 10


@pytest.fixture(scope="module")
def file(url: str) -> Iterator[hsparse.File]:
    found = hsparse.open(f"{url}/batches.h5", "w")  # the worker may come back to this module
    assert isinstance(found, hsparse.File)
    with found:
        found.create_dataset("obs/label/codes", data=np.repeat(np.arange(LABELS, dtype="i1"), ROWS // LABELS))
        found.create_dataset("obs/label/categories", data=[f"type {one}" for one in range(LABELS)])
        found.create_dataset("obs/depth", data=np.arange(ROWS) * 0.5)
        yield found


@pytest.fixture(scope="module")
def matrix() -> Any:
    return scipy.sparse.random_array((ROWS, WIDTH), density=0.2, rng=1, dtype="f4", format="csr")


@pytest.fixture(scope="module")
def dataset(file: hsparse.File, matrix: Any) -> SparseDataset:
    made = file.create_sparse("X", (ROWS, WIDTH), "f4", (64, 10))
    made[:] = matrix
    return made


@settings(max_examples=200)
@given(
    st.integers(0, 300),
    st.integers(1, 40),
    st.integers(1, 90),
    st.booleans(),
    st.integers(1, 4),
    st.integers(0, 3),
)
def test_a_plan_has_each_row_once(
    count: int, block: int, buffer: int, shuffle: bool, world: int, epoch: int
) -> None:
    plans = [BatchPlan(count, block, buffer, shuffle, 7, epoch, rank, world) for rank in range(world)]
    ranks = [np.concatenate([*map(plan.rows, plan.buffers()), np.empty(0, int)]) for plan in plans]
    assert sorted(np.concatenate(ranks).tolist()) == list(range(count))
    assert [plan.row_count() for plan in plans] == [len(rows) for rows in ranks]
    assert max(map(len, ranks)) - min(map(len, ranks)) <= 2 * block


@pytest.mark.parametrize(
    ("chunk", "buffer", "wanted"),
    [(64, 8192, 64), (4096, 32768, 256), (4096, 100, 1), (100, 12800, 100), (100, 12000, 50), (7, 128, 1)],
)
def test_blocks_are_parts_of_chunks(chunk: int, buffer: int, wanted: int) -> None:
    assert choose_block_rows(chunk, buffer) == wanted


@pytest.mark.parametrize(
    "options", [{}, {"memory": 1}, {"memory": 200_000}, {"block_rows": 7}, {"shuffle": False}]
)
def test_an_epoch_has_each_row_once_as_it_is(dataset: SparseDataset, matrix: Any, options: Any) -> None:
    batches = Batches(dataset, ["label", "depth"], size=96, **options)
    found = list(batches)
    assert len(found) == len(batches) == 11
    assert [len(batch.rows) for batch in found] == [96] * 10 + [40]
    assert sorted(np.concatenate([batch.rows for batch in found]).tolist()) == list(range(ROWS))
    for x, obs, rows in found:
        assert isinstance(x, scipy.sparse.csr_array)
        assert (x.dtype, (x != matrix[rows]).nnz) == (np.float32, 0)
        assert obs["label"].tolist() == (rows // (ROWS // LABELS)).tolist()
        assert obs["depth"].tolist() == (rows * 0.5).tolist()
    assert batches.categories["label"][3] == "type 3"


def test_without_a_shuffle_rows_are_in_order(dataset: SparseDataset) -> None:
    rows = np.concatenate([batch.rows for batch in Batches(dataset, size=64, shuffle=False, memory=1)])
    assert rows.tolist() == list(range(ROWS))


def test_the_order_follows_from_the_seed_and_the_epoch(dataset: SparseDataset) -> None:
    def order(seed: int, epoch: int) -> list[int]:
        batches = Batches(dataset, size=100, seed=seed, memory=100_000)
        batches.set_epoch(epoch)
        return [row for batch in batches for row in batch.rows.tolist()]

    assert order(1, 0) == order(1, 0)
    assert len({tuple(order(seed, epoch)) for seed in (1, 2) for epoch in (0, 1)}) == 4


@pytest.mark.parametrize(("world", "workers"), [(1, 4), (3, 1), (2, 3)])
def test_ranks_and_workers_share_an_epoch(dataset: SparseDataset, world: int, workers: int) -> None:
    rows: list[int] = []
    for rank in range(world):
        batches = Batches(dataset, size=32, seed=3, rank=rank, world=world, memory=60_000)
        for worker in range(workers):
            rows += [row for batch in batches.part(worker, workers) for row in batch.rows.tolist()]
    assert sorted(rows) == list(range(ROWS))


def entropy(labels: np.ndarray[Any, Any]) -> float:
    counts = np.array(list(Counter(labels.tolist()).values()))
    return float(-(counts / counts.sum() * np.log(counts / counts.sum())).sum())


def test_batches_of_sorted_rows_are_nearly_as_mixed_as_random_ones(dataset: SparseDataset) -> None:
    """The measure of scDataset: the entropy of a label in a batch, beside that of rows drawn at random."""
    batches = Batches(dataset, ["label"], size=100, seed=5, memory=60_000)
    assert batches.plan.buffer_rows < ROWS / 2
    found = [entropy(batch.obs["label"]) for batch in batches]
    rng = np.random.default_rng(5)
    random = [entropy(rng.permutation(ROWS)[:100] // (ROWS // LABELS)) for _ in found]
    assert np.mean(found) >= 0.88 * np.mean(random)


def test_a_last_batch_that_is_short_can_be_left_out(dataset: SparseDataset) -> None:
    batches = Batches(dataset, size=96, drop_last=True, memory=1)
    assert [len(batch.rows) for batch in batches] == [96] * 10 == [96] * len(batches)


@pytest.mark.parametrize(
    "rows",
    [slice(10, 500, 7), [900, 3, 3, 41], np.arange(ROWS) % 3 == 1, np.arange(ROWS) < 300, []],
    ids=["slice", "list", "mask", "range", "none"],
)
def test_batches_have_the_rows_that_are_chosen(dataset: SparseDataset, matrix: Any, rows: Any) -> None:
    wanted = np.unique(np.arange(ROWS)[np.asarray(rows, np.intp) if isinstance(rows, list) else rows])
    batches = Batches(dataset, ["label", "depth"], rows=rows, size=32, seed=3, format="numpy")
    found = list(batches)
    assert len(found) == len(batches)
    assert sorted(row for batch in found for row in batch.rows.tolist()) == wanted.tolist()
    for batch in found:
        assert np.array_equal(batch.x, matrix.toarray()[batch.rows])
        assert batch.obs["depth"].tolist() == (batch.rows * 0.5).tolist()
        names = [f"type {row // (ROWS // LABELS)}" for row in batch.rows]
        assert batches.names("label", batch.obs["label"]).tolist() == names
    with pytest.raises(MissingKey, match="depth is not a categorical"):
        batches.names("depth", [0])
    assert batches.names("label", [-1]).tolist() == [None]


@pytest.mark.parametrize("var", [None, ["g7", "g2"], slice(5, 9)])
def test_batches_of_a_query_have_its_rows_and_columns(url: str, matrix: Any, var: Any) -> None:
    obs = pandas.DataFrame(
        {"label": pandas.Categorical([f"t{row % 4}" for row in range(ROWS)])},
        index=[f"c{row}" for row in range(ROWS)],
    )
    genes = pandas.DataFrame(index=[f"g{gene}" for gene in range(WIDTH)])
    data = anndata.AnnData(matrix, obs, genes)
    with hsparse.open(f"{url}/batches-query-{type(var).__name__}.h5", "w") as file:
        file.write_anndata(data)
        batches = Batches(file.query("label == 't1'", var), ["label"], size=64, shuffle=False)
        found = list(batches)
        names = np.concatenate([batches.names("label", batch.obs["label"]) for batch in found])
    wanted = data[data.obs["label"] == "t1"]
    wanted = wanted if var is None else wanted[:, var]
    assert np.array_equal(np.vstack([batch.x.toarray() for batch in found]), wanted.X.toarray())
    assert names.tolist() == wanted.obs["label"].tolist()


def test_dense_batches_and_given_columns(dataset: SparseDataset, matrix: Any) -> None:
    for x, obs, rows in Batches(dataset, {"double": np.arange(ROWS) * 2}, size=500, format="numpy"):
        assert np.array_equal(x, matrix[rows].toarray())
        assert np.array_equal(obs["double"], rows * 2)


def test_buffers_keep_to_the_memory(dataset: SparseDataset) -> None:
    row = dataset.nnz / ROWS * 8 + 8
    for memory in (40_000, 120_000):
        plan = Batches(dataset, size=16, memory=memory).plan
        assert memory / 2 < plan.buffer_rows * row * COPIES <= memory


def test_what_cannot_be_had_is_refused(dataset: SparseDataset, file: hsparse.File) -> None:
    for options in ({"size": 0}, {"rank": 2, "world": 2}, {"block_rows": 0}, {"format": "coo"}):
        with pytest.raises(ValueError, match=r"row|format"):
            Batches(dataset, **options)  # type: ignore[arg-type]
    with pytest.raises(KeyError, match="no column none"):
        Batches(dataset, ["none"])
    with pytest.raises(TypeError, match="in a list"):
        Batches(dataset, "label")
    with pytest.raises(ValueError, match=r"shape \[3\]"):
        Batches(dataset, {"short": [1, 2, 3]})
    file.create_group("obs/odd")
    with pytest.raises(TypeError, match="neither"):
        Batches(dataset, ["odd"])
    with pytest.raises(ValueError, match="with the fill value 0"):
        Batches(file.create_sparse("deep", (3, 3, 3), "f4", (3, 3, 3)))
