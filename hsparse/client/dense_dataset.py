"""Dense datasets as arrays: every element has a value, which is the fill value until the element is written."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from hsparse.client.connection import Connection, Json
from hsparse.client.dataset_extent import Side
from hsparse.client.errors import InvalidValue, as_client_errors, in_own_words
from hsparse.client.indexing.key_items import Key
from hsparse.client.indexing.places import places_param
from hsparse.client.indexing.select import ArrayKey, Region, Select
from hsparse.client.memory_limit import check_size, element_bytes
from hsparse.client.progress import Progress, show_read
from hsparse.client.reductions import ReducedDataset
from hsparse.client.sources.chosen_elements import ChosenElements
from hsparse.client.sources.selection_request import SelectionRequest, read_values
from hsparse.client.sources.upload import COORDINATE_TEXT, REQUEST_BYTES, Slab, upload
from hsparse.errors import TooLarge
from hsparse.format.selections.points import Orthogonal, Selection
from hsparse.optional_module import OptionalModule

if TYPE_CHECKING:
    from dask.array import Array

    from hsparse.client.integrations.dask.dask_array import Blocks

DASK_ARRAY = OptionalModule("hsparse.client.integrations.dask.dask_array")


class DenseDataset(ReducedDataset):
    """A dense dataset on a server; the keys of reads and writes are as in numpy: `x[0:10, -1]`, `x[[3, 1]] = 7`.

    A write is durable when the call returns.

    >>> D
    <DenseDataset /D: shape (4, 3), int64, chunks (4, 3)>
    >>> D[1:3, [0, 2]]
    array([[3, 5],
           [6, 8]])
    >>> D[0] = 7
    >>> D[:2].tolist(), len(D)
    ([[7, 7, 7], [3, 4, 5]], 4)
    """

    def __init__(self, connection: Connection, record: Json, name: str | None = None) -> None:
        """For the arguments see `Dataset`. `source` reads the values if the elements have a fixed size."""
        super().__init__(connection, record, name)
        self.source = ChosenElements(connection, record, self.type.wire)

    def __repr__(self) -> str:
        return f"<DenseDataset {self.name or self.id}: {self._extent_text()}, {self.dtype}, chunks {self.chunks}>"

    def __getitem__(self, key: Key) -> Any:
        """Return the selected values: an array, or a scalar if numpy would return a scalar.

        >>> D[-1], D[0, 1], D[[3, 0], 0]
        (array([ 9, 10, 11]), np.int64(1), array([9, 0]))
        """
        if self.is_null:
            raise InvalidValue(f"{self.name or self.id} has a null dataspace: there are no values.")
        values = self.take(ArrayKey(key))
        return values[()] if values.shape == () else values

    def take(self, select: Select) -> NDArray[Any]:
        """Return the values of a selection as an array; the selection has any of the types of `Select`.

        >>> D.take("[0:2,1]")
        array([[1],
               [4]])
        """
        return self._in_region(select, self._read)

    def __setitem__(self, key: Key, values: ArrayLike) -> None:
        """Set the selected elements to `values`, which are broadcast as in numpy.

        Large writes are split into requests of at most 32 MiB each.

        >>> D[:, 1] = [10, 20, 30, 40]
        >>> D[:2]
        array([[ 0, 10,  2],
               [ 3, 20,  5]])
        """
        array = self._codec.cast(values)

        def send(region: Region) -> None:
            selection = region.selection
            if not selection.size:
                return
            if array.size == 1 and isinstance(selection, Orthogonal):
                upload(
                    selection, np.broadcast_to(array.reshape(()), selection.shape), self.chunks, 0, self._put
                )
                return
            nbytes = element_bytes(self.dtype)
            if not isinstance(selection, Orthogonal):
                nbytes = 2 * nbytes + COORDINATE_TEXT * self.ndim  # in JSON
            upload(selection, region.collect(array), self.chunks, nbytes, self._put)

        self._in_region(ArrayKey(key), send)

    def _slab(self, block: Any, values: ArrayLike | None, count: int | None, dim: int) -> Slab:
        if values is not None or count is not None:
            raise InvalidValue(f"{self.name or self.id} is dense: append an array, omit values and count.")
        return self._whole_slab(self._codec.cast(block), dim)

    def _append_slab(self, slab: Slab, dim: int, drop_fill: bool, side: Side) -> slice:
        if drop_fill:
            raise InvalidValue(f"drop_fill is for sparse datasets: omit it for {self.name or self.id}.")
        if not slab.count:
            return self._nothing_new(dim, side)
        data, path = self.type.encode(slab.values), self._path("value")
        params = {"append": slab.count, "append_dim": dim} | self._on_side(side, "append_side")
        with in_own_words(self.id, self.name), as_client_errors():
            answer = self.connection.json("PUT", path, data, places=places_param(self.shape), **params)
        return self._grown(answer, dim)

    def _put(self, selection: Selection, values: NDArray[Any]) -> None:
        """Write values of the selection's shape in one request; raise `TooLarge` if one request cannot hold them."""
        request = SelectionRequest.of(selection, named=True)
        is_one = request.body is None and values.size > 1 and not any(values.strides)
        data = self.type.encode(values.reshape(-1)[:1] if is_one else values)
        if len(data) > REQUEST_BYTES and values.size > 1:
            raise TooLarge(f"{len(data)} bytes exceed the limit of a request: write fewer values at once.")
        if request.body is None:
            params = {
                "select": request.select,
                "places": request.places,
                "element_count": 1 if is_one else None,
            }
            self.connection.json("PUT", self._path("value"), data, **params)
            return
        named = request.body if "select" in request.body else {"points": selection.coords().tolist()}
        body = named | {"value_base64": b64encode(data).decode()}
        self.connection.json("PUT", self._path("value"), body, places=places_param(selection.extent))

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("The values are on a server, so numpy can only get a copy: omit copy=False.")
        return np.asarray(self[...], dtype)

    def to_numpy(self, key: Key = ..., *, progress: Progress = None) -> NDArray[Any]:
        """Return the selected values as an array; for `progress` see `SparseDataset.to_numpy`.

        >>> D.to_numpy(np.s_[2:, 0])
        array([6, 9])
        """
        nbytes = self.size * element_bytes(self.dtype)
        with show_read(progress, self.name or self.id, nbytes, lambda: self._nbytes(key)):
            return np.asarray(self[key])

    def to_dask(self, chunks: Blocks = None) -> Array:
        """Return the dataset as a `dask.array.Array` with blocks of the shape `chunks`, by default of about 100 MB.

        >>> array = D.to_dask(chunks=(2, 3))
        >>> array.numblocks, array[1:3].sum().compute()
        ((2, 1), np.int64(33))
        """
        if self.is_null:
            raise InvalidValue(f"{self.name or self.id} has a null dataspace: there are no values.")
        found: Array = DASK_ARRAY.load().dense_to_dask(self, chunks)
        return found

    def _nbytes(self, key: Key) -> int:
        """Return the size of the selected values in bytes."""
        return self._in_region(ArrayKey(key), lambda region: region.size) * element_bytes(self.dtype)

    def _read(self, region: Region) -> NDArray[Any]:
        check_size(region.size * element_bytes(self.dtype), self.max_bytes, region.shape)
        selection = region.selection
        if not self.type.is_vlen:
            return self.type.unpack(region.arrange(self.source.dense_values(selection)))
        data = read_values(self.connection, self.id, selection)
        return region.arrange(self.type.decode(data, (selection.size,)))
