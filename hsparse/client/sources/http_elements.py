"""Read the elements of a dataset from its server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.client.connection import Connection
from hsparse.client.errors import InvalidValue
from hsparse.client.http.answers import taking
from hsparse.client.memory_limit import ResultLimit
from hsparse.client.progress import receive_into, received
from hsparse.client.sources.elements import Elements
from hsparse.client.sources.selection_request import open_values, read_values
from hsparse.client.sparse.compressed_rows import CompressedRows
from hsparse.errors import Corrupt
from hsparse.format.buffer import byte_view
from hsparse.format.selections.points import Orthogonal, Selection
from hsparse.optional_module import OptionalModule

REGION = OptionalModule("hsparse.format.structured.region")
STREAM = OptionalModule("hsparse.format.arrow_stream")
ROOM = OptionalModule("hsparse.client.sources.element_room")
"""Modules that are imported on use, so that reading a first value does not wait for them."""
ARROW = "application/vnd.apache.arrow.stream"
MAX_CHUNK_ELEMENTS = 1 << 12
"""Selections of up to this many elements are requested as one structured chunk, which is faster than a stream.

A larger answer is a stream, which has no size limit and took a quarter of the time for 3 million elements.
"""


UNASKED_DIVISOR = 16
"""After 1/16 of the elements that a result may have, a stream is aborted and the server counts the elements."""


class _ManyCome(Exception):
    """Raised if the number of elements received suggests that their total may exceed the limit."""


class HttpElements:
    """A `ValueSource` that reads a selection from the server by one request."""

    def __init__(self, connection: Connection, id: str, dtype: np.dtype[Any]) -> None:
        self._connection = connection
        self._id = id
        self._dtype = dtype

    def defined_elements(self, selection: Selection, limit: ResultLimit | None = None) -> Elements:
        """See `ValueSource`; raise `InvalidValue` for elements beyond the known extent, if it has grown."""
        try:
            found = (
                self._few(selection)
                if selection.size <= MAX_CHUNK_ELEMENTS
                else self._connection.repeated(lambda: self._many(selection, limit))
            )
        except _ManyCome:
            assert limit is not None
            limit.check(selection.size)
            return self.defined_elements(selection)
        except Corrupt as error:
            if error.status is not None:  # an error of the server
                raise
            raise Corrupt(f"The answer about {self._id} is damaged: {error.message}") from error
        if not found.fit(selection.extent):
            raise self._changed(selection)
        return found

    def _few(self, selection: Selection) -> Elements:
        data = bytearray(read_values(self._connection, self._id, selection, sparse=True))
        found, values = REGION.load().decode_region(data, self._dtype)
        return Elements(tuple(found.coords().T), values)

    def _many(self, selection: Selection, limit: ResultLimit | None) -> Elements:
        """Receive a stream of elements; raise `_ManyCome` when so many were received that a count must come first.

        Counting must wait for the end of the stream, because the server may refuse a second request of the same user.
        """
        with open_values(self._connection, self._id, selection, ARROW, sparse=True) as answer:
            advance = received()
            room = ROOM.load().ElementRoom(answer, selection.size, self._connection.max_bytes)
            for length, columns in STREAM.load().stream_batches(taking(answer), room):
                room.add(length, columns)
                if limit is not None and not limit.allows(UNASKED_DIVISOR * room.count):
                    raise _ManyCome
                advance(length * self._dtype.itemsize)
            answer.read()  # reading to the end lets the connection be reused
        return arrow_elements(room.result(), len(selection.extent), self._dtype)

    def compressed_rows(
        self, selection: Orthogonal, limit: ResultLimit | None = None
    ) -> CompressedRows | None:
        """See `ValueSource`."""
        return None

    def count_all(self, extent: tuple[int, ...]) -> int | None:
        """See `ValueSource`."""
        return None

    def dense_values(self, selection: Selection) -> NDArray[Any]:
        """See `ValueSource`; raise `InvalidValue` if the extent has changed, so that the size of the answer differs."""
        values = np.empty(selection.shape, self._dtype)

        def receive() -> bool:
            with open_values(self._connection, self._id, selection) as answer:
                got = receive_into(answer, byte_view(values), received())
                return got == values.nbytes and not answer.read()

        if not self._connection.repeated(receive):
            raise self._changed(selection)
        return values

    def _changed(self, selection: Selection) -> InvalidValue:
        return InvalidValue(f"The extent of {self._id} is not {list(selection.extent)} any more: read again.")


def arrow_elements(columns: Mapping[str, NDArray[Any]], rank: int, dtype: np.dtype[Any]) -> Elements:
    """Return the elements in the columns of an Arrow stream; raise `Corrupt` for wrong columns or types."""
    try:
        places = [columns[f"dim_{dim}"] for dim in range(rank)]
        values = columns["value"]
        if any(place.dtype.kind not in "ui" for place in places):
            raise ValueError("a column has another type")
        if any(place.dtype.kind == "i" and len(place) and place.min() < 0 for place in places):
            raise ValueError("a place is negative")
        if values.ndim == 2:  # bytes of non-numeric elements
            values = values.reshape(-1).view(dtype)
        elif values.dtype != dtype.newbyteorder("<"):
            raise ValueError("the values have another type")
    except (KeyError, ValueError) as error:
        raise Corrupt(f"The columns of the Arrow stream are not columns of elements ({error}).") from error
    return Elements(tuple(places), values.astype(dtype, copy=False))
