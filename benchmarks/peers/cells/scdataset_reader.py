"""Reader that uses scDataset over a backed AnnData file, for random batches only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anndata
from scdataset import BlockShuffling, scDataset
from torch.utils.data import DataLoader

from benchmarks.peers.cells.reader import Rows

BLOCK, FETCH = 16, 4
"""Rows of a block, and batches fetched at a time; both are in the range that scDataset's documentation names.

Blocks of 16 and 64 rows and factors of 1, 4 and 16 were tried; these values gave the most cells per second.
"""


class ScDatasetReader:
    """Reads blocks of rows in random order; the rows that are fetched together are shuffled."""

    genes = everything = chosen = None

    def __init__(self, path: str) -> None:
        self._data = anndata.read_h5ad(path, backed="r")

    @staticmethod
    def prepare(source: str, target: str) -> None:
        raise NotImplementedError(f"{source} is read as it is.")

    def batches(self, size: int, seed: int) -> Iterator[tuple[Rows, Any]]:
        dataset = scDataset(
            self._data,
            BlockShuffling(block_size=BLOCK),
            batch_size=size,
            fetch_factor=FETCH,
            fetch_transform=lambda fetched: fetched.to_memory(),
            batch_transform=lambda batch: (batch.obs["row"].to_numpy(), batch.X),
            seed=seed,
        )
        yield from DataLoader(dataset, batch_size=None, collate_fn=lambda batch: batch)
