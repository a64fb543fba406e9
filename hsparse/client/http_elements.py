"""Elements of a sparse dataset from its server."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.client.connection import Connection
from hsparse.client.elements import Elements
from hsparse.client.errors import InvalidValue
from hsparse.client.selection_request import read_values
from hsparse.errors import Corrupt, TooLarge
from hsparse.format.selections.axis import take
from hsparse.format.selections.selection import Boxes, Orthogonal, Points, Selection
from hsparse.format.structured.region import decode_region

SMALL = 1 << 16
"""Elements of a selection that is not divided: what is too large then is something else."""


class HttpElements:
    """An `ElementSource` that asks the server, by one request for a selection.

    Only if the answer would be larger than the server's limit, the selection is divided, and its parts are asked for.
    """

    def __init__(self, connection: Connection, id: str, dtype: np.dtype[Any]) -> None:
        self._connection = connection
        self._id = id
        self._dtype = dtype

    def defined_elements(self, selection: Selection) -> Elements:
        """See `ElementSource`. `InvalidValue` if all elements are selected and the extent has changed."""
        try:
            data = read_values(self._connection, self._id, selection, sparse=True)
        except TooLarge:
            if selection.size <= SMALL:
                raise
            return Elements.concatenate([self.defined_elements(part) for part in halves(selection)])
        try:
            found, values = decode_region(data, self._dtype)
        except Corrupt as error:
            raise Corrupt(f"The answer about {self._id} is damaged: {error.message}") from error
        if found.extent != selection.extent and selection.is_all:
            raise self._changed(selection)
        return Elements(tuple(found.coords().T), values)

    def dense_values(self, selection: Selection) -> NDArray[Any]:
        """See `ElementSource`; `InvalidValue` if all elements are selected and the extent has changed."""
        values: NDArray[Any] = np.frombuffer(read_values(self._connection, self._id, selection), self._dtype)
        if values.size != selection.size:
            raise self._changed(selection)
        return values.reshape(selection.shape)

    def _changed(self, selection: Selection) -> InvalidValue:
        return InvalidValue(f"The extent of {self._id} is not {list(selection.extent)} any more; read again.")


def halves(selection: Selection) -> list[Selection]:
    """Return two parts of a selection of two elements or more, divided along its first dimension that can be."""
    if isinstance(selection, Points):
        middle = selection.size // 2
        rows = (selection.coordinates[:middle], selection.coordinates[middle:])
        return [Points.trusted(selection.extent, part) for part in rows]
    corners = selection.bounds()
    assert corners is not None
    if isinstance(selection, Boxes):
        dim = next(dim for dim, (low, high) in enumerate(zip(*corners, strict=True)) if high - low > 1)
        low, high = corners[0][dim], corners[1][dim]
        middle = (low + high) // 2
        return [
            selection.clip(
                tuple(first if at == dim else 0 for at in range(len(selection.extent))),
                tuple(last if at == dim else length for at, length in enumerate(selection.extent)),
            )
            for first, last in ((low, middle), (middle, high))
        ]
    dim = next(dim for dim, length in enumerate(selection.shape) if length > 1)
    axis, size = selection.axes[dim], selection.shape[dim]
    return [
        Orthogonal.trusted(
            selection.extent, (*selection.axes[:dim], take(axis, first, last), *selection.axes[dim + 1 :])
        )
        for first, last in ((0, size // 2), (size // 2, size))
    ]
