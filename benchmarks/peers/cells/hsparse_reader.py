"""hsparse's client over HTTP.

Tests: tests/benchmarks/test_cells.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import hsparse
from benchmarks.peers.cells.reader import Rows


class HsparseReader:
    """A domain that `hsparse import` made of `cells.h5ad`; `options` are those of `hsparse.open`."""

    def __init__(self, path: str, **options: Any) -> None:
        self._file: Any = hsparse.open(path, **options)
        self._matrix: Any = self._file["X"]

    @staticmethod
    def prepare(source: str, target: str) -> None:
        raise NotImplementedError(f"{source} is imported by the command.")

    def batches(self, size: int, seed: int) -> Iterator[tuple[Rows, Any]]:
        order = np.random.default_rng(seed).permutation(self._matrix.shape[0])
        for start in range(0, len(order), size):
            rows = np.sort(order[start : start + size])
            yield rows, self._matrix[rows]

    def genes(self, genes: Sequence[int]) -> Any:
        return self._matrix.oindex[:, list(genes)]

    def everything(self) -> Any:
        return self._matrix.to_scipy("csr")

    def chosen(self, cell_type: str, above: int) -> Any:
        names = self._file["obs/cell_type/categories"][:]
        codes = self._file["obs/cell_type/codes"][:]
        code = [str(name) for name in names].index(cell_type)
        return self._matrix[np.flatnonzero((codes == code) & (self._file["obs/n_genes"][:] > above))]
