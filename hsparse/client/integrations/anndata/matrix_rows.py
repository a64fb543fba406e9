"""Take ranges of rows of a matrix: `StoredRows` reads a matrix in a domain, `GivenRows` slices one in memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hsparse.client.connection import Json
from hsparse.client.integrations.anndata.compressed_matrix import SCIPY_SPARSE
from hsparse.client.integrations.anndata.domain_tree import DomainTree
from hsparse.client.integrations.anndata.element_reader import MATRICES, ElementReader
from hsparse.client.object_records import home_of
from hsparse.client.sparse_dataset import SparseDataset
from hsparse.client.types.hdf5_type import Hdf5Type

OWN_LAYOUTS = ("H5D_STRUCT_CHUNK", "H5D_CHUNKED")
"""The layouts that a longer copy of a dataset inherits; a copy of a file-backed dataset, for example, does not."""


class StoredRows:
    """The matrix at a path of a domain, whose rows are read on request."""

    def __init__(self, tree: DomainTree, path: str) -> None:
        self._tree, self._path = tree, path
        encoding = tree.encoding(path)
        self.kind = encoding[:3] if encoding in MATRICES else ""
        self.shape = tree.shape(path)
        values = path if tree.is_dataset(path) else f"{path}/data"
        self.dtype = Hdf5Type.parse(tree.record(values)["type"]).dtype

    @cached_property
    def nnz(self) -> int:
        record = self._tree.record(self._path)
        if not self._tree.is_sparse(self._path):
            return prod(self.shape)
        return SparseDataset(home_of(self._tree.connection, record), record).nnz

    @property
    def creation(self) -> Json:
        """The creation properties that a longer copy inherits; empty if the chunks are as tall as the matrix."""
        if not self._tree.is_dataset(self._path):
            return {}
        record = self._tree.record(self._path)
        properties = dict(record.get("creationProperties", {}))
        layout = properties.get("layout") or record.get("layout") or {}
        dims = layout.get("dims") or self.shape
        if layout.get("class") not in OWN_LAYOUTS or dims[0] >= self.shape[0]:
            return {}
        return properties | {"layout": layout}

    def take(self, rows: slice, columns: NDArray[np.intp]) -> Any:
        """Return the elements in a range of rows and in `columns`, which may have any order but no repeats."""
        reader = ElementReader(self._tree)
        if not len(columns) or rows.start == rows.stop:
            return empty_rows(self.kind, (rows.stop - rows.start, len(columns)), self.dtype)
        wanted = np.sort(columns)
        every = len(columns) == self.shape[1]
        reader.want(self._path, np.arange(rows.start, rows.stop), None if every else wanted)
        reader.fetch()
        found = reader.element(self._path)
        return found if (wanted == columns).all() else found[:, np.searchsorted(wanted, columns)]


@dataclass(frozen=True, eq=False)
class GivenRows:
    """A matrix in memory: csr, csc or a dense array."""

    matrix: Any
    kind: str

    @classmethod
    def of(cls, matrix: Any) -> GivenRows:
        """Load a matrix of scipy, numpy, dask or a backed AnnData's file, as csr, csc or a dense array."""
        for name in ("to_memory", "compute"):
            matrix = getattr(matrix, name, lambda same=matrix: same)()
        if not SCIPY_SPARSE.load().issparse(matrix):
            return cls(np.asarray(matrix), "")
        matrix = matrix if matrix.format in ("csr", "csc") else matrix.tocsr()
        return cls(matrix, matrix.format)

    @property
    def shape(self) -> tuple[int, ...]:
        found: tuple[int, ...] = self.matrix.shape
        return found

    @property
    def dtype(self) -> np.dtype[Any]:
        found: np.dtype[Any] = self.matrix.dtype
        return found

    @property
    def nnz(self) -> int:
        return int(self.matrix.nnz) if self.kind else prod(self.shape)

    def take(self, rows: slice, columns: NDArray[np.intp]) -> Any:
        """Return the elements in a range of rows and in `columns`."""
        return self.matrix[rows][:, columns]


def empty_rows(kind: str, shape: tuple[int, int], dtype: np.dtype[Any]) -> Any:
    """Return a csr or csc matrix without elements, or a dense array of zeros if `kind` is empty."""
    return (
        getattr(SCIPY_SPARSE.load(), f"{kind}_matrix")(shape, dtype=dtype) if kind else np.zeros(shape, dtype)
    )


Rows: TypeAlias = StoredRows | GivenRows
"""Rows of a matrix, whose `kind` is csr or csc, or empty if it is dense."""
