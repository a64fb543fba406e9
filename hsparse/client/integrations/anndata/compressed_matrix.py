"""Make compressed sparse matrices of scipy; they are sparse arrays if AnnData's settings say so."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.client.sources.elements import Elements
from hsparse.client.sparse.compressed_rows import CompressedRows
from hsparse.client.sparse.sparse_result import in_native_order
from hsparse.optional_module import OptionalModule

SCIPY_SPARSE = OptionalModule("scipy.sparse", "scipy")
ANNDATA = OptionalModule("anndata", "anndata")
Compressed = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]
"""The arrays of a compressed matrix: values, indices and pointers."""


def compressed_matrix(
    parts: Elements | CompressedRows | Compressed, shape: tuple[int, ...], kind: str
) -> Any:
    """Convert elements of rank 2, compressed rows or three arrays to a csr or csc matrix; stored zeros are kept."""
    scipy = SCIPY_SPARSE.load()
    suffix = "array" if ANNDATA.load().settings.use_sparse_array_on_read else "matrix"
    make = getattr(scipy, f"{kind}_{suffix}")
    if isinstance(parts, CompressedRows):
        return make(parts.to_scipy().asformat(kind))
    if not isinstance(parts, Elements):
        return make(parts, shape=shape)
    index = np.int32 if max(*shape, len(parts)) <= np.iinfo(np.int32).max else np.int64
    rows, columns = (column.astype(index, copy=False) for column in parts.columns)
    # scipy sorts coordinates in linear time, but accepts only values in the machine's byte order.
    values = in_native_order(parts.values)
    return make(scipy.coo_matrix((values, (rows, columns)), shape=shape).asformat(kind))
