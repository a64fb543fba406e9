"""The workload `cells`: counts of a cells x genes matrix in an AnnData file, with a table of the cells."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

DENSITY = 0.03
CELL_TYPES = 30
CHOSEN_TYPE = "type 07"
CELLS_A_BLOCK = 1_000


@dataclass(frozen=True, slots=True)
class CellsCase:
    """A float32 matrix of `cells` x `genes`; its content depends only on `seed`."""

    cells: int
    genes: int
    seed: int = 5
    batch: int = 4096
    """Number of rows of a random batch."""
    whole_genes: int = 20
    """Number of genes whose whole columns are read."""

    @property
    def name(self) -> str:
        """The name of the folder that holds the case."""
        return f"cells-{self.cells}x{self.genes}-{self.seed}"


@dataclass(frozen=True, slots=True)
class Truth:
    """The expected results of a case's reads, as numbers of elements and sums of values.

    The conditions `n_genes > above` and `CHOSEN_TYPE` select about 1 % of the cells.
    """

    elements: int
    total: float
    genes: list[int]
    gene_elements: int
    gene_total: float
    above: int
    chosen: int
    chosen_elements: int
    chosen_total: float


def cells(quick: bool = False) -> CellsCase:
    """Return the case at full size or small."""
    return CellsCase(4_000, 1_000, batch=256) if quick else CellsCase(100_000, 20_000)


def make(case: CellsCase, folder: Path) -> Truth:
    """Write `cells.h5ad`, `n_genes.npy` and `truth.json` into `folder` unless they exist; return the truth."""
    noted = folder / "truth.json"
    if noted.exists():
        return Truth(**json.loads(noted.read_text()))
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(case.seed)
    counts = random_counts(case, rng)
    n_genes = np.diff(counts.indptr)
    types = pd.Categorical.from_codes(
        rng.integers(0, CELL_TYPES, case.cells), [f"type {number:02d}" for number in range(CELL_TYPES)]
    )
    obs = pd.DataFrame(
        {"cell_type": types, "n_genes": n_genes.astype(np.int64), "row": np.arange(case.cells)},
        index=[f"cell{number:06d}" for number in range(case.cells)],
    )
    var = pd.DataFrame(index=[f"GENE{number:05d}" for number in range(1, case.genes + 1)])
    anndata.AnnData(counts, obs, var).write_h5ad(folder / "cells.h5ad")
    np.save(folder / "n_genes.npy", n_genes)
    truth = _truth(case, counts, np.asarray(types == CHOSEN_TYPE), rng)
    noted.write_text(json.dumps(asdict(truth)))  # last, as it marks the folder as complete
    return truth


def random_counts(case: CellsCase, rng: np.random.Generator) -> Any:
    """Return the matrix as a scipy CSR.

    A gene's frequency and a cell's library size are log-normal; their product is the mean of a Poisson
    count, and an element is defined where the count is not zero.
    """
    frequencies = rng.lognormal(0, 2, case.genes).astype(np.float32)
    sizes = rng.lognormal(0, 0.5, case.cells).astype(np.float32)
    frequencies *= np.float32(_scale(frequencies, sizes[:500]))
    columns, values, counts = [], [], []
    for first in range(0, case.cells, CELLS_A_BLOCK):
        means = np.outer(sizes[first : first + CELLS_A_BLOCK], frequencies)
        arrivals = rng.standard_exponential(means.shape, np.float32)
        defined = arrivals < means  # a Poisson process of rate 1 has an arrival by then
        columns.append(np.nonzero(defined)[1].astype(np.int32))
        values.append((1 + rng.poisson((means - arrivals)[defined])).astype(np.float32))
        counts.append(np.count_nonzero(defined, axis=1))
    pointers = np.concatenate(([0], np.cumsum(np.concatenate(counts))))
    index = np.int32 if pointers[-1] < 2**31 else np.int64
    return csr_matrix(
        (np.concatenate(values), np.concatenate(columns), pointers.astype(index)), (case.cells, case.genes)
    )


def _scale(frequencies: NDArray[np.float32], sizes: NDArray[np.float32]) -> float:
    """Return the factor by which to multiply the frequencies so that the share `DENSITY` of elements is defined."""
    means = np.outer(sizes, frequencies)
    low, high = 0.0, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        is_low = -np.expm1(-means * np.float32(middle)).mean() < DENSITY
        low, high = (middle, high) if is_low else (low, middle)
    return high


def _truth(case: CellsCase, counts: Any, is_type: NDArray[np.bool_], rng: np.random.Generator) -> Truth:
    n_genes = np.diff(counts.indptr)
    above = int(np.quantile(n_genes, 0.7))
    chosen = counts[np.flatnonzero(is_type & (n_genes > above))]
    genes = np.sort(rng.choice(case.genes, case.whole_genes, replace=False))
    columns = counts[:, genes]
    return Truth(
        elements=counts.nnz,
        total=float(counts.data.sum(dtype=np.float64)),
        genes=genes.tolist(),
        gene_elements=columns.nnz,
        gene_total=float(columns.data.sum(dtype=np.float64)),
        above=above,
        chosen=chosen.shape[0],
        chosen_elements=chosen.nnz,
        chosen_total=float(chosen.data.sum(dtype=np.float64)),
    )
