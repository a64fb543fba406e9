"""Append rows to the datasets of an AnnData in place, at a cost that does not depend on the rows already stored.

The first dataset is extended only if its extent is still the known one, so only one of several concurrent clients
continues. The index of obs is extended last: `DomainTree` ignores rows beyond the end of that index, so
readers see all of the new cells or none. After an error all datasets are truncated, the index first. Rows that a
crashed client leaves behind are ignored; the next append stores the AnnData anew, without these rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.client.connection import Json
from hsparse.client.dense_dataset import DenseDataset
from hsparse.client.integrations.anndata.domain_tree import ENCODING_TYPE, DomainTree
from hsparse.client.integrations.anndata.element_encoder import (
    CATEGORIES,
    Attributes,
    EncodedElements,
    matrix_attributes,
)
from hsparse.client.sparse_dataset import SparseDataset
from hsparse.client.types.hdf5_type import Hdf5Type, attribute_body
from hsparse.errors import Conflict, HsparseError
from hsparse.model.dataspace import is_extensible

LEAST_ROWS = 1024
"""An AnnData with fewer rows is stored anew: a small matrix has chunks of its own height, which appends would keep."""


@dataclass
class AppendedRows:
    """Two dicts by dataset path: rows to append (numpy arrays or scipy matrices), and new categories of columns."""

    rows: dict[str, Any] = field(default_factory=dict)
    categories: dict[str, NDArray[Any]] = field(default_factory=dict)

    @classmethod
    def fitting(
        cls,
        tree: DomainTree,
        cells: EncodedElements,
        categories: Mapping[str, NDArray[Any]],
        matrices: Mapping[str, tuple[Any, str]],
    ) -> AppendedRows | None:
        """Return the rows to append if nothing but the length of the stored datasets changes, or None otherwise.

        `cells` has obs and obsm, with one stored row before the new rows; `categories` are the stored categories.
        `matrices` has the new rows of each matrix, converted to its genes and type, and its form (csr, csc or "").
        """
        found = cls()
        stored = {path for path in tree.records if path.partition("/")[0] in ("obs", "obsm")}
        if stored != {*cells.groups, *cells.arrays, *cells.matrices}:
            return None
        if not all(_has_attributes(tree, path, wanted) for path, wanted in cells.groups.items()):
            return None
        for path, (array, attributes) in cells.arrays.items():
            if array is None or not _takes(tree, path, array, attributes):
                return None
            old = categories.get(path)
            if not path.endswith(CATEGORIES):
                found.rows[path] = array[1:]
            elif old is None or not np.array_equal(array[: len(old)], old):
                return None
            elif len(old) < len(array):
                found.categories[path] = array[len(old) :]
        for path, (matrix, kind) in cells.matrices.items():
            if not _takes(tree, path, matrix, matrix_attributes(kind)):
                return None
            found.rows[path] = matrix[1:]
        for path, (rows, kind) in matrices.items():
            attributes = matrix_attributes(kind) if kind else {ENCODING_TYPE: "array"}
            if not _takes(tree, path, rows, attributes):
                return None
            found.rows[path] = rows
        ids = [tree.record(path)["id"] for path in (*found.rows, *found.categories)]
        has_two_names, is_index = len(set(ids)) < len(ids), len(found.rows) == 1
        return None if has_two_names or is_index else found


class RowAppender:
    """Appends rows to the datasets of a tree; each dataset has rows already."""

    def __init__(self, tree: DomainTree, rows: AppendedRows, conflict: Callable[[], Conflict]) -> None:
        index = tree.index_path("obs")
        matrices = [path for path in rows.rows if path != index]
        self._tree, self._conflict, self._index = tree, conflict, index
        self._values = {path: rows.rows[path] for path in matrices} | rows.categories
        self._values[index] = rows.rows[index]
        self._datasets = {path: _dataset(tree, path) for path in self._values}
        self._lengths = {path: tree.shape(path)[0] for path in self._values}
        self._begun: list[str] = []

    def append(self) -> None:
        """Append all rows; raise `Conflict` if another client appends at the same time."""
        for path, values in self._values.items():
            dataset, start = self._datasets[path], self._lengths[path]
            if not self._begun:
                self._claim(path)
                self._write(path, values)
            else:
                self._begun.append(path)
                if path == self._index:
                    self._set_shapes(self._grown)
                if dataset.append(values).start != start:
                    raise self._conflict()

    def undo(self) -> None:
        """Truncate the datasets, the index first; keep all rows if the index grew further or cannot be truncated."""
        for path in reversed(self._begun):
            dataset, length = self._datasets[path], self._lengths[path]
            try:
                is_longer = dataset.refresh()[0] > length
                if is_longer and dataset.shape[0] == self._grown(path):
                    self._resize(path, {"shape": [length, *dataset.shape[1:]], "expect": [*dataset.shape]})
                elif is_longer and path == self._index:
                    return
            except HsparseError:
                if path == self._index:
                    return
        with suppress(HsparseError):
            self._set_shapes(self._lengths.__getitem__)

    def is_there(self, records: Mapping[str, Json]) -> bool:
        """Return whether all datasets in `records` have the appended rows."""
        return all(
            path in records and records[path]["shape"]["dims"][0] >= self._grown(path)
            for path in self._values
        )

    def _claim(self, path: str) -> None:
        """Extend the first dataset; raise `Conflict` if its extent is not the known one."""
        rows = self._grown(path) - self._lengths[path]
        body = {"extend": rows, "extend_dim": 0, "expect": [*self._tree.shape(path)]}
        try:
            self._resize(path, body)
        except Conflict as error:
            raise self._conflict() from error
        self._begun.append(path)
        self._datasets[path].refresh()

    def _write(self, path: str, values: Any) -> None:
        dataset, start = self._datasets[path], self._lengths[path]
        if isinstance(dataset, SparseDataset):
            found = values.tocoo()
            if found.nnz:
                coords = np.stack([found.row.astype(np.int64) + start, found.col], axis=1)
                dataset.write(coords, found.data)
        else:
            dataset[start : start + len(values)] = values

    def _grown(self, path: str) -> int:
        return self._lengths[path] + int(self._values[path].shape[0])

    def _resize(self, path: str, body: Json) -> None:
        self._tree.connection.json("PUT", f"/datasets/{self._tree.record(path)['id']}/shape", body)

    def _set_shapes(self, length: Callable[[str], int]) -> None:
        """Set the attribute `shape` of each sparse matrix to a shape with `length(path)` rows."""
        for path, dataset in self._datasets.items():
            if isinstance(dataset, SparseDataset):
                shape = np.array([length(path), *self._tree.shape(path)[1:]], np.int64)
                body = {"attributes": {"shape": attribute_body(shape)}}
                self._tree.connection.json("PUT", f"/datasets/{dataset.id}/attributes", body, replace=1)


def _dataset(tree: DomainTree, path: str) -> Any:
    kind = SparseDataset if tree.is_sparse(path) else DenseDataset
    return kind(tree.connection, tree.record(path), f"/{tree.root}{path}")


def _takes(tree: DomainTree, path: str, values: Any, attributes: Attributes) -> bool:
    """Return whether the dataset at a path is extensible and has the form, type, width and encoding of `values`."""
    record = tree.records.get(path, {})
    if not str(record.get("id", "")).startswith("d-") or "h5path" in record:
        return False
    is_sparse = hasattr(values, "tocoo")
    if not is_extensible(record["shape"]) or tree.is_sparse(path) != is_sparse:
        return False
    old, new = Hdf5Type.parse(record["type"]), Hdf5Type.of(np.zeros(0, values.dtype) if is_sparse else values)
    same = old.dtype == new.dtype and old.element == new.element
    encoding = attributes[ENCODING_TYPE]
    return same and tree.shape(path)[1:] == values.shape[1:] and tree.encoding(path) == encoding


def _has_attributes(tree: DomainTree, path: str, wanted: Attributes) -> bool:
    there = tree.record(path).get("attributes", {})
    return all(
        name in there
        and np.array_equal(np.asarray(tree.attribute(path, name), object), np.asarray(value, object))
        for name, value in wanted.items()
    )
