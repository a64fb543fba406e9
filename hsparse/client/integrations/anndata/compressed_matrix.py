"""Compressed sparse matrices of scipy, as AnnData has them: matrices, or arrays if its settings say so."""

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
"""Values, indices and pointers."""


def compressed_matrix(
    parts: Elements | CompressedRows | Compressed, shape: tuple[int, ...], kind: str
) -> Any:
    """Return a csr or csc of elements of rank 2, or of its three arrays. Indices are sorted; zeros stay elements."""
    scipy = SCIPY_SPARSE.load()
    suffix = "array" if ANNDATA.load().settings.use_sparse_array_on_read else "matrix"
    make = getattr(scipy, f"{kind}_{suffix}")
    if isinstance(parts, CompressedRows):
        return make(parts.to_scipy().asformat(kind))
    if not isinstance(parts, Elements):
        return make(parts, shape=shape)
    index = np.int32 if max(*shape, len(parts)) <= np.iinfo(np.int32).max else np.int64
    rows, columns = (column.astype(index, copy=False) for column in parts.columns)
    # By way of scipy's coordinates, which it sorts in linear time, of values in the machine's byte order alone.
    values = in_native_order(parts.values)
    return make(scipy.coo_matrix((values, (rows, columns)), shape=shape).asformat(kind))
