"""Sparse datasets as arrays: keys are as in numpy, results are arrays of scipy or `sparse`.

An element is defined after any value, even zero, was written to it, until it is erased. Undefined elements read as the
fill value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike, DTypeLike

from hsparse.client.connection import Connection, Json
from hsparse.client.creation import SPARSE, Filter, StorageOptions
from hsparse.client.errors import InvalidValue
from hsparse.client.indexing.key_items import Key
from hsparse.client.indexing.labels import AxisLabels, Labels
from hsparse.client.indexing.select import ArrayKey, Select
from hsparse.client.reductions import ReducedDataset
from hsparse.client.sources.chosen_elements import ChosenElements
from hsparse.client.sources.elements import ValueSource
from hsparse.client.sources.selection_request import count_defined
from hsparse.client.sparse.sparse_reads import SparseReads
from hsparse.client.sparse.sparse_values import Values
from hsparse.client.sparse.sparse_writes import SparseWrites
from hsparse.client.types.datatype import dtype_of
from hsparse.client.types.hdf5_type import Hdf5Type
from hsparse.errors import Unsupported
from hsparse.optional_module import OptionalModule

if TYPE_CHECKING:
    from dask.array import Array

    from hsparse.client.integrations.dask.dask_array import Blocks, Format

VLEN_ELEMENTS = OptionalModule("hsparse.client.sources.vlen_elements")
"""The module is imported at its first use, because the import would delay datasets without vlen elements."""
DASK_ARRAY = OptionalModule("hsparse.client.integrations.dask.dask_array")


def is_sparse(record: Json) -> bool:
    """Return whether the record of a dataset says that the dataset is sparse."""
    layout = record.get("layout") or record.get("creationProperties", {}).get("layout") or {}
    return set(SPARSE["flags"]) <= set(layout.get("flags") or ())


def _source(connection: Connection, record: Json, kind: Hdf5Type) -> ValueSource:
    if kind.is_vlen:
        found: ValueSource = VLEN_ELEMENTS.load().VlenElements(connection, record["id"], kind)
        return found
    dtype_of(record["type"])  # raises for types that numpy cannot hold
    return ChosenElements(connection, record, kind.wire)


class SparseDataset(SparseReads, SparseWrites, ReducedDataset):
    """A sparse dataset on a server, as an array.

    `shape` is the last known extent; `refresh` updates it. A selection is a numpy key, `x.read_dense((slice(0, 10),
    -1))`, or a string of the REST API, `x.read_dense("[0:10,5]")`, in which an integer index keeps its dimension.
    `coords` are (n, rank) uint64, one row for each element; `values` are (n,).

    A result of more than `max_bytes`, by default a third of the machine's memory, raises an error before much of the
    result is fetched. All methods raise the `HsparseError` that the server answers. Threads and forked processes may
    share a dataset; a pickle of a dataset has the credentials of its `Connection`.

    >>> X
    <SparseDataset /X: shape (4, 3), float32, chunks (2, 3), fill value 0.0>
    >>> X.nnz, X[0, 2], X[:, 0].toarray()
    (4, np.float32(2.0), array([1., 0., 0., 4.], dtype=float32))
    >>> X[1, :2] = [5, 6]
    >>> X.to_numpy()
    array([[1., 0., 2.],
           [5., 6., 0.],
           [0., 3., 0.],
           [4., 0., 0.]], dtype=float32)
    """

    has_undefined = True

    def __init__(
        self,
        connection: Connection,
        record: Json,
        name: str | None = None,
        *,
        source: ValueSource | None = None,
        labels: Labels | None = None,
    ) -> None:
        """`record` is the JSON of `GET /datasets/{id}`; raise `InvalidValue` if the dataset is not sparse.

        `source` reads the elements, by default from the server. `labels(axis)` returns the labels along an axis, or
        None if the axis has no labels.
        """
        if not is_sparse(record):
            raise InvalidValue(f"{record['id']} is a dense dataset: open it as a DenseDataset.")
        super().__init__(connection, record, name)
        self.source = source if source is not None else _source(connection, record, self.type)
        self.labels = AxisLabels(labels)

    @classmethod
    def create(
        cls,
        connection: Connection,
        path: str,
        shape: Sequence[int],
        dtype: DTypeLike,
        chunks: Sequence[int],
        *,
        stripes: int | Sequence[str] = 1,
        maxshape: Sequence[int | None] | None = None,
        fillvalue: ArrayLike | None = None,
        filters: Sequence[Filter] = (),
        attributes: Json | None = None,
    ) -> SparseDataset:
        """Create and return a sparse dataset at `path`; create missing parent groups.

        `maxshape` has None for an unlimited dimension; without `maxshape` the extent is fixed. `stripes` spreads the
        chunks over this number of prefixes of the store, or over the listed buckets (`bucket`, `bucket/prefix`).
        `filters` are as in `creationProperties.filters` of the REST API; a filter with a `section`
        (`H5_SECTION_SELECTION`, `H5_SECTION_FIXED`) encodes only this section. `attributes` maps names to HDF5/JSON.

        >>> y = hsparse.SparseDataset.create(f.connection, "/y", (0, 512), "f4", (64, 512), maxshape=(None, 512))
        >>> y.shape, y.maxshape
        ((0, 512), (None, 512))
        """
        options = StorageOptions(chunks, maxshape, fillvalue, filters=filters, stripes=stripes)
        body = options.sparse_body(tuple(shape), dtype)
        body |= {"attributes": attributes or {}, "h5path": path}
        return cls(
            connection, connection.json("POST", "/datasets", body, implicit=1, follow_soft_links=1), path
        )

    @classmethod
    def open(cls, connection: Connection, path: str) -> SparseDataset:
        """Return the sparse dataset at a path, or the sparse dataset whose id is `path`.

        >>> hsparse.SparseDataset.open(f.connection, "/X").shape
        (4, 3)
        """
        if path.startswith("d-"):
            return cls(connection, connection.json("GET", f"/datasets/{path}"))
        return cls(connection, connection.json("GET", "/datasets/", h5path=path, follow_soft_links=1), path)

    def __repr__(self) -> str:
        return (
            f"<SparseDataset {self.name or self.id}: {self._extent_text()}, {self.dtype}, chunks {self.chunks}, "
            f"fill value {self.fillvalue!s}>"
        )

    @property
    def nnz(self) -> int:
        """The number of defined elements, including defined zeros; sends one request.

        >>> X.nnz
        4
        """
        return int(self.count())

    @property
    def density(self) -> float:
        """The fraction of all elements that is defined, from 0 to 1; sends one request.

        >>> X.density == X.nnz / X.size
        True
        """
        return self.nnz / self.size if self.size else 0.0

    def __getitem__(self, key: Key) -> Any:
        """Return the selected elements as a sparse array or a number: `x[3:7, [1, 5]]`.

        A result of rank 2 is a scipy `csr_array`. A result of rank 1 of a 2-D dataset is a `coo_array`, or a numpy
        array if the key has two paired lists. A single element is a number. Results of higher ranks, and all results if
        the fill value is not 0, are `sparse.COO`. Defined zeros are stored elements. Any key needs one request.

        >>> X[0:2].toarray(), type(X[0:2]).__name__
        (array([[1., 0., 2.],
               [0., 0., 0.]], dtype=float32), 'csr_array')
        >>> X[[3, 0], :1].toarray(), X[[0, 2], [2, 1]], X[0, 1]
        (array([[4.],
               [1.]], dtype=float32), array([2., 3.], dtype=float32), np.float32(0.0))
        >>> X[9]
        Traceback (most recent call last):
        hsparse.client.errors.OutOfRange: Index 9 of dimension 0 is not within its extent 4.
        """
        return self.take(ArrayKey(key))

    def take(self, select: Select) -> Any:
        """Return the elements of a selection of any type of `Select`; for a key, the result equals `x[key]`.

        >>> X.take("[0,:]").shape, X.take(np.s_[0]).shape
        ((1, 3), (3,))
        """
        return self._in_region(select, self._result)

    @property
    def oindex(self) -> OrthogonalIndex:
        """Orthogonal indexing: `x.oindex[[1, 3], [0, 5]]` returns the 2 x 2 elements of rows 1 and 3, columns 0 and 5.

        A text in a key is a label of the axis: `x.oindex[:, ["CD3E", "NKG7"]]`; a missing label raises `MissingKey`.

        >>> X.oindex[[3, 0], [True, False, True]].toarray()
        array([[4., 0.],
               [1., 2.]], dtype=float32)
        >>> cells["X"].oindex[["c0", "c2"], ["MS4A1", "NKG7"]].toarray()
        array([[2., 0.],
               [0., 3.]], dtype=float32)
        """
        return OrthogonalIndex(self)

    def to_dask(self, chunks: Blocks = None, format: Format = "coo") -> Array:
        """Return the dataset as a `dask.array.Array` whose blocks have the shape `chunks` and the type `format`.

        >>> array = X.to_dask(chunks=(2, 3))
        >>> array.numblocks, array.sum(axis=0).compute().todense()
        ((2, 1), array([5., 3., 2.], dtype=float32))
        """
        self.check_lazy()
        found: Array = DASK_ARRAY.load().sparse_to_dask(self, chunks, format)
        return found

    def check_lazy(self) -> None:
        """Raise `Unsupported` if the elements are vlen: sparse blocks of dask and xarray cannot contain vlen elements.

        >>> X.check_lazy()
        """
        if self.type.is_vlen:
            raise Unsupported(
                f"{self.name or self.id} has elements of variable length, which cannot be read lazily: use read() or "
                "to_numpy()."
            )

    def count(self, select: Select = None, *, axis: int | Sequence[int] | None = None) -> Any:
        """Return the number of defined elements in a selection, or an array of their numbers along `axis`.

        >>> X.count(), X.count(np.s_[:2]), X.count(axis=0)
        (4, 2, array([2, 1, 1]))
        """
        if axis is None:
            return self._in_region(
                select,
                lambda region: count_defined(
                    self.connection, self.id, region.selection, named=select is not None
                ),
            )
        if select is not None:
            raise InvalidValue("count accepts only one of select and axis: omit one of the two.")
        return self._reduced("count", axis, undefined="skip")


class OrthogonalIndex:
    """`x.oindex`: orthogonal indexing, where each list or mask of a key applies to its own dimension.

    >>> X.oindex[[0, 3], [0, 2]].toarray()
    array([[1., 2.],
           [4., 0.]], dtype=float32)
    """

    def __init__(self, dataset: SparseDataset) -> None:
        self._dataset = dataset

    def __getitem__(self, key: Key) -> Any:
        """Return the elements that an orthogonal key selects; for the type of the result see `SparseDataset`.

        >>> X.oindex[[3, 0], 1:].shape
        (2, 2)
        """
        return self._dataset.take(self.key(key))

    def __setitem__(self, key: Key, values: Values) -> None:
        """Write `values` to the elements that an orthogonal key selects; see `SparseDataset.__setitem__`.

        >>> X.oindex[[1, 2], [0, 2]] = 9
        >>> X.to_numpy()
        array([[1., 0., 2.],
               [9., 0., 9.],
               [9., 3., 9.],
               [4., 0., 0.]], dtype=float32)
        """
        self._dataset.assign(self.key(key), values)

    def key(self, key: Key) -> ArrayKey:
        """Return an orthogonal key to pass to a method: `x.to_numpy(x.oindex.key((slice(None), ["CD3E"])))`.

        >>> X.to_numpy(X.oindex.key(([3, 0], [0, 2])))
        array([[4., 0.],
               [1., 2.]], dtype=float32)
        """
        return ArrayKey(
            self._dataset.labels.resolve(key, self._dataset.ndim, self._dataset.lower), orthogonal=True
        )
