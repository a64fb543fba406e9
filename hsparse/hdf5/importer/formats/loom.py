"""Read loom files: a dense matrix of genes x cells, layers of the same shape, and attributes and graphs of both axes.

See https://linnarssonlab.org/loompy/format. The domain has the content that `anndata.read_loom(..., X_name="")`
returns, but with the types of the file's values, and with graphs in `varp` and `obsp`.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Corrupt, Unsupported
from hsparse.hdf5.format.messages.layout_message import ChunkedLayout
from hsparse.hdf5.importer.formats.domain_parts import DomainParts, anndata
from hsparse.hdf5.importer.formats.file_parts import Data, FileParts
from hsparse.hdf5.importer.source import path_in_errors
from hsparse.hdf5.importer.sparse_matrix import ELEMENTS_PER_REQUEST, Matrix, MatrixElements

CELLS, GENES = ("CellID", "obs_names"), ("Gene", "var_names")
"""The attributes with the names of cells and of genes, in loom's and in scanpy's files."""


def find_matrix(file: FileParts) -> list[str] | None:
    """Return [""], the path of the root group, for a loom file, or None for other files."""
    return [""] if file.members() >= {"matrix", "row_attrs", "col_attrs"} else None


def read_matrix(file: FileParts, _: str) -> DomainParts:
    """Return an AnnData of cells x genes; its matrices define the elements that are not 0."""
    dims = file.dims("matrix")
    if len(dims) != 2:
        raise Corrupt(f"/matrix: It has {len(dims)} dimensions, not 2.")
    parts = anndata(file.attributes())
    parts.add_matrix("X", _sparse(file, "matrix", dims))
    for name in file.datasets("layers"):
        parts.add_matrix(f"layers/{name}", _sparse(file, f"layers/{name}", dims))
    sides = (("obs", "col", dims[1], CELLS), ("var", "row", dims[0], GENES))
    for axis, side, length, names in sides:
        _add_attributes(parts, file, axis, side, length, names)
        for name in sorted(file.members(f"{side}_graphs")):
            graph = f"{side}_graphs/{name}"
            found = file.matrix("coo", (length, length), *(f"{graph}/{part}" for part in "wab"))
            parts.add_matrix(f"{axis}p/{name}", found)
    for name in file.datasets("attrs"):
        parts.add_array(f"uns/{name}", _unescaped(file.array(f"attrs/{name}")))
    parts.left = file.unread()
    return parts


def _add_attributes(
    parts: DomainParts, file: FileParts, axis: str, side: str, length: int, names: Sequence[str]
) -> None:
    """Add the data frame of an axis (`obs`, `var`); attributes with several columns go to `obsm`, `varm`."""
    columns = {}
    for name in file.datasets(f"{side}_attrs"):
        path = f"{side}_attrs/{name}"
        values = _unescaped(file.array(path))
        if values.shape[:1] != (length,):
            raise Corrupt(f"/{path}: The extent is {list(values.shape)}; its first number must be {length}.")
        if prod(values.shape[1:]) == 1:
            columns[name] = values.reshape(-1)
        else:
            parts.add_array(f"{axis}m/{name}", values)
    own = next((name for name in names if name in columns), None)
    numbers = np.array([str(number) for number in range(length)], object)
    index = numbers if own is None else columns.pop(own)
    names_of_rows = index if index.dtype == object else index.astype(str).astype(object)
    parts.add_frame(axis, names_of_rows, columns, own or "_index")


def _unescaped(values: NDArray[Any]) -> NDArray[Any]:
    """Return text with XML escapes decoded: loom before version 3 stores non-ASCII characters as escapes."""
    if values.dtype != object:
        return values
    found = np.empty(values.size, object)
    found[:] = [html.unescape(one) for one in values.reshape(-1).tolist()]
    return found.reshape(values.shape)


def _sparse(file: FileParts, path: str, dims: tuple[int, ...]) -> Matrix:
    """Return the nonzero elements of a dense matrix, transposed. The matrix is read twice, first to count them."""
    data = file.open(path)
    with path_in_errors(f"/{path}"):
        if data.dims != dims:
            raise Corrupt(f"It has the extent {list(data.dims)}, but the matrix has {list(dims)}.")
        if not data.is_raw or data.dataset.type.item["class"] not in ("H5T_INTEGER", "H5T_FLOAT"):
            raise Unsupported("Its values are no numbers; use --as-is.")
        count = sum(len(_elements(data, *box)[1]) for box in _boxes(data))
    item, size = data.dataset.type.item, data.size
    return Matrix((dims[1], dims[0]), item, size, count, _batches(data, file.objects.source.size))


def _boxes(data: Data) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Yield boxes of whole chunks, (start, stop), each with about `ELEMENTS_PER_REQUEST` elements."""
    layout, (rows, columns) = data.dataset.layout, data.dims
    high, wide = layout.dims if isinstance(layout, ChunkedLayout) else (1, 1)
    wide = min(columns, wide * max(1, ELEMENTS_PER_REQUEST // max(1, high * wide)))
    high *= max(1, ELEMENTS_PER_REQUEST // max(1, high * wide))
    for row, column in product(range(0, rows, high), range(0, columns, max(1, wide))):
        yield (row, column), (min(row + high, rows), min(column + wide, columns))


def _batches(data: Data, size: int) -> Iterator[tuple[int, Callable[[], MatrixElements]]]:
    for first, last in _boxes(data):
        part = prod(b - a for a, b in zip(first, last, strict=True)) / prod(data.dims)
        yield int(size * part), partial(_elements, data, first, last)


def _elements(data: Data, first: tuple[int, int], last: tuple[int, int]) -> MatrixElements:
    values = np.asarray(data.read(first, last))
    rows, columns = np.nonzero(values)
    coords = np.empty((len(rows), 2), np.uint64)
    coords[:, 0], coords[:, 1] = columns + first[1], rows + first[0]
    return coords, values[rows, columns]
