"""Reader that uses hsparse's client: over HTTP, directly from the server's directory, or embedded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import scipy.sparse  # noqa: F401 - imported before the clock starts, as in the other readers

import hsparse
from benchmarks.peers.cells.reader import Rows


class HsparseReader:
    """Two domains that `hsparse import` created from `cells.h5ad`; `training` has chunks of whole rows.

    `options` are passed to `hsparse.open`.
    """

    def __init__(self, path: str, *, training: str, **options: Any) -> None:
        self._file: Any = hsparse.open(path, **options)
        self._matrix: Any = self._file["X"]
        self._training: Any = hsparse.open(training, **options)

    @staticmethod
    def prepare(source: str, target: str) -> None:
        raise NotImplementedError(f"{source} is imported by the command.")

    def batches(self, size: int, seed: int) -> Iterator[tuple[Rows, Any]]:
        for counts, obs, _ in hsparse.Batches(self._training["X"], obs=["row"], size=size, seed=seed):
            yield obs["row"], counts

    def genes(self, genes: Sequence[int]) -> Any:
        return self._matrix.oindex[:, list(genes)]

    def everything(self) -> Any:
        return self._matrix.to_scipy("csr")

    def chosen(self, cell_type: str, above: int) -> Any:
        query = self._file.query(obs=f"cell_type == '{cell_type}' and n_genes > {above}")
        return query.to_anndata().X
