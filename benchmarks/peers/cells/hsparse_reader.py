"""hsparse's client over HTTP.

Tests: tests/benchmarks/test_cells.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

import hsparse
from benchmarks.peers.cells.reader import Rows

BLOCK = 4096
"""Rows of a request, whose answer is limited."""


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
            yield rows, self._rows(rows)

    def genes(self, genes: Sequence[int]) -> Any:
        coords, values = self._matrix.read((slice(None), list(genes)))
        columns = np.searchsorted(np.array(genes), coords[:, 1])
        return csr_array((values, (coords[:, 0], columns)), (self._matrix.shape[0], len(genes)))

    def everything(self) -> Any:
        count = self._matrix.shape[0]
        blocks = [np.arange(start, min(count, start + BLOCK)) for start in range(0, count, BLOCK)]
        return vstack([self._rows(block) for block in blocks], "csr")

    def chosen(self, cell_type: str, above: int) -> Any:
        names = self._file["obs/cell_type/categories"][:]
        codes = self._file["obs/cell_type/codes"][:]
        code = [str(name) for name in names].index(cell_type)
        return self._rows(np.flatnonzero((codes == code) & (self._file["obs/n_genes"][:] > above)))

    def _rows(self, rows: NDArray[np.int64]) -> Any:
        coords, values = self._matrix.read((rows.tolist(), slice(None)))
        places = (np.searchsorted(rows, coords[:, 0]), coords[:, 1])
        return csr_array((values, places), (len(rows), self._matrix.shape[1]))
