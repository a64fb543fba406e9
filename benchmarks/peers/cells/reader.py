"""What a library does in the workload `cells`: one class each, in a process of the library's own environment.

The modules of this folder are run by those environments, which have numpy, scipy and the library, not this project's
dependencies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


class CellReader(Protocol):
    """An opened matrix with its table of cells. A method that the library has no way for is absent (`None`).

    Sparse results are scipy's, in any format.
    """

    @staticmethod
    def prepare(source: str, target: str) -> None:
        """Write the library's own form of the file `source`, `cells.h5ad`, as `target`."""
        ...

    def batches(self, size: int, seed: int) -> Iterator[tuple[Rows, Any]]:
        """Yield the rows of the matrix in random batches, each row once: their numbers and a CSR."""
        ...

    def genes(self, genes: Sequence[int]) -> Any:
        """Return whole columns."""
        ...

    def everything(self) -> Any:
        """Return all elements as a CSR."""
        ...

    def chosen(self, cell_type: str, above: int) -> Any:
        """Return the rows of the cells of a type with more than `above` genes."""
        ...
