"""Sparse datasets: create them, read and write their elements as coordinates and values.

Undefined is not zero: an element is defined once it is written, with any value, until it is erased. A dense read
returns the fill value for undefined elements.

    with Connection("http://localhost:5101", "/home/ada/run.h5", user="ada", password="...") as connection:
        frames = SparseDataset.create(
            connection, "/frames", (0, 1024, 1024), "u2", chunks=(1, 512, 512), max_shape=(None, 1024, 1024)
        )
        frames.extend(1)
        frames.write([[0, 10, 20], [0, 10, 21]], [700, 650])
        coords, values = frames.read((0, slice(0, 512)))
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hsparse.client.connection import Connection, Json
from hsparse.client.dask_array import Format, sparse_to_dask
from hsparse.client.dataset import Dataset
from hsparse.client.datatype import dtype_of, type_item
from hsparse.client.errors import InvalidValue
from hsparse.client.selected_region import Select, SelectedRegion
from hsparse.errors import Corrupt
from hsparse.format.selections.encoded_selection import decode_selection
from hsparse.format.selections.points import Points
from hsparse.format.structured.region import decode_region, encode_region

LAYOUT = {"class": "H5D_STRUCT_CHUNK", "flags": ["H5D_SPARSE_DATA"]}
UNLIMITED = "H5S_UNLIMITED"


def is_sparse(record: Json) -> bool:
    """Say whether a dataset's record is of a sparse one."""
    layout = record.get("layout") or record.get("creationProperties", {}).get("layout") or {}
    return set(LAYOUT["flags"]) <= set(layout.get("flags") or ())


class SparseDataset(Dataset):
    """A sparse dataset on a server. `coords` are (n, rank) uint64, one row for each element, `values` are (n,).

    Every write is durable when the method returns. `shape` is the last known extent; `refresh` asks for it. A selection
    is a key as numpy has them, in an array of that shape, `x.read_dense((slice(0, 10), -1))`, or a string of the REST
    API, `x.read_dense("[0:10,5]")`, in which an index keeps its dimension.
    All methods raise the server's `HsparseError`. Threads may share a dataset, forked processes too; a pickle has the
    credentials of its `Connection`.
    """

    def __init__(self, connection: Connection, record: Json, name: str | None = None) -> None:
        """Take a dataset's record, as `GET /datasets/{id}` answers; `BadRequest` if it is not sparse."""
        if not is_sparse(record):
            raise InvalidValue(f"{record['id']} is not a sparse dataset; read it with a dense client.")
        super().__init__(connection, record, name)
        dtype_of(record["type"])  # refuses elements of variable length

    @classmethod
    def create(
        cls,
        connection: Connection,
        path: str,
        shape: Sequence[int],
        dtype: np.dtype[Any] | type | str,
        chunks: Sequence[int],
        *,
        max_shape: Sequence[int | None] | None = None,
        fill_value: Any = None,
        filters: Sequence[Any] = (),
        attributes: Json | None = None,
    ) -> SparseDataset:
        """Create a dataset at `path`, with the missing groups above it, and return it.

        `max_shape` has None for an unlimited dimension; without it the extent is fixed. `filters` are those
        of `creationProperties.filters`: one with a `section` (`H5_SECTION_SELECTION`, `H5_SECTION_FIXED`) is
        for that part of a chunk, one with none for all. `attributes` are HDF5/JSON, by name.
        """
        properties: Json = {"layout": LAYOUT | {"dims": list(chunks)}, "filters": list(filters)}
        if fill_value is not None:
            properties["fillValue"] = np.asarray(fill_value, dtype).tolist()
        body: Json = {
            "type": type_item(np.dtype(dtype)),
            "shape": list(shape),
            "creationProperties": properties,
            "attributes": attributes or {},
            "h5path": path,
        }
        if max_shape is not None:
            body["maxdims"] = [UNLIMITED if limit is None else limit for limit in max_shape]
        id = connection.json("POST", "/datasets", body, implicit=1)["id"]
        return cls(connection, connection.json("GET", f"/datasets/{id}"))

    @classmethod
    def open(cls, connection: Connection, path: str) -> SparseDataset:
        """Return the dataset at `path`, or of that id."""
        if path.startswith("d-"):
            return cls(connection, connection.json("GET", f"/datasets/{path}"))
        return cls(connection, connection.json("GET", "/datasets/", h5path=path))

    def write(self, coords: ArrayLike, values: ArrayLike, *, drop_fill: bool = False) -> None:
        """Define the elements at `coords`; of an element named twice the last value counts.

        `drop_fill` leaves out elements that equal the fill value.
        """
        places = np.asarray(coords)
        column = np.ascontiguousarray(values, self.dtype)

        def send(extent: tuple[int, ...]) -> None:
            body = encode_region(Points(extent, places), column)
            self._put_value(body, sparse=1, drop_fill=drop_fill or None)

        self._in_current_extent(send)

    def write_region(self, select: Select, values: ArrayLike, *, drop_fill: bool = False) -> None:
        """Define every selected element: `values` have the selection's shape, or are one for all.

        With a key of numpy they are broadcast to its shape.
        """
        array = np.asarray(values, self.dtype)

        def send(region: SelectedRegion) -> None:
            column, options = region.flatten(array), {"drop_fill": drop_fill or None}
            if region.is_long:
                selection = region.selection
                whole = np.broadcast_to(column, selection.size) if column.size == 1 else column
                self._put_value(encode_region(selection, whole), sparse=1, **options)
            else:
                one = 1 if column.size == 1 else None
                self._put_value(column.tobytes(), select=region.text, element_count=one, **options)

        self._in_region(select, send)

    def read(self, select: Select = None) -> tuple[NDArray[np.uint64], NDArray[Any]]:
        """Return the defined elements of the selection: coordinates and values.

        The order is chunk after chunk, row-major inside each.
        """
        data = self._in_region(select, lambda region: self._get_value(region, sparse=True))
        try:
            selection, values = decode_region(data, self.dtype)
        except Corrupt as error:
            raise Corrupt(f"The answer about {self.id} is damaged: {error.message}") from error
        return selection.coords(), values

    def read_dense(self, select: Select = None) -> NDArray[Any]:
        """Return every selected value, the fill value where undefined, in the selection's shape."""

        def get(region: SelectedRegion) -> NDArray[Any]:
            order = region.order
            values: NDArray[Any] = np.frombuffer(self._get_value(region), self.dtype)
            if values.size != prod(order.shape):
                raise InvalidValue(
                    f"The extent of {self.id} is not {list(region.extent)} any more; read again."
                )
            return order.arrange(values)

        return self._in_region(select, get)

    def read_points(self, coords: ArrayLike) -> NDArray[Any]:
        """Return the values (n,) at `coords` in their order, the fill value where undefined."""
        body = self._points(coords).astype("<u8").tobytes()
        return np.frombuffer(self.connection.binary("POST", self._path("value"), body), self.dtype)

    def defined(self, select: Select = None) -> NDArray[np.uint64]:
        """Return the coordinates of the defined elements of the selection, in the order of `read`."""

        def get(region: SelectedRegion) -> NDArray[np.uint64]:
            if region.is_long:  # this request has no body
                return self.read(region.text)[0]
            return decode_selection(
                self.connection.binary("GET", self._path("defined"), select=region.text)
            ).coords()

        return self._in_region(select, get)

    def count(self, select: Select = None) -> int:
        """Return how many of the selected elements are defined; coordinates are fetched only for long lists."""

        def get(region: SelectedRegion) -> int:
            if region.is_long:
                return len(self.read(region.text)[0])
            path = self._path("defined")
            return int(self.connection.json("GET", path, select=region.text, count_only=1)["count"])

        return self._in_region(select, get)

    def to_dask(self, chunks: Any = None, format: Format = "coo") -> Any:
        """Return a `dask.array.Array` of the dataset, see `hsparse.client.dask_array.sparse_to_dask`."""
        return sparse_to_dask(self, chunks, format)

    def erase(self, select: Select = None) -> None:
        """Make the selected elements undefined."""

        def send(region: SelectedRegion) -> None:
            self.connection.json("POST", self._path("erase"), {"select": region.text or "[...]"})

        self._in_region(select, send)

    def erase_points(self, coords: ArrayLike) -> None:
        """Make the elements at `coords` undefined."""
        self.connection.json("POST", self._path("erase"), {"points": self._points(coords).tolist()})

    def append(
        self, coords: ArrayLike, values: ArrayLike, *, count: int, axis: int = 0, drop_fill: bool = False
    ) -> slice:
        """Grow a dimension by `count` and define elements there, as one change; return the slice of what is new.

        `coords: (n, rank)` are places in the new elements alone: the first new row is row 0. Others see the old extent,
        or the new one with the values. Any number of clients may append at the same time.
        """
        column = np.ascontiguousarray(values, self.dtype)

        def send(extent: tuple[int, ...]) -> slice:
            dim = self._axis(axis, extent)
            slab = (*extent[:dim], count, *extent[dim + 1 :])
            body = encode_region(Points(slab, np.asarray(coords)), column)
            return self._append(body, dim, count, sparse=1, drop_fill=drop_fill or None)

        return self._in_current_extent(send)

    def append_region(self, values: ArrayLike, *, axis: int = 0, drop_fill: bool = False) -> slice:
        """Append `values`, all of them defined: they have the shape of what is new. Else as `append`."""
        array = np.ascontiguousarray(values, self.dtype)

        def send(extent: tuple[int, ...]) -> slice:
            dim = self._axis(axis, extent)
            slab = (*extent[:dim], array.shape[dim] if array.ndim == len(extent) else 0, *extent[dim + 1 :])
            if array.shape != slab:
                raise InvalidValue(
                    f"What is appended to {self.id} along dimension {dim} has its other lengths, those of "
                    f"{list(extent)}; the values have the shape {list(array.shape)}."
                )
            return self._append(array.tobytes(), dim, slab[dim], drop_fill=drop_fill or None)

        return self._in_current_extent(send)

    def _append(self, body: bytes, dim: int, count: int, **params: object) -> slice:
        path = self._path("value")
        return self._grown(
            self.connection.json("PUT", path, body, append=count, append_dim=dim, **params), dim
        )

    def _get_value(self, region: SelectedRegion, sparse: bool | None = None) -> bytes:
        if region.is_long:
            return self.connection.binary("POST", self._path("value"), {"select": region.text}, sparse=sparse)
        return self.connection.binary("GET", self._path("value"), select=region.text, sparse=sparse)

    def _put_value(self, body: bytes, **params: object) -> None:
        self.connection.json("PUT", self._path("value"), body, **params)

    def _points(self, coords: ArrayLike) -> NDArray[np.uint64]:
        return self._in_current_extent(lambda extent: Points(extent, np.asarray(coords)).coords())
