"""Elements of variable length of a sparse dataset, from its server: as objects of Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.client.connection import Connection
from hsparse.client.memory_limit import ResultLimit
from hsparse.client.sources.elements import Elements
from hsparse.client.sources.selection_request import read_values
from hsparse.client.sparse.compressed_rows import CompressedRows
from hsparse.client.types.hdf5_type import Hdf5Type
from hsparse.client.types.text_compound import decode_elements
from hsparse.errors import Corrupt, TooLarge
from hsparse.format.plan.grid import Grid, pages
from hsparse.format.selections.points import Orthogonal, Selection
from hsparse.format.structured.region import decode_vlen_region


class VlenElements:
    """A `ValueSource` of variable-length elements; a selection is halved where an answer has no room for all of it.

    A stream would need no halves, but Arrow has no place for text that is not UTF-8.
    """

    def __init__(self, connection: Connection, id: str, kind: Hdf5Type) -> None:
        self._connection = connection
        self._id = id
        self._type = kind

    def defined_elements(self, selection: Selection, limit: ResultLimit | None = None) -> Elements:
        """See `ValueSource`."""
        if limit is not None:
            limit.check(selection.size)
        try:
            data = read_values(self._connection, self._id, selection, sparse=True)
        except TooLarge:
            return Elements.concatenate([self.defined_elements(half) for half in _halves(selection)])
        try:
            found, values = decode_vlen_region(data, self._type.element)
        except Corrupt as error:
            raise Corrupt(f"The answer about {self._id} is damaged: {error.message}") from error
        return Elements(tuple(found.coords().T), decode_elements(values, self._type.element))

    def compressed_rows(
        self, selection: Orthogonal, limit: ResultLimit | None = None
    ) -> CompressedRows | None:
        """See `ValueSource`."""
        return None

    def count_all(self, extent: tuple[int, ...]) -> int | None:
        """See `ValueSource`."""
        return None

    def dense_values(self, selection: Selection) -> NDArray[Any]:
        """See `ValueSource`."""
        try:
            data = read_values(self._connection, self._id, selection)
        except TooLarge:
            parts = [self.dense_values(half).reshape(-1) for half in _halves(selection)]
            return np.concatenate(parts).reshape(selection.shape)
        return self._type.decode(data, selection.shape)


def _halves(selection: Selection) -> Iterator[Selection]:
    """Yield two parts or more, whose values are the selection's; raise what is handled, for a single element."""
    if selection.size <= 1:
        raise
    yield from pages(selection, Grid(selection.extent, selection.extent), -(-selection.size // 2))
