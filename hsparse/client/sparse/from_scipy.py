"""A matrix of scipy as a sparse dataset."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from hsparse.client.errors import Unreachable, WrongType
from hsparse.client.group import Group
from hsparse.client.progress import Progress, show_progress
from hsparse.client.sparse.matrix_writer import MatrixWriter, sparse_body
from hsparse.client.sparse_dataset import SparseDataset
from hsparse.client.types.hdf5_type import attribute_body
from hsparse.errors import HsparseError


def from_scipy(
    group: Group,
    path: str,
    matrix: Any,
    *,
    chunks: Sequence[int] | None = None,
    filters: Sequence[Any] | None = None,
    progress: Progress = None,
) -> SparseDataset:
    """Store a matrix at a path of a group, and return its dataset; the path has it when all is stored.

    Stored elements of the matrix are defined, zeros too. It is sent in bands of rows, or of columns if it is csc; its
    form is noted in an attribute, so that the domain's file has it as AnnData reads it. `AlreadyExists` if the path
    has an object. It is shown by a bar on a terminal, if tqdm or rich is installed. `progress` may be a function of
    the bytes of values that are stored and their total, True for a bar in any case, and False for none.

        counts = hsparse.from_scipy(f, "counts", scipy.sparse.random_array((1000, 2000), format="csr"))
    """
    if not hasattr(matrix, "tocsr") or len(matrix.shape) != 2:
        raise WrongType(f"from_scipy takes a sparse matrix of scipy with two dimensions, not {matrix!r:.40}.")
    matrix = matrix if matrix.format in ("csr", "csc") else matrix.tocsr()
    parent, _, name = path.strip("/").rpartition("/")
    connection = group.connection
    body = sparse_body(matrix.shape, matrix.dtype, matrix.nnz, chunks, filters)
    attributes = {
        "encoding-type": f"{matrix.format}_matrix",
        "encoding-version": "0.1.0",
        "shape": np.array(matrix.shape, np.int64),
    }
    body["attributes"] = {key: attribute_body(value) for key, value in attributes.items()}
    record = connection.json("POST", "/datasets", body)
    try:
        with show_progress(progress, path, matrix.nnz * matrix.dtype.itemsize) as advance:
            dims = body["creationProperties"]["layout"]["dims"]
            MatrixWriter(connection, record["id"], dims, advance).write(
                matrix, axis=int(matrix.format == "csc")
            )
        above = group.require_group(parent) if parent else group
        dataset = SparseDataset(connection, record, f"{above.name.rstrip('/')}/{name}")
        above[name] = dataset
    except BaseException as error:
        if isinstance(error, Unreachable):  # it may be linked, and seen, by now
            raise
        with suppress(HsparseError):
            connection.json("DELETE", f"/datasets/{record['id']}")
        raise
    return dataset
