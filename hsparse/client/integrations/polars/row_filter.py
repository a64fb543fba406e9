"""Find the coordinates for which a predicate of polars can hold, before elements are read.

The predicate is not parsed, because polars guarantees no serialized form of expressions. A predicate is split into a
and b if `(a & b).meta.eq(predicate)`. Polars evaluates a part that uses only one coordinate at every value of that
coordinate. This is valid because polars passes only predicates whose result depends on the row alone. Other parts
restrict nothing; the predicate is applied to the rows that are read in any case.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.client.indexing.places import places_along
from hsparse.client.integrations.polars.frame_scan import POLARS

MAX_FILTERED_ROWS = 1 << 26
"""The longest dimension at whose values predicates are evaluated."""
ROWS_AT_ONCE = 1 << 20
"""The number of values at which a predicate is evaluated at a time."""


def allowed_places(
    predicate: Any, names: Sequence[str], extent: tuple[int, ...], dtypes: Sequence[np.dtype[Any]]
) -> list[NDArray[np.bool_] | None]:
    """Return, for each dimension, a mask of the places at which the predicate can hold, or None for all places.

    `names` are the columns of the dimensions, `dtypes` their types. Item 0 of a mask is at the lower bound.
    """
    masks: list[NDArray[np.bool_] | None] = [None] * len(extent)
    for part in _conjunction(predicate):
        roots = set(part.meta.root_names())
        if len(roots) != 1 or not roots <= set(names):
            continue
        dim = names.index(roots.pop())
        mask = _tried(part, names[dim], places_along(extent, dim), dtypes[dim])
        if mask is not None:
            known = masks[dim]
            masks[dim] = mask if known is None else known & mask
    return masks


def _conjunction(predicate: Any) -> Iterator[Any]:
    """Yield the expressions whose conjunction is the predicate."""
    parts = predicate.meta.pop()
    if len(parts) == 2 and any((a & b).meta.eq(predicate) for a, b in (parts, parts[::-1])):
        for part in parts:
            yield from _conjunction(part)
    else:
        yield predicate


def _tried(part: Any, name: str, own: range, dtype: np.dtype[Any]) -> NDArray[np.bool_] | None:
    """Return a mask of the places `own` at which an expression of one column holds, or None if this is unknown."""
    if len(own) > MAX_FILTERED_ROWS:
        return None
    polars = POLARS.load()
    mask = np.zeros(len(own), np.bool_)
    for start in range(0, len(own), ROWS_AT_ONCE):
        piece = own[start : start + ROWS_AT_ONCE]
        places = np.arange(piece.start, piece.stop, dtype=dtype)
        try:
            found = polars.DataFrame({name: places}).select(part).to_series()
        except polars.exceptions.PolarsError:  # raised again when the predicate is applied to the rows
            return None
        if found.dtype != polars.Boolean or len(found) != len(places):
            return None
        mask[start : start + len(places)] = found.fill_null(False).to_numpy()
    return mask
