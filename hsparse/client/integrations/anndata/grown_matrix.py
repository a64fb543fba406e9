"""A matrix of a domain with the rows of another one below it: a band of it is read when it is to be stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hsparse.client.connection import Json
from hsparse.client.errors import WrongType
from hsparse.client.integrations.anndata.compressed_matrix import SCIPY_SPARSE
from hsparse.client.integrations.anndata.domain_tree import DomainTree
from hsparse.client.integrations.anndata.element_reader import MATRICES, ElementReader
from hsparse.client.object_records import home_of
from hsparse.client.sparse_dataset import SparseDataset
from hsparse.client.types.hdf5_type import Hdf5Type

BAND = 1 << 25
"""The most elements of a band of a sparse matrix, defined or not."""
OWN_LAYOUTS = ("H5D_STRUCT_CHUNK", "H5D_CHUNKED")
"""Layouts that a dataset keeps; others are of files that it lies in."""


class StoredRows:
    """The matrix at a path of a domain."""

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
        """The creation properties that a longer matrix keeps: none of one that has a single row of chunks."""
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
        """Return the product of rows and ascending columns."""
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
    """A matrix in memory."""

    matrix: Any
    kind: str

    @classmethod
    def of(cls, matrix: Any) -> GivenRows:
        """Take scipy's or numpy's, dask's, or that of a file that an AnnData is backed by."""
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
        """Return the product of rows and columns."""
        return self.matrix[rows][:, columns]


def empty_rows(kind: str, shape: tuple[int, int], dtype: np.dtype[Any]) -> Any:
    """Return a matrix without elements."""
    return (
        getattr(SCIPY_SPARSE.load(), f"{kind}_matrix")(shape, dtype=dtype) if kind else np.zeros(shape, dtype)
    )


Rows: TypeAlias = StoredRows | GivenRows
"""Rows of a matrix: its `kind` is csr or csc, or empty if it is dense."""


class GrownMatrix:
    """The rows of `parts`, one below the other, as `MatrixWriter` and `ElementWriter` slice a matrix.

    `columns` have, for each part, its column at each place, -1 where it has none: no element is there, or what is
    missing among numbers, as `anndata.concat` fills it. It has the form of the first part, or `kind`, and the
    `creation` of the first part, if that has this form.
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
            raise WrongType(f"{name} would have values of {dtype}: give numbers of the type that is there.")
        self.dtype = dtype

    @property
    def nnz(self) -> int:
        """About how many elements are stored."""
        return sum(part.nnz for part in self._parts)

    @property
    def numblocks(self) -> tuple[int, int]:
        return 1, 1

    @property
    def chunks(self) -> tuple[tuple[int, ...], ...]:
        """How many lines are taken at a time along each dimension, as dask has it."""
        return tuple((max(1, BAND // max(1, across)),) for across in reversed(self.shape))

    def __getitem__(self, key: slice | tuple[slice, slice]) -> Any:
        """Return a range of rows, or of columns."""
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
        """Return rows of a part, of its columns at their places."""
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
        """Return creation properties whose chunks are not larger than the matrix."""
        layout = creation.get("layout", {})
        dims = [min(pair) for pair in zip(layout.get("dims", ()), self.shape, strict=False)]
        return creation | ({"layout": layout | {"dims": dims}} if dims else {})
