"""Sparse datasets: create them, read and write their elements as coordinates and values.

Undefined is not zero: an element is defined once it is written, with any value, until it is erased. A dense read
returns the fill value for undefined elements.

    with Connection("http://localhost:5101", "/home/ada/run.h5", user="ada", password="...") as connection:
        frames = SparseDataset.create(
            connection, "/frames", (0, 1024, 1024), "u2", chunk=(1, 512, 512), max_shape=(None, 1024, 1024)
        )
        frames.resize((1, 1024, 1024))
        frames.write([[0, 10, 20], [0, 10, 21]], [700, 650])
        coords, values = frames.read("[0,0:512,:]")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hsparse.client.connection import Connection, Json
from hsparse.client.datatype import dtype_of, type_item
from hsparse.errors import BadRequest, Corrupt
from hsparse.format.selections.encoded_selection import decode_selection
from hsparse.format.selections.points import Points
from hsparse.format.selections.select_syntax import format_select, parse_select
from hsparse.format.selections.selection import Selection
from hsparse.format.structured.region import decode_region, encode_region

Select: TypeAlias = str | Selection | None
"""A selection: `"[0:100,5,[1,3]]"` in the syntax of the REST API, a `Selection`, or None for all."""
LAYOUT = {"class": "H5D_STRUCT_CHUNK", "flags": ["H5D_SPARSE_DATA"]}
UNLIMITED = "H5S_UNLIMITED"
LONG_SELECT = 2048
"""Characters beyond which a selection is sent in the body: servers accept about 8000 in a URL."""
T = TypeVar("T")


class SparseDataset:
    """A sparse dataset on a server. `coords` are (n, rank) uint64, one row for each element, `values` are (n,).

    Every write is durable when the method returns. `shape` is the last known extent; `refresh` asks for it.
    All methods raise the server's `HsparseError`. Threads may share a dataset, forked processes too; a pickle has the
    credentials of its `Connection`.
    """

    def __init__(self, connection: Connection, record: Json) -> None:
        """Take a dataset's record, as `GET /datasets/{id}` answers; `BadRequest` if it is not sparse."""
        layout = record.get("layout") or record.get("creationProperties", {}).get("layout") or {}
        if not set(LAYOUT["flags"]) <= set(layout.get("flags") or ()):
            raise BadRequest(f"{record['id']} is not a sparse dataset; read it with a dense client.")
        self.connection = connection
        self.id: str = record["id"]
        self.dtype = dtype_of(record["type"])
        self.chunk: tuple[int, ...] = tuple(layout["dims"])
        self.shape: tuple[int, ...] = tuple(record["shape"]["dims"])

    @classmethod
    def create(
        cls,
        connection: Connection,
        path: str,
        shape: Sequence[int],
        dtype: np.dtype[Any] | type | str,
        chunk: Sequence[int],
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
        properties: Json = {"layout": LAYOUT | {"dims": list(chunk)}, "filters": list(filters)}
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

    def refresh(self) -> tuple[int, ...]:
        """Ask the server for the extent, which others may have changed, and return it."""
        extent = tuple(self.connection.json("GET", self._path("shape"))["shape"]["dims"])
        self.shape = extent
        return extent

    def write(self, coords: ArrayLike, values: ArrayLike, *, drop_fill: bool = False) -> None:
        """Define the elements at `coords`; of an element named twice the last value counts.

        `drop_fill` leaves out elements that equal the fill value.
        """
        places = np.asarray(coords)
        column = np.ascontiguousarray(values, self.dtype)

        def send(extent: tuple[int, ...]) -> None:
            body = encode_region(Points(extent, places), column)
            self.connection.json("PUT", self._path("value"), body, sparse=1, drop_fill=drop_fill or None)

        self._in_current_extent(send)

    def write_region(self, select: Select, values: ArrayLike, *, drop_fill: bool = False) -> None:
        """Define every selected element: `values` have the selection's shape, or are one for all."""
        array = np.ascontiguousarray(values, self.dtype)
        one = 1 if array.size == 1 else None
        self.connection.json(
            "PUT",
            self._path("value"),
            array.tobytes(),
            select=_text(select),
            element_count=one,
            drop_fill=drop_fill or None,
        )

    def read(self, select: Select = None) -> tuple[NDArray[np.uint64], NDArray[Any]]:
        """Return the defined elements of the selection: coordinates and values.

        The order is chunk after chunk, row-major inside each.
        """
        data = self._get_value(_text(select), sparse=True)
        try:
            selection, values = decode_region(data, self.dtype)
        except Corrupt as error:
            raise Corrupt(f"The answer about {self.id} is damaged: {error.message}") from error
        return selection.coords(), values

    def read_dense(self, select: Select = None) -> NDArray[Any]:
        """Return every selected value, the fill value where undefined, in the selection's shape."""
        text = _text(select)

        def get(extent: tuple[int, ...]) -> NDArray[Any]:
            shape = parse_select(text, extent).shape
            values: NDArray[Any] = np.frombuffer(self._get_value(text), self.dtype)
            if values.size != prod(shape):
                raise BadRequest(f"The extent of {self.id} is not {list(extent)} any more; read again.")
            return values.reshape(shape)

        return self._in_current_extent(get)

    def read_points(self, coords: ArrayLike) -> NDArray[Any]:
        """Return the values (n,) at `coords` in their order, the fill value where undefined."""
        body = self._points(coords).astype("<u8").tobytes()
        return np.frombuffer(self.connection.binary("POST", self._path("value"), body), self.dtype)

    def defined(self, select: Select = None) -> NDArray[np.uint64]:
        """Return the coordinates of the defined elements of the selection, in the order of `read`."""
        data = self.connection.binary("GET", self._path("defined"), select=_text(select))
        return decode_selection(data).coords()

    def count(self, select: Select = None) -> int:
        """Return how many of the selected elements are defined, without fetching coordinates."""
        answer = self.connection.json("GET", self._path("defined"), select=_text(select), count_only=1)
        return int(answer["count"])

    def erase(self, select: Select = None) -> None:
        """Make the selected elements undefined."""
        self.connection.json("POST", self._path("erase"), {"select": _text(select) or "[...]"})

    def erase_points(self, coords: ArrayLike) -> None:
        """Make the elements at `coords` undefined."""
        self.connection.json("POST", self._path("erase"), {"points": self._points(coords).tolist()})

    def resize(self, shape: Sequence[int]) -> None:
        """Set the extent. Shrinking erases what falls outside: growing again does not bring it back."""
        self.connection.json("PUT", self._path("shape"), {"shape": list(shape)})
        self.shape = tuple(shape)

    def storage(self) -> tuple[int, int]:
        """Return the number of stored chunks, and their bytes."""
        record = self.connection.json("GET", f"/datasets/{self.id}", verbose=1)
        return int(record["num_chunks"]), int(record["allocated_size"])

    def _path(self, what: str) -> str:
        return f"/datasets/{self.id}/{what}"

    def _get_value(self, select: str | None, sparse: bool | None = None) -> bytes:
        path = self._path("value")
        if len(select or "") <= LONG_SELECT:
            return self.connection.binary("GET", path, select=select, sparse=sparse)
        return self.connection.binary("POST", path, {"select": select}, sparse=sparse)

    def _points(self, coords: ArrayLike) -> NDArray[np.uint64]:
        return self._in_current_extent(lambda extent: Points(extent, np.asarray(coords)).coords())

    def _in_current_extent(self, work: Callable[[tuple[int, ...]], T]) -> T:
        """Return `work(extent)` for the last known extent; repeat it once after a `BadRequest`, if that has changed.

        A bad request changes nothing, so it can be repeated. Other threads may set `shape` meanwhile.
        """
        extent = self.shape
        try:
            return work(extent)
        except BadRequest:
            current = self.refresh()
            if current == extent:
                raise
        return work(current)


def _text(select: Select) -> str | None:
    return select if select is None or isinstance(select, str) else format_select(select)
