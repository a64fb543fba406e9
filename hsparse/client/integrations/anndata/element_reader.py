"""Read elements of AnnData's on-disk specification: find the datasets of an element, and build its Python object.

An element is a group or a dataset with the attribute `encoding-type`; the types are specified at
https://anndata.readthedocs.io/en/stable/fileformat-prose.html. A matrix is a sparse dataset or, if it has no elements,
a group of its three arrays. A column of a data frame is read as a `FrameColumn`, from which pandas, polars and xarray
columns are made.

AnnData before 0.7 stores a data frame as a compound dataset, whose first field is the index. A categorical field has
codes, and its categories are in `uns/<name>_categories`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.client.errors import NotImplementedHere
from hsparse.client.integrations.anndata.compressed_matrix import compressed_matrix
from hsparse.client.integrations.anndata.domain_tree import DomainTree
from hsparse.client.progress import Progress
from hsparse.client.sources.elements import Elements
from hsparse.client.sources.value_batch import Axis, DatasetRead, read_datasets
from hsparse.client.sparse.compressed_rows import CompressedRows
from hsparse.client.types.hdf5_type import Hdf5Type
from hsparse.optional_module import OptionalModule

PANDAS = OptionalModule("pandas", "anndata")


@dataclass(frozen=True, slots=True)
class FrameColumn:
    """A column of a data frame: `values`, (n,), are codes (-1 if missing) if the column has `categories`.

    `mask`, (n,), is true for missing values."""

    values: NDArray[Any]
    categories: Any = None
    is_ordered: bool = False
    mask: NDArray[np.bool_] | None = None

    def to_pandas(self) -> Any:
        """Return the column as pandas stores it: a numpy array or a pandas extension array."""
        if self.categories is not None:
            categorical = PANDAS.load().Categorical
            return categorical.from_codes(self.values, self.categories, ordered=self.is_ordered)
        if self.mask is None:
            return self.values
        pandas = PANDAS.load()
        if self.values.dtype.kind == "b":
            return pandas.arrays.BooleanArray(self.values, mask=self.mask)
        if self.values.dtype.kind in "iu":
            return pandas.arrays.IntegerArray(self.values, mask=self.mask)
        texts = pandas.array(self.values, dtype=pandas.StringDtype())
        texts[self.mask] = pandas.NA
        return texts

    @property
    def missing(self) -> NDArray[np.bool_] | None:
        """The mask of missing values, (n,), or None if the column cannot have missing values."""
        return self.mask if self.categories is None else self.values < 0


def legacy_fields(tree: DomainTree, path: str) -> list[str]:
    """Return the field names of a data frame of AnnData before 0.7: first the index, then the columns."""
    return list(Hdf5Type.parse(tree.record(path)["type"]).dtype.names or ())


def categories_path(name: str) -> str:
    """Return the path at which AnnData before 0.7 stores the categories of a column, if there are any."""
    return f"uns/{name}_categories"


def legacy_index(values: NDArray[Any]) -> NDArray[Any]:
    """Return the index from the compound values of a data frame of AnnData before 0.7."""
    assert values.dtype.names
    return _texts(values[values.dtype.names[0]])


def legacy_column(values: NDArray[Any], name: str, categories: NDArray[Any] | None) -> FrameColumn:
    """Make a column of compound values (AnnData before 0.7); `categories` is None for a column without categories."""
    column = _texts(values[name])
    if categories is not None and column.dtype.kind in "iu" and np.all(column < len(categories)):
        return FrameColumn(column, _texts(categories))
    return FrameColumn(column)


def _texts(values: NDArray[Any]) -> NDArray[Any]:
    """Decode an array of fixed-size text to `str`; copy any other array."""
    if values.dtype.kind != "S":
        return values.copy()
    return np.array([one.decode(errors="surrogateescape") for one in values.tolist()], object)


ANNDATA = OptionalModule("anndata", "anndata")
AWKWARD = OptionalModule("awkward", "anndata")
MATRICES = ("csr_matrix", "csc_matrix")
NULLABLE = ("nullable-integer", "nullable-boolean", "nullable-string-array")
CATEGORIES = "categories"
"""The name of a categorical's categories, which are read whole: of a member, or in AnnData 0.7 of an attribute."""


class ElementReader:
    """Reads elements of a domain: add each with `want`, read all with `fetch`, then get each with `element`."""

    def __init__(self, tree: DomainTree) -> None:
        self._tree = tree
        self._reads: dict[str, DatasetRead] = {}
        self._axes: dict[str, tuple[Axis, ...]] = {}
        self._values: dict[str, Any] = {}

    def want(self, path: str, *axes: Axis) -> None:
        """Add an element to read; `axes` has, for each leading dimension, ascending indices or None for all indices."""
        tree, encoding = self._tree, self._tree.encoding(path)
        self._axes[path] = axes
        if tree.is_dataset(path):
            if tree.record(path)["shape"] != {"class": "H5S_NULL"}:
                self._reads[path] = DatasetRead(tree.record(path), axes, tree.is_sparse(path))
            if CATEGORIES in tree.record(path).get("attributes", {}):
                self.want(tree.referred(path, CATEGORIES))
            return
        rows_alone = encoding in ("dataframe", "categorical", *NULLABLE)
        for name in self._members(path):
            cut = axes[:1] if rows_alone and name != CATEGORIES else ()
            self.want(f"{path}/{name}", *cut)

    def want_frame(self, path: str, columns: list[str], rows: Axis = None, *, index: bool = True) -> None:
        """Add some columns of a data frame to read, and its index unless `index` is false."""
        if self._tree.is_dataset(path):
            self.want(path, rows)
            for found in map(categories_path, columns):
                if found in self._tree:
                    self.want(found)
            return
        for name in columns:
            self.want(f"{path}/{name}", rows)
        if index:
            self.want(self._tree.index_path(path), rows)

    def fetch(self, progress: Progress = False) -> None:
        """Read all added elements, by as few requests as their size allows."""
        paths = [path for path in self._reads if path not in self._values]
        found = read_datasets(self._tree.connection, [self._reads[path] for path in paths], progress)
        self._values |= dict(zip(paths, found, strict=True))

    def element(self, path: str) -> Any:
        """Return a fetched element as `anndata.read_h5ad` does; raise `NotImplementedHere` for an unknown encoding."""
        tree, encoding = self._tree, self._tree.encoding(path)
        if tree.is_dataset(path):
            is_old = CATEGORIES in tree.record(path).get("attributes", {})
            return self._of_pandas(path) if is_old else self._dataset(path, encoding)
        if encoding in _GROUPS:
            return _GROUPS[encoding](self, path)
        raise NotImplementedHere(
            f"{path} of {tree.name} has the encoding {encoding!r}, which hsparse does not know: download the file, "
            "and read it with a version of AnnData that knows this encoding."
        )

    def frame(self, path: str, columns: list[str] | None = None) -> Any:
        """Return a data frame of its index and of the given or all columns, which must have been fetched."""
        names = self.columns(path) if columns is None else columns
        is_legacy, own = self._tree.is_dataset(path), self.index_name(path)
        index = self.index(path) if is_legacy else self.element(self._tree.index_path(path))
        return PANDAS.load().DataFrame(
            {name: self.column(path, name).to_pandas() for name in names},
            index=PANDAS.load().Index(index, name=None if own == "_index" else own),
            columns=list(names) or None,
        )

    def series(self, path: str, name: str) -> Any:
        """Return a column of a data frame as a pandas Series without the frame's index."""
        if self._tree.is_dataset(path):
            return self.frame(path, [name])[name].reset_index(drop=True)
        return PANDAS.load().Series(self.element(f"{path}/{name}"))

    def column(self, path: str, name: str) -> FrameColumn:
        """Return a column of a data frame as arrays, without using pandas."""
        if self._tree.is_dataset(path):
            return legacy_column(self._values[path], name, self._values.get(categories_path(name)))
        return self._column(f"{path}/{name}")

    def index(self, path: str) -> NDArray[Any]:
        """Return the index of a data frame."""
        if self._tree.is_dataset(path):
            return legacy_index(self._values[path])
        return np.asarray(self.element(self._tree.index_path(path)))

    def index_name(self, path: str) -> str:
        """Return the name of the dataset or field of a data frame's index; AnnData uses `_index` if it has none."""
        if self._tree.is_dataset(path):
            return legacy_fields(self._tree, path)[0]
        return self._tree.index_path(path).rpartition("/")[2]

    def columns(self, path: str) -> list[str]:
        """Return the names of the columns of a data frame, in their order."""
        if self._tree.is_dataset(path):
            return legacy_fields(self._tree, path)[1:]
        return [str(name) for name in np.atleast_1d(self._tree.attribute(path, "column-order"))]

    def _members(self, path: str) -> Iterator[str]:
        """Yield the names of a group's members that belong to its element."""
        if self._tree.encoding(path) == "dataframe":
            yield from dict.fromkeys([*self.columns(path), self._tree.index_path(path)[len(path) + 1 :]])
        else:
            yield from self._tree.children(path)

    # --- datasets -------------------------------------------------------------------------------------

    def _dataset(self, path: str, encoding: str) -> Any:
        if path not in self._reads:
            return None  # a null dataspace
        read, values = self._reads[path], self._values[path]
        if isinstance(values, Elements | CompressedRows):
            return compressed_matrix(values, read.shape, "csc" if encoding == "csc_matrix" else "csr")
        kind = Hdf5Type.parse(read.record["type"])
        if encoding in ("string", "numeric-scalar", "bytes"):
            return _plain(values, is_text=encoding == "string").item()
        values = _plain(
            values, is_text=encoding == "string-array" or (kind.is_vlen and not values.dtype.names)
        )
        return values[()] if values.shape == () else values

    def _old_categorical(self, path: str, codes: NDArray[Any]) -> FrameColumn:
        categories = self._tree.referred(path, CATEGORIES)
        ordered = "ordered" in self._tree.record(categories).get("attributes", {}) and bool(
            self._tree.attribute(categories, "ordered")
        )
        return FrameColumn(codes, self.element(categories), ordered)

    # --- groups ---------------------------------------------------------------------------------------

    def _mapping(self, path: str) -> dict[str, Any]:
        return {name: self.element(f"{path}/{name}") for name in self._tree.children(path)}

    def _column(self, path: str) -> FrameColumn:
        tree, encoding = self._tree, self._tree.encoding(path)
        if encoding == "categorical":
            codes, categories = (self.element(f"{path}/{name}") for name in ("codes", CATEGORIES))
            return FrameColumn(codes, categories, bool(tree.attribute(path, "ordered")))
        if encoding in NULLABLE:
            return FrameColumn(self.element(f"{path}/values"), mask=self.element(f"{path}/mask"))
        if tree.is_dataset(path):
            values = self._dataset(path, encoding)
            is_old = CATEGORIES in tree.record(path).get("attributes", {})
            return self._old_categorical(path, values) if is_old else FrameColumn(values)
        return FrameColumn(self.element(path))

    def _of_pandas(self, path: str) -> Any:
        return self._column(path).to_pandas()

    def _matrix(self, path: str) -> Any:
        """Return the wanted part of a matrix that is a group of arrays, which are read whole because most are empty."""
        kind = self._tree.encoding(path)[:3]
        parts = tuple(self.element(f"{path}/{name}") for name in ("data", "indices", "indptr"))
        matrix = compressed_matrix(parts, self._tree.shape(path), kind)
        for dim, axis in enumerate(self._axes[path]):
            if axis is not None:
                matrix = matrix[axis] if dim == 0 else matrix[:, axis]
        return matrix

    def _awkward(self, path: str) -> Any:
        buffers = {name: self.element(f"{path}/{name}") for name in self._tree.children(path)}
        form, length = self._tree.attribute(path, "form"), int(self._tree.attribute(path, "length"))
        array = AWKWARD.load().from_buffers(form, length, buffers)
        rows = self._axes[path][0] if self._axes[path] else None
        return array if rows is None else array[rows]

    def _nested(self, path: str) -> Any:
        return ANNDATA.load().AnnData(**self._mapping(path))


_GROUPS: dict[str, Callable[[ElementReader, str], Any]] = {
    "": ElementReader._mapping,
    "dict": ElementReader._mapping,
    "raw": ElementReader._mapping,
    "anndata": ElementReader._nested,
    "dataframe": ElementReader.frame,
    "categorical": ElementReader._of_pandas,
    "awkward-array": ElementReader._awkward,
    **dict.fromkeys(MATRICES, ElementReader._matrix),
    **dict.fromkeys(NULLABLE, ElementReader._of_pandas),
}


def _plain(values: NDArray[Any], *, is_text: bool) -> NDArray[Any]:
    """Convert compounds of a real and an imaginary part to complex numbers, and fixed-size text to `str`."""
    if values.dtype.names == ("r", "i") and values.dtype["r"] == values.dtype["i"]:
        return values.view(np.result_type(values.dtype["r"], np.complex64)).reshape(values.shape)
    if is_text and values.dtype.kind == "S":
        decoded = np.empty(values.shape, object)
        flat = [one.decode(errors="surrogateescape") for one in values.reshape(-1).tolist()]
        decoded.reshape(-1)[:] = flat
        return decoded
    return values
