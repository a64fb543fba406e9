"""Read vlen elements of a dataset from its server, as Python objects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.client.connection import Connection
from hsparse.client.memory_limit import ResultLimit
from hsparse.client.sources.elements import Elements
from hsparse.client.sources.http_elements import HttpElements
from hsparse.client.sources.selection_request import read_values
from hsparse.client.types.hdf5_type import Hdf5Type
from hsparse.client.types.text_compound import decode_elements
from hsparse.errors import TooLarge
from hsparse.format.plan.grid import Grid, pages
from hsparse.format.selections.points import Selection
from hsparse.format.structured.region import decode_vlen_region


class VlenElements(HttpElements):
    """`HttpElements` for vlen elements; a selection is halved if its answer would be too large.

    An Arrow stream would have no size limit, but Arrow cannot represent text that is not UTF-8.
    """

    def __init__(self, connection: Connection, id: str, kind: Hdf5Type) -> None:
        super().__init__(connection, id, kind.wire)
        self._type = kind

    def _few(self, selection: Selection) -> Elements:
        try:
            data = read_values(self._connection, self._id, selection, sparse=True)
        except TooLarge:
            return Elements.concatenate([self._few(half) for half in _halves(selection)])
        found, values = decode_vlen_region(data, self._type.element)
        return Elements(tuple(found.coords().T), decode_elements(values, self._type.element))

    def _many(self, selection: Selection, limit: ResultLimit | None) -> Elements:
        if limit is not None:
            limit.check(selection.size)
        return self._few(selection)

    def dense_values(self, selection: Selection) -> NDArray[Any]:
        """See `ValueSource`."""
        try:
            data = read_values(self._connection, self._id, selection)
        except TooLarge:
            parts = [self.dense_values(half).reshape(-1) for half in _halves(selection)]
            return np.concatenate(parts).reshape(selection.shape)
        return self._type.decode(data, selection.shape)


def _halves(selection: Selection) -> Iterator[Selection]:
    """Yield two or more parts of a selection; for a single element re-raise the exception being handled."""
    if selection.size <= 1:
        raise
    yield from pages(selection, Grid(selection.extent, selection.extent), -(-selection.size // 2))
