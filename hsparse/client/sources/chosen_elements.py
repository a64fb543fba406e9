"""Choose, at the first read, whether a dataset's values are read from the server or directly from the store.

Importing the code for direct reads takes as long as importing the rest of the client, and small reads do not need it.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.client.connection import Connection, Json
from hsparse.client.indexing.places import has_lower_bounds
from hsparse.client.memory_limit import ResultLimit
from hsparse.client.sources.elements import FEW_ELSEWHERE, Elements, ValueSource
from hsparse.client.sources.http_elements import HttpElements
from hsparse.client.sparse.compressed_rows import CompressedRows
from hsparse.format.selections.points import Orthogonal, Selection
from hsparse.optional_module import OptionalModule

DIRECT_SOURCE = OptionalModule("hsparse.client.integrations.direct.direct_source")
MAX_SERVER_DECODED_ELEMENTS = 1 << 12
"""If `direct` is None, the server decodes selections of up to this many elements, defined or not."""


class ChosenElements:
    """The `ValueSource` that `connection.direct` chooses for the dataset of a record."""

    def __init__(self, connection: Connection, record: Json, dtype: np.dtype[Any]) -> None:
        self._connection = connection
        self._record = record
        self._server = HttpElements(connection, record["id"], dtype)

    def defined_elements(self, selection: Selection, limit: ResultLimit | None = None) -> Elements:
        """See `ValueSource`."""
        return self._for(selection).defined_elements(selection, limit)

    def compressed_rows(
        self, selection: Orthogonal, limit: ResultLimit | None = None
    ) -> CompressedRows | None:
        """See `ValueSource`."""
        return self._for(selection).compressed_rows(selection, limit)

    def count_all(self, extent: tuple[int, ...]) -> int | None:
        """See `ValueSource`."""
        return self.chosen.count_all(extent)

    def dense_values(self, selection: Selection) -> NDArray[Any]:
        """See `ValueSource`."""
        return self._for(selection).dense_values(selection)

    @cached_property
    def chosen(self) -> ValueSource:
        """The source of reads of more than a few elements."""
        direct = self._connection.direct
        if direct is False or has_lower_bounds(self._record):  # chunks may then lie across the origin
            return self._server
        found: ValueSource | None = DIRECT_SOURCE.load().direct_source(
            self._connection, self._record, direct, self._server
        )
        return found or self._server

    def _for(self, selection: Selection) -> ValueSource:
        few = MAX_SERVER_DECODED_ELEMENTS if self._connection.is_here else FEW_ELSEWHERE
        is_open = self._connection.direct is None
        return self._server if is_open and selection.size <= few else self.chosen
