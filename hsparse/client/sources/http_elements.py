"""Elements of a sparse dataset from its server."""

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
"""Imported when they are used: a first value should not wait for them."""
ARROW = "application/vnd.apache.arrow.stream"
SMALL = 1 << 12
"""Elements of a selection whose answer is one structured chunk: it is made in less time than an Arrow stream.

A larger answer is a stream: it has no limit on its size, and took a quarter of the time for 3 million elements.
"""


UNASKED_DIVISOR = 16
"""The part of the elements that a result may have that is received before the server is asked how many there are."""


class _ManyCome(Exception):
    """So many elements have come that all may be too many."""


class HttpElements:
    """An `ValueSource` that asks the server, by one request for a selection."""

    def __init__(self, connection: Connection, id: str, dtype: np.dtype[Any]) -> None:
        self._connection = connection
        self._id = id
        self._dtype = dtype

    def defined_elements(self, selection: Selection, limit: ResultLimit | None = None) -> Elements:
        """See `ValueSource`. `InvalidValue` if elements beyond the extent are found: others have extended it."""
        try:
            found = (
                self._few(selection)
                if selection.size <= SMALL
                else self._connection.repeated(lambda: self._many(selection, limit))
            )
        except _ManyCome:
            assert limit is not None
            limit.check(selection.size)
            return self.defined_elements(selection)
        except Corrupt as error:
            raise Corrupt(f"The answer about {self._id} is damaged: {error.message}") from error
        if not found.fit(selection.extent):
            raise self._changed(selection)
        return found

    def _few(self, selection: Selection) -> Elements:
        data = bytearray(read_values(self._connection, self._id, selection, sparse=True))
        found, values = REGION.load().decode_region(data, self._dtype)
        return Elements(tuple(found.coords().T), values)

    def _many(self, selection: Selection, limit: ResultLimit | None) -> Elements:
        """Receive a stream; `_ManyCome` when so much has come that the number of elements should be asked for.

        That cannot be asked in the middle of it: the server might answer no second request of the same user.
        """
        with open_values(self._connection, self._id, selection, ARROW, sparse=True) as answer:
            advance = received()
            room = ROOM.load().ElementRoom(answer, selection.size, self._connection.max_bytes)
            for length, columns in STREAM.load().stream_batches(taking(answer), room):
                room.add(length, columns)
                if limit is not None and not limit.allows(UNASKED_DIVISOR * room.count):
                    raise _ManyCome
                advance(length * self._dtype.itemsize)
            answer.read()  # the end, after which the connection can be kept
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


def arrow_elements(columns: Mapping[str, NDArray[Any]], rank: int, dtype: np.dtype[Any]) -> Elements:
    """Return the elements in columns of an Arrow stream; `Corrupt` if they are not those of elements of `dtype`."""
    try:
        places = [columns[f"dim_{dim}"] for dim in range(rank)]
        values = columns["value"]
        if any(place.dtype.kind not in "ui" for place in places):
            raise ValueError("a column has another type")
        if any(place.dtype.kind == "i" and len(place) and place.min() < 0 for place in places):
            raise ValueError("a place is negative")
        if values.ndim == 2:  # the bytes of elements that are no numbers
            values = values.reshape(-1).view(dtype)
        elif values.dtype != dtype.newbyteorder("<"):
            raise ValueError("the values have another type")
    except (KeyError, ValueError) as error:
        raise Corrupt(f"The columns of its Arrow stream are not those of elements ({error}).") from error
    return Elements(tuple(places), values.astype(dtype, copy=False))
