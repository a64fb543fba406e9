"""What becomes of a file of another format: groups, arrays and sparse matrices by their paths, as AnnData encodes them.

https://anndata.readthedocs.io/en/stable/fileformat-prose.html
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
"""Attributes, as bodies that create them."""
Values = NDArray[Any]
Dims = tuple[int, ...]
FLOAT = {"class": "H5T_FLOAT", "base": "H5T_IEEE_F32LE"}


@dataclass(frozen=True, slots=True)
class BoxedArray:
    """An array of HDF5's type `kind` that is read by boxes; elements outside of them have the fill value.

    Without a shape it has HDF5's null dataspace.
    `boxes` yields the number of their bytes in the store, and their corners: the first element, and past the last one.
    `properties` are those of the dataset's creation; `largest` is the most bytes of memory that reading a box takes.
    """

    shape: Dims | None
    kind: Hdf5Type
    properties: Bodies
    boxes: Iterable[tuple[int, Dims, Dims]]
    read: Callable[[Dims, Dims], Values]
    largest: int


def no_values(start: Dims, stop: Dims) -> Values:
    """Read a null dataspace, which nothing does."""
    raise AssertionError((start, stop))


NULL = BoxedArray(None, Hdf5Type.of(np.zeros(0, "<f4")), {}, (), no_values, 0)
"""None, as AnnData writes it to HDF5."""


@dataclass
class DomainParts:
    """Objects by their paths, without a slash in front: the root group is the empty path.

    Groups that only lead to others need not be named. `left` says what of the file is in none of them.
    """

    groups: dict[str, Bodies] = field(default_factory=dict)
    arrays: dict[str, tuple[Values | BoxedArray, Bodies]] = field(default_factory=dict)
    matrices: dict[str, tuple[Matrix, Bodies]] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)

    def add_array(self, path: str, values: Values) -> None:
        """Add an array; text is objects that are `str`. A scalar is a number or a text of its own."""
        is_text = values.dtype == object
        kinds = ("string-array", "array") if values.shape else ("string", "numeric-scalar")
        self.arrays[path] = values, encoding(kinds[not is_text], "0.2.0")

    def add_matrix(self, path: str, matrix: Matrix) -> None:
        """Add a matrix, whose group in a file of AnnData would be compressed by rows."""
        shape = attribute_body(np.array(matrix.shape, np.int64))
        self.matrices[path] = matrix, encoding("csr_matrix") | {"shape": shape}

    def add_frame(
        self, path: str, index: Values, columns: Mapping[str, Values], name: str = "_index"
    ) -> None:
        """Add a data frame, whose index has a name; `Unsupported` for a column of the same name."""
        if name in columns:
            raise Unsupported(f"{path}: a column cannot be called {name}; rename it, or use --as-is.")
        order = np.array(list(columns), object) if columns else np.zeros(0)
        names = {"column-order": attribute_body(order), "_index": attribute_body(name)}
        self.groups[path] = encoding("dataframe", "0.2.0") | names
        for column, values in {name: index, **columns}.items():
            self.add_array(f"{path}/{column}", values)

    def add_categorical(self, path: str, codes: Values, categories: Values) -> None:
        """Add a column of a frame: `codes`, (n,), each the place of a category."""
        self.groups[path] = encoding("categorical", "0.2.0") | {"ordered": attribute_body(False)}
        self.add_array(f"{path}/codes", codes)
        self.add_array(f"{path}/categories", categories)


def encoding(kind: str, version: str = "0.1.0") -> Bodies:
    """Return the attributes that say what an object is."""
    return {"encoding-type": attribute_body(kind), "encoding-version": attribute_body(version)}


def anndata(attributes: Mapping[str, Any]) -> DomainParts:
    """Return the parts of an AnnData without any yet; the root group has further attributes."""
    return DomainParts({"": {**attributes, **encoding("anndata")}})


def float_matrix(matrix: Matrix) -> Matrix:
    """Return a matrix with values of 32 bits; `Unsupported`, when it is read, for an integer that has none."""
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
    """Return what `read` does of a batch, or of some elements of lines, with values as floats."""
    places, values = read(*bounds)
    found = values.astype("<f4")
    if values.dtype.kind in "iu" and (found.astype(values.dtype) != values).any():
        raise Unsupported(
            "A count has no float of 32 bits, which scanpy makes of it; import the matrix alone: an .h5 with --as-is, "
            "a directory by the name of its .mtx."
        )
    return places, found
