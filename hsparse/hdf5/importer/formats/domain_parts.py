"""The content of a file of another format: groups, arrays and sparse matrices, in AnnData's encoding.

See https://anndata.readthedocs.io/en/stable/fileformat-prose.html.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.client.types.hdf5_type import Hdf5Type, attribute_body
from hsparse.errors import Unsupported
from hsparse.hdf5.importer.sparse_matrix import Matrix, MatrixElements

Bodies = dict[str, Any]
"""Maps names of attributes to the request bodies that create the attributes."""
Values = NDArray[Any]
Dims = tuple[int, ...]
FLOAT = {"class": "H5T_FLOAT", "base": "H5T_IEEE_F32LE"}


@dataclass(frozen=True, slots=True)
class BoxedArray:
    """An array of HDF5 type `kind` that is read in boxes; elements outside of all boxes have the fill value.

    A shape of None means HDF5's null dataspace. `boxes` yields (bytes in the imported store, start, stop) of each box,
    and `read(start, stop)` returns a box's elements. `properties` are the dataset's creation properties; `largest` is
    the maximum number of bytes of memory that reading a box takes.
    """

    shape: Dims | None
    kind: Hdf5Type
    properties: Bodies
    boxes: Iterable[tuple[int, Dims, Dims]]
    read: Callable[[Dims, Dims], Values]
    largest: int


def no_values(start: Dims, stop: Dims) -> Values:
    """Raise an error, because a null dataspace has no boxes to read."""
    raise AssertionError((start, stop))


NULL = BoxedArray(None, Hdf5Type.of(np.zeros(0, "<f4")), {}, (), no_values, 0)
"""AnnData's encoding of None in HDF5: an array with a null dataspace."""


@dataclass
class DomainParts:
    """The objects of a domain, by path without a leading slash; the root group has the empty path.

    Groups without attributes need not be listed. `left` has messages about parts of the file that are skipped.
    """

    groups: dict[str, Bodies] = field(default_factory=dict)
    arrays: dict[str, tuple[Values | BoxedArray, Bodies]] = field(default_factory=dict)
    matrices: dict[str, tuple[Matrix, Bodies]] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)

    def add_array(self, path: str, values: Values) -> None:
        """Add an array or a scalar; text is an object array of `str`."""
        is_text = values.dtype == object
        kinds = ("string-array", "array") if values.shape else ("string", "numeric-scalar")
        self.arrays[path] = values, encoding(kinds[not is_text], "0.2.0")

    def add_matrix(self, path: str, matrix: Matrix) -> None:
        """Add a matrix with AnnData's csr attributes; a matrix with a 0 in its shape becomes AnnData's group."""
        shape = attribute_body(np.array(matrix.shape, np.int64))
        attributes = encoding("csr_matrix") | {"shape": shape}
        if 0 not in matrix.shape:
            self.matrices[path] = matrix, attributes
            return
        self.groups[path] = attributes
        pointers = np.zeros(matrix.shape[0] + 1, "<i4")
        self.add_array(f"{path}/data", np.zeros(0, Hdf5Type.parse(matrix.item).dtype))
        self.add_array(f"{path}/indices", pointers[:0])
        self.add_array(f"{path}/indptr", pointers)

    def add_frame(
        self, path: str, index: Values, columns: Mapping[str, Values], name: str = "_index"
    ) -> None:
        """Add a data frame with an index called `name`; raises `Unsupported` if a column has the same name."""
        if name in columns:
            raise Unsupported(f"{path}: a column cannot be called {name}: rename the column, or use --as-is.")
        order = np.array(list(columns), object) if columns else np.zeros(0)
        names = {"column-order": attribute_body(order), "_index": attribute_body(name)}
        self.groups[path] = encoding("dataframe", "0.2.0") | names
        for column, values in {name: index, **columns}.items():
            self.add_array(f"{path}/{column}", values)

    def add_categorical(self, path: str, codes: Values, categories: Values) -> None:
        """Add a categorical column of a frame; `codes`, (n,) integers, are indices of `categories`."""
        self.groups[path] = encoding("categorical", "0.2.0") | {"ordered": attribute_body(False)}
        self.add_array(f"{path}/codes", codes)
        self.add_array(f"{path}/categories", categories)


def encoding(kind: str, version: str = "0.1.0") -> Bodies:
    """Return AnnData's attributes for the encoding of an object."""
    return {"encoding-type": attribute_body(kind), "encoding-version": attribute_body(version)}


def anndata(attributes: Mapping[str, Any]) -> DomainParts:
    """Return an empty AnnData, whose root group also has the attributes `attributes`."""
    return DomainParts({"": {**attributes, **encoding("anndata")}})


def float_matrix(matrix: Matrix) -> Matrix:
    """Return a matrix with float32 values; reading raises `Unsupported` if an integer is not exact as float32."""
    lines = matrix.lines and replace(matrix.lines, read=partial(_floats, matrix.lines.read))
    batches = ((nbytes, partial(_floats, read)) for nbytes, read in matrix.batches)
    return replace(matrix, lines=lines, batches=batches, item=FLOAT, itemsize=4)


def transposed(matrix: Matrix) -> Matrix:
    """Return a matrix with rows and columns exchanged."""
    lines = matrix.lines and replace(matrix.lines, axis=1 - matrix.lines.axis)
    batches = ((nbytes, partial(_transpose, read)) for nbytes, read in matrix.batches)
    return replace(matrix, lines=lines, batches=batches, shape=matrix.shape[::-1])


def _transpose(read: Callable[[], MatrixElements]) -> MatrixElements:
    coords, values = read()
    return np.ascontiguousarray(coords[:, ::-1]), values


def _floats(
    read: Callable[..., tuple[NDArray[Any], NDArray[Any]]], *bounds: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the result of `read` with float32 values; raises `Unsupported` if a value is not exact as float32."""
    places, values = read(*bounds)
    found = values.astype("<f4")
    if values.dtype.kind in "iu" and (found.astype(values.dtype) != values).any():
        raise Unsupported(
            "A count is not exact as float32, the type that scanpy gives it; import the matrix alone: an .h5 with "
            "--as-is, a directory by the name of its .mtx."
        )
    return places, found
