"""Queries over data that stays in files: whoever owns a piece reads it, and the service node looks for answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.format.fields import pick_fields
from hsparse.format.kinds.chunk_kind import Found
from hsparse.format.query import bind_query


class LinkedQuestion:
    """A query with what is asked about its answers, see `FindElements`; `BadRequest` when it does not fit the type."""

    def __init__(
        self, query: str, dtype: np.dtype[Any], limit: int, fields: Sequence[str], places_only: bool
    ) -> None:
        self._query = bind_query(query, dtype)
        self._limit = limit
        self._fields = fields
        self._places_only = places_only

    def answer(self, values: NDArray[Any]) -> Found:
        """Return what is found among the values of one part's selection."""
        values = values.reshape(-1)
        positions = np.flatnonzero(self._query.mask(values)).astype(np.uint32)
        if self._limit:
            positions = positions[: self._limit]
        rows = values[:0] if self._places_only else values[positions]
        return Found(positions, pick_fields(rows, self._fields))
