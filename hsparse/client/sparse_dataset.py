"""Sparse datasets as arrays: numpy's keys, scipy's arrays, elements as coordinates and values.

Undefined is not zero: an element is defined once it is written, with any value, until it is erased. What is not defined
reads as the fill value.
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
"""Imported when it is used: others should not wait for it."""
DASK_ARRAY = OptionalModule("hsparse.client.integrations.dask.dask_array")


def is_sparse(record: Json) -> bool:
    """Say whether a dataset's record is of a sparse one."""
    layout = record.get("layout") or record.get("creationProperties", {}).get("layout") or {}
    return set(SPARSE["flags"]) <= set(layout.get("flags") or ())


def _source(connection: Connection, record: Json, kind: Hdf5Type) -> ValueSource:
    if kind.is_vlen:
        found: ValueSource = VLEN_ELEMENTS.load().VlenElements(connection, record["id"], kind)
        return found
    dtype_of(record["type"])  # refuses what numpy cannot hold
    return ChosenElements(connection, record, kind.wire)


class SparseDataset(SparseReads, SparseWrites, ReducedDataset):
    """A sparse dataset on a server, as an array.

    `shape` is the last known extent; `refresh` asks for it. A selection is a key as numpy has them, in an array of that
    shape, `x.read_dense((slice(0, 10), -1))`; or a string of the REST API, `x.read_dense("[0:10,5]")`, in which an
    index keeps its dimension. `coords` are (n, rank) uint64, one row for each element, `values` are (n,).

    A result of more than `max_bytes`, a third of the machine's memory at first, is refused before a large part of it is
    fetched. All methods raise the server's `HsparseError`. Threads may share a dataset, forked processes too; a pickle
    has the credentials of its `Connection`.

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
        """Take a dataset's record, as `GET /datasets/{id}` answers; `InvalidValue` if it is not sparse.

        `source` is what elements are read from, by default the server. `labels(axis)` returns the names along an axis,
        None if it has none.
        """
        if not is_sparse(record):
            raise InvalidValue(f"{record['id']} is not a sparse dataset; read it with a dense client.")
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
        """Create a dataset at `path`, with the missing groups above it, and return it.

        `maxshape` has None for an unlimited dimension; without it the extent is fixed. With `stripes` the chunks are
        spread over so many prefixes of the store, or over the buckets (`bucket`, `bucket/prefix`) that it names.
        `filters` are those of `creationProperties.filters`: one with a `section` (`H5_SECTION_SELECTION`,
        `H5_SECTION_FIXED`) is for that part of a chunk, one with none for all. `attributes` are HDF5/JSON, by name.

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
        """Return the dataset at `path`, or of that id.

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
        """The number of defined elements, zeros among them; one request.

        >>> X.nnz
        4
        """
        return int(self.count())

    @property
    def density(self) -> float:
        """The part of the elements that is defined, 0 to 1; one request.

        >>> X.density == X.nnz / X.size
        True
        """
        return self.nnz / self.size if self.size else 0.0

    def __getitem__(self, key: Key) -> Any:
        """Return the selected elements, as scipy's `csr_array` returns them: `x[3:7, [1, 5]]`.

        Of rank 2 a `csr_array`; of rank 1 of a 2-D dataset a `coo_array`, or a numpy array for two paired lists; a
        number for a single element. Of any other rank, and if the fill value is not 0, a `sparse.COO`. Defined zeros
        are stored elements. One request, whatever the key spans.

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
        """Do as `x[key]` for any form of selection.

        >>> X.take("[0,:]").shape, X.take(np.s_[0]).shape
        ((1, 3), (3,))
        """
        return self._in_region(select, self._result)

    @property
    def oindex(self) -> OrthogonalIndex:
        """Keys whose lists and masks are each for its own dimension: `x.oindex[[1, 3], [0, 5]]` has 2 rows.

        Text stands for a label of the axis: `x.oindex[:, ["CD3E", "NKG7"]]`; `MissingKey` names one that is not there.

        >>> X.oindex[[3, 0], [True, False, True]].toarray()
        array([[4., 0.],
               [1., 2.]], dtype=float32)
        >>> cells["X"].oindex[["c0", "c2"], ["MS4A1", "NKG7"]].toarray()
        array([[2., 0.],
               [0., 3.]], dtype=float32)
        """
        return OrthogonalIndex(self)

    def to_dask(self, chunks: Blocks = None, format: Format = "coo") -> Array:
        """Return a `dask.array.Array` of the dataset, see `hsparse.client.integrations.dask.dask_array.sparse_to_dask`.

        >>> array = X.to_dask(chunks=(2, 3))
        >>> array.numblocks, array.sum(axis=0).compute().todense()
        ((2, 1), array([5., 3., 2.], dtype=float32))
        """
        self.check_lazy()
        found: Array = DASK_ARRAY.load().sparse_to_dask(self, chunks, format)
        return found

    def check_lazy(self) -> None:
        """Raise `Unsupported` for elements of variable length, of which dask and xarray have no sparse blocks.

        >>> X.check_lazy()
        """
        if self.type.is_vlen:
            raise Unsupported(
                f"{self.name or self.id} has elements of variable length, which are not read lazily: take read(), or "
                "to_numpy()."
            )

    def count(self, select: Select = None, *, axis: int | Sequence[int] | None = None) -> Any:
        """Return how many of the selected elements are defined, by one request; or, of all, how many along an axis.

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
            raise InvalidValue("Count along an axis, or in a selection, not both.")
        return self._reduced("count", axis, undefined="skip")


class OrthogonalIndex:
    """`x.oindex`: reads and writes by keys whose lists and masks are each for its own dimension.

    >>> X.oindex[[0, 3], [0, 2]].toarray()
    array([[1., 2.],
           [4., 0.]], dtype=float32)
    """

    def __init__(self, dataset: SparseDataset) -> None:
        self._dataset = dataset

    def __getitem__(self, key: Key) -> Any:
        """Return the product of the items, in the forms that `SparseDataset.__getitem__` names.

        >>> X.oindex[[3, 0], 1:].shape
        (2, 2)
        """
        return self._dataset.take(self.key(key))

    def __setitem__(self, key: Key, values: Values) -> None:
        """Assign to the product of the items; see `SparseDataset.__setitem__`.

        >>> X.oindex[[1, 2], [0, 2]] = 9
        >>> X.to_numpy()
        array([[1., 0., 2.],
               [9., 0., 9.],
               [9., 3., 9.],
               [4., 0., 0.]], dtype=float32)
        """
        self._dataset.assign(self.key(key), values)

    def key(self, key: Key) -> ArrayKey:
        """Return the key for the methods of a dataset: `x.to_numpy(x.oindex.key((slice(None), ["CD3E"])))`.

        >>> X.to_numpy(X.oindex.key(([3, 0], [0, 2])))
        array([[4., 0.],
               [1., 2.]], dtype=float32)
        """
        return ArrayKey(
            self._dataset.labels.resolve(key, self._dataset.ndim, self._dataset.lower), orthogonal=True
        )
