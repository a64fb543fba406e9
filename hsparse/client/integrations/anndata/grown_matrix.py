"""Stack matrices row by row without loading them: a band of rows is read when it is sliced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.client.connection import Json
from hsparse.client.errors import WrongType
from hsparse.client.integrations.anndata.compressed_matrix import SCIPY_SPARSE
from hsparse.client.integrations.anndata.matrix_rows import Rows

BAND_ELEMENTS = 1 << 25
"""The maximum number of elements of a band of a sparse matrix, defined or not."""


class GrownMatrix:
    """A matrix that stacks the rows of `parts`, and that `MatrixWriter` and `ElementWriter` can slice.

    `columns` gives each part's column for each column of the result, or -1 if it lacks the column. Elements of lacking
    columns are `fill` in a dense result: by default 0 if a part is sparse, else NaN, as in `anndata.concat`. The result
    has the form `kind`, by default the first part's form, and its `creation` if the forms are equal.
    """

    def __init__(
        self,
        name: str,
        parts: Sequence[Rows],
        columns: Sequence[NDArray[np.intp]],
        kind: str | None = None,
        fill: Any = None,
    ) -> None:
        self.kind = parts[0].kind if kind is None else kind
        self.shape = (sum(part.shape[0] for part in parts), len(columns[0]))
        creation = getattr(parts[0], "creation", {}) if parts[0].kind == self.kind else {}
        self.creation: Json = self._fitting(creation)
        self.fill = fill if fill is not None else 0 if any(part.kind for part in parts) else np.nan
        self._parts, self._columns = parts, columns
        gaps = not self.kind and any(
            part.shape[0] and (at < 0).any() for part, at in zip(parts, columns, strict=True)
        )
        dtype = np.result_type(*(part.dtype for part in parts))
        if gaps and np.isnan(self.fill) and dtype.kind not in "fc":
            dtype = np.result_type(dtype, np.float64)
        if dtype.kind not in "biufc":
            raise WrongType(f"{name} would have values of {dtype}: give numbers of the stored type.")
        self.dtype = dtype

    @property
    def nnz(self) -> int:
        """The approximate number of stored elements."""
        return sum(part.nnz for part in self._parts)

    @property
    def numblocks(self) -> tuple[int, int]:
        return 1, 1

    @property
    def chunks(self) -> tuple[tuple[int, ...], ...]:
        """The numbers of rows and of columns to read at a time, nested like the `chunks` of a dask array."""
        return tuple((max(1, BAND_ELEMENTS // max(1, across)),) for across in reversed(self.shape))

    def __getitem__(self, key: slice | tuple[slice, slice]) -> Any:
        """Return the elements of a range of rows, or of a range of rows and a range of columns."""
        rows, places = key if isinstance(key, tuple) else (key, slice(None))
        first, last, _ = rows.indices(self.shape[0])
        bands, start = [], 0
        for part, columns in zip(self._parts, self._columns, strict=True):
            stop = start + part.shape[0]
            wanted = slice(max(first, start) - start, min(last, stop) - start)
            if wanted.start < wanted.stop:
                bands.append(self._band(part, wanted, columns[places]))
            start = stop
        if not self.kind:
            shape = (0, len(self._columns[0][places]))
            return np.concatenate([np.zeros(shape, self.dtype), *bands])
        return SCIPY_SPARSE.load().vstack(bands, format=self.kind)

    def _band(self, part: Rows, rows: slice, columns: NDArray[np.intp]) -> Any:
        """Return rows of a part in the form of the result; its columns are moved to their positions in the result."""
        there = np.flatnonzero(columns >= 0)
        found = part.take(rows, columns[there])
        shape = (found.shape[0], len(columns))
        if not self.kind:
            band = np.full(shape, self.fill if len(there) < len(columns) else 0, self.dtype)
            band[:, there] = found.toarray() if part.kind else found
            return band
        scipy = SCIPY_SPARSE.load()
        if not part.kind:
            found = scipy.csr_matrix(found)
        moved = found.tocoo()
        values = (moved.data.astype(self.dtype, copy=False), (moved.row, there[moved.col]))
        return scipy.coo_matrix(values, shape=shape).asformat(self.kind)

    def _fitting(self, creation: Json) -> Json:
        """Return creation properties with the chunk shape limited to the matrix's shape."""
        layout = creation.get("layout", {})
        dims = [min(pair) for pair in zip(layout.get("dims", ()), self.shape, strict=False)]
        return creation | ({"layout": layout | {"dims": dims}} if dims else {})
