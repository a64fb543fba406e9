"""Creation of datasets in a group, one at a time or in a batch."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from hsparse.client.attributes import attribute_bodies
from hsparse.client.batch import PendingCreations
from hsparse.client.connection import Connection, Json
from hsparse.client.creation import Filter, MaxShape, Shape, StorageOptions, shape_tuple
from hsparse.client.dense_dataset import DenseDataset
from hsparse.client.errors import AlreadyExists, InvalidValue, in_own_words
from hsparse.client.late_links import Parent, unlinked_dataset
from hsparse.client.sparse.element_codec import codec_of
from hsparse.client.sparse.sparse_values import Values, sparse_values
from hsparse.client.sparse_dataset import SparseDataset
from hsparse.client.types.datatype import base_and_dims
from hsparse.client.types.hdf5_type import Hdf5Type
from hsparse.client.virtual_layout import VirtualLayout
from hsparse.errors import Conflict
from hsparse.optional_module import OptionalModule

ASSIGNMENT = OptionalModule("hsparse.client.integrations.anndata.element_assignment")
"""The module is imported at its first use, because most files have no data frames."""
COLUMN = re.compile(r"/(obs|var|(obsm|varm|uns)/[^/]+)/[^/]+$")
"""Matches the path of a column of a data frame in an AnnData."""
MAX_INLINE_BYTES = 256 << 10
"""Values of at most this many bytes are sent with the creation of their dataset; all servers accept such requests."""


class DatasetCreation:
    """The methods of a group that create objects; `name` is the path of the group.

    >>> f.create_dataset("t", data=[1, 2]).name
    '/t'
    """

    connection: Connection
    id: str
    name: str

    def create_dataset(
        self,
        path: str,
        shape: Shape | None = None,
        dtype: DTypeLike | None = None,
        data: ArrayLike | None = None,
        *,
        chunks: Shape | bool | None = None,
        stripes: int | Sequence[str] = 1,
        maxshape: MaxShape = None,
        lower: Shape | None = None,
        minlower: MaxShape = None,
        fillvalue: ArrayLike | None = None,
        compression: str | int | None = None,
        compression_opts: int | Sequence[int] | None = None,
        shuffle: bool = False,
        fletcher32: bool = False,
        filters: Sequence[Filter] = (),
        attributes: Mapping[str, Any] | None = None,
    ) -> DenseDataset:
        """Create a dense dataset and missing parent groups, and write `data`, whose shape and dtype are the defaults.

        The options are h5py's; without `chunks`, the server chooses the chunks. `filters` lists all filters, as
        in `creationProperties.filters` of the REST API, instead of `compression`, `shuffle` and `fletcher32`. `stripes`
        spreads the chunks over this number of prefixes of the store, or over the listed buckets (`bucket`,
        `bucket/prefix`). `lower` is the coordinate of the first element, and `minlower` is the minimum of `lower`; with
        `lower` or `minlower`, indices do not count from the end. Attributes and values of up to 256 KiB are sent in the
        request that creates the dataset. A larger dataset becomes visible when all its values are written, or is
        deleted if an error occurs. Raises `AlreadyExists` if the path has an object.

        >>> t = f.create_dataset("t", data=[[1.5, 2], [3, 4]], attributes={"unit": "s"})
        >>> t.shape, t.dtype, t.attrs["unit"]
        ((2, 2), dtype('float64'), 's')
        >>> log = f.create_dataset("log", (0, 3), "i4", maxshape=(None, 3), compression="gzip", shuffle=True)
        >>> log.extend(2), log.compression
        (slice(0, 2, None), 'gzip')
        >>> both = f.create_dataset("both", (3,), "i4", maxshape=(None,), lower=-1, minlower=(None,))
        >>> both[-1] = 8
        >>> both.extend(2, side="lower"), both
        (slice(-3, -1, None), <DenseDataset /both: shape (5,), places [-3:2] (none counts from the end), int32, ...>)
        """
        if data is None and shape is None:
            raise InvalidValue("Give data, or a shape and a dtype.")
        base, dims = base_and_dims(dtype)
        array = np.asarray(np.zeros((), base or "f4") if data is None else data, base)
        extent = array.shape[: array.ndim - len(dims)] if shape is None else shape_tuple(shape)
        if data is not None:
            array = _reshaped(array, (*extent, *dims))
        kind = Hdf5Type.of(array, dims)
        options = StorageOptions(
            chunks,
            maxshape,
            fillvalue,
            compression,
            compression_opts,
            shuffle,
            fletcher32,
            filters,
            stripes,
            lower,
            minlower,
        )
        body = options.body(kind, extent)
        body |= attribute_bodies(attributes)
        if (
            data is not None
            and 0 < array.nbytes <= MAX_INLINE_BYTES
            and len(encoded := kind.encode(array)) <= MAX_INLINE_BYTES
        ):
            body["value_base64"] = b64encode(encoded).decode()
        frame = self._frame_of(path)
        if frame is not None:
            ASSIGNMENT.load().check_rows(frame, extent)
            kind_of = "string-array" if kind.is_vlen else "array"
            own = {"encoding-type": kind_of, "encoding-version": "0.2.0"}
            body |= attribute_bodies(own | dict(attributes or {}))
        if data is None or not array.size or "value_base64" in body:
            record, whole = self.create_object("datasets", path, body)
            dataset = DenseDataset(self.connection, record, whole)
        else:
            with unlinked_dataset(cast(Parent, self), path, body) as made:
                dataset = DenseDataset(made.connection, made.record, made.path)
                dataset[...] = array
        if frame is not None:
            ASSIGNMENT.load().add_column(frame, path.rpartition("/")[2])
        return dataset

    def create_sparse(
        self,
        path: str,
        shape: Shape | None = None,
        dtype: DTypeLike | None = None,
        chunks: Shape | None = None,
        *,
        data: Values | None = None,
        stripes: int | Sequence[str] = 1,
        maxshape: MaxShape = None,
        lower: Shape | None = None,
        minlower: MaxShape = None,
        fillvalue: ArrayLike | None = None,
        compression: str | int | None = None,
        compression_opts: int | Sequence[int] | None = None,
        shuffle: bool = False,
        fletcher32: bool = False,
        filters: Sequence[Filter] = (),
        attributes: Mapping[str, Any] | None = None,
    ) -> SparseDataset:
        """Create a sparse dataset and missing parent groups, and write `data`, whose shape and dtype are the defaults.

        For the options see `create_dataset`; the default chunks suit datasets with few defined elements. If `data` is
        dense, only the elements that differ from the fill value become defined.

        >>> y = f.create_sparse("y", (0, 512, 512), "u2", (1, 512, 512), maxshape=(None, 512, 512))
        >>> y.shape, y.chunks, y.nnz
        ((0, 512, 512), (1, 512, 512), 0)
        >>> f.create_sparse("z", data=[[0, 5], [0, 0]]).nnz
        1
        """
        given = None if data is None else sparse_values(data)
        base, dims = base_and_dims(dtype)
        array = _values_of([] if data is None or given is not None else data, base)
        if shape is None and data is None:
            raise InvalidValue("Give data, or a shape and a dtype.")
        extent = shape_tuple(
            shape
            if shape is not None
            else given.shape
            if given is not None
            else array.shape[: array.ndim - len(dims)]
        )
        if dtype is None:
            dtype = given.values.dtype if given is not None else array.dtype if data is not None else "f4"
        if fillvalue is None and given is not None and given.fill_value != 0:
            fillvalue = given.fill_value
        options = StorageOptions(
            chunks,
            maxshape,
            fillvalue,
            compression,
            compression_opts,
            shuffle,
            fletcher32,
            filters,
            stripes,
            lower,
            minlower,
        )
        body = options.sparse_body(extent, dtype) | attribute_bodies(attributes)
        if data is None:
            record, whole = self.create_object("datasets", path, body)
            return SparseDataset(self.connection, record, whole)
        with unlinked_dataset(cast(Parent, self), path, body) as made:
            dataset = SparseDataset(made.connection, made.record, made.path)
            if given is not None:
                dataset[...] = data
            else:
                dataset.write_region(..., array, drop_fill=True)
        return dataset

    def create_virtual_dataset(
        self,
        path: str,
        layout: VirtualLayout,
        fillvalue: ArrayLike | None = None,
        *,
        attributes: Mapping[str, Any] | None = None,
    ) -> DenseDataset | SparseDataset:
        """Create a dataset whose elements are read from other datasets, and missing parent groups. No data are copied.

        >>> layout = hsparse.VirtualLayout((3, 2), "f4", sparse=True)
        >>> layout[:] = hsparse.VirtualSource(".", "X", (4, 3))[1:4, ::2]
        >>> f.create_virtual_dataset("part", layout).nnz <= f["X"].nnz
        True
        """
        body = layout.body(fillvalue) | attribute_bodies(attributes)
        record, whole = self.create_object("datasets", path, body)
        made = (SparseDataset if layout.sparse else DenseDataset)(self.connection, record, whole)
        if layout.maxshape is not None and self.connection.batch is None:
            made.refresh()  # the extent follows from the sources
        return made

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Collect the groups, attributes and small datasets that this thread creates, and send them in few requests.

        The objects are sent when the context ends, and before any other request, so every read sees the objects. An
        error of the server is raised when they are sent, and then none of the objects of that request exists. If the
        context ends with an exception, the objects that are not sent yet are discarded.

        >>> with f.batch():
        ...     for number in range(100):
        ...         run = f.create_group(f"runs/{number}", {"number": number})
        ...         times = run.create_dataset("times", data=[0.5, 1.5], attributes={"unit": "s"})
        ...         run.attrs["beam"] = "on"
        >>> len(f["runs"]), f["runs/99/times"].attrs["unit"], f["runs/99"].attrs["beam"]
        (100, 's', 'on')
        """
        if self.connection.batch is not None:  # the outermost batch sends
            yield
            return
        batch = self.connection.batch = PendingCreations(self.connection.json, self.id)
        try:
            yield
            batch.send()
        finally:
            batch.drop()
            self.connection.batch = None

    def _frame_of(self, path: str) -> Any:
        """Return the data frame (a group) that has the object at a path as a column, or None if there is none.

        The server is asked only if an AnnData may have a data frame at the path.
        """
        if cast(Parent, self)._old is not None:  # all existing objects are being replaced
            return None
        whole = self._whole(path)
        return ASSIGNMENT.load().frame_at(self, whole.rpartition("/")[0]) if COLUMN.search(whole) else None

    def _whole(self, path: str) -> str:
        """Return a path as an absolute path; a relative path is relative to this group."""
        return path if path.startswith("/") else f"{self.name.rstrip('/')}/{path}"

    def create_object(self, collection: str, path: str, body: Json) -> tuple[Json, str]:
        """Create an object from a request body of the REST API; return a pair: its record and its absolute path.

        Raises `AlreadyExists` if the path has an object.

        >>> f.create_object("groups", "a/b", {})[1]
        '/a/b'
        """
        parent = cast(Parent, self)
        if collection == "datasets" and parent._old is not None:  # the old file is replaced after this
            with in_own_words(), unlinked_dataset(parent, path, body) as made:
                pass
            return made.record, made.path
        whole = self._whole(path)
        batch = self.connection.open_batch
        if batch is not None:
            return batch.create(collection, body, whole), whole
        try:
            with in_own_words():
                return self.connection.json(
                    "POST", f"/{collection}", body | {"h5path": whole}, implicit=1, follow_soft_links=1
                ), whole
        except Conflict as error:
            raise AlreadyExists(f"There is an object at {whole} already: {error.message}") from error


def _values_of(data: Any, dtype: DTypeLike | None) -> NDArray[Any]:
    """Return values as an array; vlen sequences become an array of objects, as numpy would join them to a matrix."""
    if dtype is not None and np.dtype(dtype).hasobject:
        return codec_of(Hdf5Type.of_dtype(dtype)).cast(data)
    return np.asarray(data, dtype)


def _reshaped(array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return the array reshaped to `shape`; raise `InvalidValue` if the number of its values does not fit."""
    if array.size != prod(shape):
        raise InvalidValue(f"Shape {list(shape)} needs {prod(shape)} values, but data has {array.size}.")
    return array.reshape(shape)
