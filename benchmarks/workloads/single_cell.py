"""The workload `single-cell`: counts of a cells x genes matrix in which frequent genes are far denser."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.workloads.case import SparseCase
from benchmarks.workloads.points import from_offsets

DENSITY = 0.0419
CELLS_A_BLOCK = 1_000


def single_cell(cells: int = 20_000, genes: int = 20_000, seed: int = 4) -> SparseCase:
    """Return counts as `(cells, genes) float32`, about 4 % defined, chunk (1000, 2000).

    The share of cells with a gene falls with the gene's rank by a power law; genes are not ordered by rank.
    """
    rng = np.random.default_rng(seed)
    share = rng.permutation(gene_shares(genes))
    parts = [
        np.flatnonzero(rng.random((min(CELLS_A_BLOCK, cells - first), genes), dtype=np.float32) < share)
        + first * genes
        for first in range(0, cells, CELLS_A_BLOCK)
    ]
    offsets = np.concatenate(parts)
    values = rng.geometric(0.6, len(offsets)).astype(np.float32)
    block = min(1_000, cells)
    starts = range(0, cells - block + 1, max(1, cells // 10))
    return SparseCase(
        name="single-cell",
        extent=(cells, genes),
        chunk=(min(1_000, cells), min(2_000, genes)),
        points=from_offsets(offsets, (cells, genes), values),
        block=block,
        boxes=tuple(((start, 0), (start + block, genes)) for start in starts),
        dense_chunk=(min(500, cells), min(2_000, genes)),
        dense_rows=min(500, cells),
    )


def gene_shares(genes: int) -> NDArray[np.float32]:
    """Return the share of cells for each rank, `(genes,) float32`, at most 0.95, with the mean `DENSITY`."""
    curve = 1.0 / (20.0 + np.arange(genes) * (20_000 / genes)) ** 0.8
    low, high = 0.0, 1e6
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if np.minimum(0.95, curve * middle).mean() < DENSITY else (low, middle)
    shares: NDArray[np.float32] = np.minimum(0.95, curve * high).astype(np.float32)
    return shares
