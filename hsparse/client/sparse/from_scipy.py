"""A matrix of scipy as a sparse dataset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hsparse.client.errors import WrongType
from hsparse.client.group import Group
from hsparse.client.late_links import unlinked_dataset
from hsparse.client.progress import Progress, show_progress
from hsparse.client.sparse.matrix_writer import MatrixWriter, sparse_body
from hsparse.client.sparse_dataset import Filter, SparseDataset
from hsparse.client.types.hdf5_type import attribute_body

if TYPE_CHECKING:
    from scipy.sparse import sparray, spmatrix


def from_scipy(
    group: Group,
    path: str,
    matrix: sparray | spmatrix,
    *,
    chunks: Sequence[int] | None = None,
    filters: Sequence[Filter] | None = None,
    overwrite: bool = False,
    progress: Progress = None,
) -> SparseDataset:
    """Store a matrix at a path of a group, and return its dataset; the path has it when all is stored.

    Stored elements of the matrix are defined, zeros too. It is sent in bands of rows, or of columns if it is csc; its
    form is noted in an attribute, so that the domain's file has it as AnnData reads it. `AlreadyExists`, before
    anything is sent, if the path has an object; with `overwrite` that is there until all is stored. It is shown by a
    bar on a terminal, if tqdm or rich is installed. `progress` may be a function of the bytes of values that are stored
    and their total, True for a bar in any case, and False for none.

    >>> import scipy.sparse
    >>> counts = hsparse.from_scipy(f, "counts", scipy.sparse.eye_array(1000, format="csr", dtype="u2"))
    >>> counts.shape, counts.nnz, counts.dtype
    ((1000, 1000), 1000, dtype('uint16'))
    """
    if not hasattr(matrix, "tocsr") or len(matrix.shape) != 2:
        raise WrongType(f"from_scipy takes a sparse matrix of scipy with two dimensions, not {matrix!r:.40}.")
    matrix = matrix if matrix.format in ("csr", "csc") else matrix.tocsr()
    connection = group.connection
    body = sparse_body(matrix.shape, matrix.dtype, matrix.nnz, chunks, filters)
    attributes = {
        "encoding-type": f"{matrix.format}_matrix",
        "encoding-version": "0.1.0",
        "shape": np.array(matrix.shape, np.int64),
    }
    body["attributes"] = {key: attribute_body(value) for key, value in attributes.items()}
    total = matrix.nnz * matrix.dtype.itemsize
    with (
        unlinked_dataset(group, path, body, overwrite=overwrite) as record,
        show_progress(progress, path, total) as advance,
    ):
        dims = body["creationProperties"]["layout"]["dims"]
        writer = MatrixWriter(connection, record["id"], dims, advance)
        writer.write(matrix, axis=int(matrix.format == "csc"))
    return SparseDataset(connection, record, f"{group.name.rstrip('/')}/{path.strip('/')}")
