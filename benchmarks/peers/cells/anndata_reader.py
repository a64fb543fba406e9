"""Readers with AnnData; the matrix stays in the file: HDF5 by `backed="r"`, Zarr by `sparse_dataset`, `read_lazy`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import anndata
import numpy as np

from benchmarks.peers.cells.reader import Rows


def random_rows(count: int, size: int, seed: int) -> Iterator[Rows]:
    """Yield all numbers below `count` in batches, drawn at random, each batch in ascending order."""
    order = np.random.default_rng(seed).permutation(count)
    for start in range(0, count, size):
        yield np.sort(order[start : start + size])


class H5adReader:
    """`cells.h5ad`, read through h5py."""

    def __init__(self, path: str) -> None:
        self._data = anndata.read_h5ad(path, backed="r")

    @staticmethod
    def prepare(source: str, target: str) -> None:
        raise NotImplementedError(f"{source} is read as it is.")

    def batches(self, size: int, seed: int) -> Iterator[tuple[Rows, Any]]:
        for rows in random_rows(self._data.n_obs, size, seed):
            yield rows, self._data[rows].to_memory().X

    def genes(self, genes: Sequence[int]) -> Any:
        return self._data[:, list(genes)].to_memory().X

    def everything(self) -> Any:
        return self._data.X.to_memory()

    def chosen(self, cell_type: str, above: int) -> Any:
        obs = self._data.obs
        return self._data[(obs.cell_type == cell_type) & (obs.n_genes > above)].to_memory().X


class GzipReader(H5adReader):
    """The same file with gzip, like most published files."""

    @staticmethod
    def prepare(source: str, target: str) -> None:
        anndata.read_h5ad(source).write_h5ad(target, compression="gzip")


class ZarrReader:
    """Zarr format 3 with the codecs of zarrs, which AnnData's page on Zarr 3 recommends."""

    def __init__(self, path: str) -> None:
        zarr = _zarr()
        self._matrix = anndata.io.sparse_dataset(zarr.open(path, mode="r")["X"])
        self._data = anndata.experimental.read_lazy(path)
        self._obs = self._data.obs.to_memory()

    @staticmethod
    def prepare(source: str, target: str) -> None:
        _zarr()
        anndata.settings.zarr_write_format = 3
        anndata.read_h5ad(source).write_zarr(target)

    def batches(self, size: int, seed: int) -> Iterator[tuple[Rows, Any]]:
        for rows in random_rows(self._matrix.shape[0], size, seed):
            yield rows, self._matrix[rows]

    def genes(self, genes: Sequence[int]) -> Any:
        return self._matrix[:, list(genes)]

    def everything(self) -> Any:
        return self._matrix.to_memory()

    def chosen(self, cell_type: str, above: int) -> Any:
        mask = (self._obs.cell_type == cell_type) & (self._obs.n_genes > above)
        return self._data[mask.to_numpy()].to_memory().X


def _zarr() -> Any:
    import zarr

    zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"})
    return zarr
