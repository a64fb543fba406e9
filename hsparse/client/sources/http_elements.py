"""Elements of a sparse dataset from its server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hsparse.client.connection import Connection
from hsparse.client.errors import InvalidValue
from hsparse.client.http.answers import taking
from hsparse.client.progress import receive_into, received
from hsparse.client.sources.elements import Elements
from hsparse.client.sources.selection_request import open_values, read_values
from hsparse.client.sparse.compressed_rows import CompressedRows
from hsparse.errors import Corrupt
from hsparse.format.buffer import byte_view
from hsparse.format.selections.selection import Orthogonal, Selection
from hsparse.optional_module import OptionalModule

if TYPE_CHECKING:
    from hsparse.format.arrow_stream import Column

REGION = OptionalModule("hsparse.format.structured.region")
STREAM = OptionalModule("hsparse.format.arrow_stream")
"""Imported when they are used: a first value should not wait for them."""
ARROW = "application/vnd.apache.arrow.stream"
SMALL = 1 << 12
"""Elements of a selection whose answer is one structured chunk: it is made in less time than an Arrow stream.

A larger answer is a stream: it has no limit on its size, and took a quarter of the time for 3 million elements.
"""


class HttpElements:
    """An `ValueSource` that asks the server, by one request for a selection."""

    def __init__(self, connection: Connection, id: str, dtype: np.dtype[Any]) -> None:
        self._connection = connection
        self._id = id
        self._dtype = dtype

    def defined_elements(self, selection: Selection) -> Elements:
        """See `ValueSource`. `InvalidValue` if elements beyond the extent are found: others have extended it."""
        try:
            found = (
                self._few(selection)
                if selection.size <= SMALL
                else self._connection.repeated(lambda: self._many(selection))
            )
        except Corrupt as error:
            raise Corrupt(f"The answer about {self._id} is damaged: {error.message}") from error
        if not found.fit(selection.extent):
            raise self._changed(selection)
        return found

    def _few(self, selection: Selection) -> Elements:
        data = bytearray(read_values(self._connection, self._id, selection, sparse=True))
        found, values = REGION.load().decode_region(data, self._dtype)
        return Elements(tuple(found.coords().T), values)

    def _many(self, selection: Selection) -> Elements:
        with open_values(self._connection, self._id, selection, ARROW, sparse=True) as answer:
            rank, advance = len(selection.extent), received()
            parts = []
            for _, columns in STREAM.load().stream_batches(taking(answer)):
                parts.append(arrow_elements(columns, rank, self._dtype))
                advance(parts[-1].values.nbytes)
            answer.read()  # the end, after which the connection can be kept
        return Elements.concatenate(parts)

    def compressed_rows(self, selection: Orthogonal) -> CompressedRows | None:
        """See `ValueSource`."""
        return None

    def count_all(self, extent: tuple[int, ...]) -> int | None:
        """See `ValueSource`."""
        return None

    def dense_values(self, selection: Selection) -> NDArray[Any]:
        """See `ValueSource`; `InvalidValue` if all elements are selected and the extent has changed."""
        values = np.empty(selection.shape, self._dtype)

        def receive() -> bool:
            with open_values(self._connection, self._id, selection) as answer:
                got = receive_into(answer, byte_view(values), received())
                return got == values.nbytes and not answer.read()

        if not self._connection.repeated(receive):
            raise self._changed(selection)
        return values

    def _changed(self, selection: Selection) -> InvalidValue:
        return InvalidValue(f"The extent of {self._id} is not {list(selection.extent)} any more; read again.")


def arrow_elements(columns: dict[str, Column], rank: int, dtype: np.dtype[Any]) -> Elements:
    """Return the elements in a batch of an Arrow stream; `Corrupt` if it has not the columns of elements of `dtype`."""
    try:
        places = [columns[f"dim_{dim}"].values for dim in range(rank)]
        values = columns["value"].values
        if values is None or any(place is None or place.dtype.kind != "u" for place in places):
            raise ValueError("a column has another type")
        if values.ndim == 2:  # the bytes of elements that are no numbers
            values = values.reshape(-1).view(dtype)
        elif values.dtype != dtype.newbyteorder("<"):
            raise ValueError("the values have another type")
    except (KeyError, ValueError) as error:
        raise Corrupt(f"The columns of its Arrow stream are not those of elements ({error}).") from error
    return Elements(tuple(place for place in places if place is not None), values.astype(dtype, copy=False))
