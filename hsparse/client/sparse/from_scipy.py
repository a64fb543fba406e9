"""Store a sparse array in memory as a sparse dataset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hsparse.client.connection import Json
from hsparse.client.creation import Filter
from hsparse.client.errors import WrongType
from hsparse.client.late_links import Parent, unlinked_dataset
from hsparse.client.progress import Progress, show_progress
from hsparse.client.sparse.matrix_writer import MatrixWriter, sparse_body
from hsparse.client.sparse.sparse_values import same_fill, sparse_values
from hsparse.client.sparse_dataset import SparseDataset
from hsparse.client.types.hdf5_type import attribute_body

if TYPE_CHECKING:
    from scipy.sparse import sparray, spmatrix
    from sparse import SparseArray


def from_scipy(
    group: Parent,
    path: str,
    matrix: sparray | spmatrix | SparseArray,
    *,
    chunks: Sequence[int] | None = None,
    filters: Sequence[Filter] | None = None,
    overwrite: bool = False,
    progress: Progress = None,
) -> SparseDataset:
    """Store a sparse array at a path of a group, and return its dataset; it is linked when all elements are stored.

    Stored elements become defined, including zeros. A matrix of scipy is sent in bands of rows, or of columns if it is
    csc; an attribute records its form, so that AnnData can read it from the domain's file. Arrays of the package
    sparse, of any rank, keep their fill value. Raise `AlreadyExists`, before anything is sent, if the path has an
    object; `overwrite` replaces the object when all elements are stored. By default a terminal shows a bar if tqdm or
    rich is installed. `progress` may be a function of the bytes of values stored and their total, True (always a bar)
    or False (no bar).

    >>> import scipy.sparse
    >>> counts = hsparse.from_scipy(f, "counts", scipy.sparse.eye_array(1000, format="csr", dtype="u2"))
    >>> counts.shape, counts.nnz, counts.dtype
    ((1000, 1000), 1000, dtype('uint16'))
    """
    is_matrix = hasattr(matrix, "tocsr") and len(matrix.shape) == 2 and not getattr(matrix, "fill_value", 0)
    if is_matrix:
        matrix = matrix if getattr(matrix, "format", "") in ("csr", "csc") else matrix.tocsr()
    elif sparse_values(matrix) is None:
        raise WrongType(
            f"from_scipy takes a sparse array of scipy or of the package sparse, not {matrix!r:.40}."
        )
    body = sparse_body(matrix.shape, matrix.dtype, matrix.nnz, chunks, filters)
    if is_matrix:
        body["attributes"] = _encoding(matrix)
    elif not same_fill(fill := getattr(matrix, "fill_value", 0), 0):
        body["creationProperties"]["fillValue"] = np.asarray(fill).tolist()
    total = matrix.nnz * matrix.dtype.itemsize
    with (
        unlinked_dataset(group, path, body, overwrite=overwrite) as made,
        show_progress(progress, path, total) as advance,
    ):
        if is_matrix:
            dims = body["creationProperties"]["layout"]["dims"]
            writer = MatrixWriter(made.connection, made.record["id"], dims, advance)
            writer.write(matrix, axis=int(matrix.format == "csc"))
        else:
            SparseDataset(made.connection, made.record)[...] = matrix
            advance(total)
    return SparseDataset(made.connection, made.record, made.path)


def _encoding(matrix: Any) -> Json:
    """Return the attributes by which AnnData recognizes a matrix."""
    attributes = {
        "encoding-type": f"{matrix.format}_matrix",
        "encoding-version": "0.1.0",
        "shape": np.array(matrix.shape, np.int64),
    }
    return {key: attribute_body(value) for key, value in attributes.items()}
