"""Reader that uses TileDB-SOMA: an experiment and its axis queries, and tiledbsoma_ml for random batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tiledbsoma
import tiledbsoma.io
from scipy.sparse import csr_matrix
from tiledbsoma_ml import ExperimentDataset, experiment_dataloader

from benchmarks.peers.cells.reader import Rows

MEASUREMENT, LAYER = "RNA", "data"
"""The name of the measurement is the caller's choice; `from_h5ad` calls the matrix `data`."""


class SomaReader:
    """An experiment that `tiledbsoma.io.from_h5ad` wrote."""

    def __init__(self, path: str) -> None:
        self._experiment = tiledbsoma.Experiment.open(path)
        self._matrix = self._experiment.ms[MEASUREMENT].X[LAYER]

    @staticmethod
    def prepare(source: str, target: str) -> None:
        tiledbsoma.io.from_h5ad(target, source, MEASUREMENT)

    def batches(self, size: int, seed: int) -> Iterator[tuple[Rows, Any]]:
        with self._experiment.axis_query(MEASUREMENT) as query:
            dataset = ExperimentDataset(
                query,
                layer_name=LAYER,
                obs_column_names=["row"],
                batch_size=size,
                shuffle=True,
                seed=seed,
                return_sparse_X=True,
            )
            for counts, obs in experiment_dataloader(dataset):
                yield obs["row"].to_numpy(), counts

    def genes(self, genes: Sequence[int]) -> Any:
        """Read the columns as a table, which is faster than `to_anndata`."""
        columns = np.array(genes)
        found = self._matrix.read((slice(None), columns)).tables().concat()
        place = np.searchsorted(columns, found["soma_dim_1"].to_numpy())
        shape = (self._matrix.shape[0], len(columns))
        return csr_matrix(
            (found["soma_data"].to_numpy(), (found["soma_dim_0"].to_numpy(), place)), shape
        ).tocsc()

    def everything(self) -> Any:
        """Read all elements as one table, which is faster than `to_anndata` and `blockwise`."""
        found = self._matrix.read().tables().concat()
        places = (found["soma_dim_0"].to_numpy(), found["soma_dim_1"].to_numpy())
        return csr_matrix((found["soma_data"].to_numpy(), places), self._matrix.shape)

    def chosen(self, cell_type: str, above: int) -> Any:
        wanted = tiledbsoma.AxisQuery(value_filter=f'cell_type == "{cell_type}" and n_genes > {above}')
        with self._experiment.axis_query(MEASUREMENT, obs_query=wanted) as query:
            return query.to_anndata(X_name=LAYER).X
