"""The protocol of the readers in the workload `cells`: one class per library, run in the library's own environment.

These environments have numpy, scipy and the library, but not this project's dependencies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


class CellReader(Protocol):
    """An opened matrix with its table of cells. A method that the library cannot support is None.

    Sparse results are scipy matrices, in any format.
    """

    @staticmethod
    def prepare(source: str, target: str) -> None:
        """Write the library's own form of the file `source`, `cells.h5ad`, as `target`."""
        ...

    def batches(self, size: int, seed: int) -> Iterator[tuple[Rows, Any]]:
        """Yield random batches, each as the numbers of its rows and a CSR matrix; each row is in one batch."""
        ...

    def genes(self, genes: Sequence[int]) -> Any:
        """Return the whole columns of some genes, given by their numbers."""
        ...

    def everything(self) -> Any:
        """Return all elements as a CSR."""
        ...

    def chosen(self, cell_type: str, above: int) -> Any:
        """Return the rows of the cells of a type with more than `above` genes."""
        ...
