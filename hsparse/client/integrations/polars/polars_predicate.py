"""Which coordinates a predicate of polars can hold for, found out without reading its form.

Polars promises nothing about how it writes an expression down, so nothing is parsed: a predicate is taken apart where
`(a & b).meta.eq(predicate)`, and a part that needs one coordinate alone is evaluated by polars at every value that this
coordinate can have: whether it holds depends on the row alone, else polars keeps it to itself. What is not understood
restricts nothing: the predicate is applied to what is read in any case.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.optional_module import OptionalModule

POLARS = OptionalModule("polars", "polars")
LONGEST = 1 << 26
"""The longest dimension whose values are tried."""
PIECE = 1 << 20
"""Values that are tried at a time."""


def allowed_places(
    predicate: Any, names: Sequence[str], extent: Sequence[int], dtypes: Sequence[np.dtype[Any]]
) -> list[NDArray[np.bool_] | None]:
    """Return for each dimension the indices that the predicate can hold for, as a mask; None for all.

    `names` are the columns of the dimensions, `dtypes` their types.
    """
    masks: list[NDArray[np.bool_] | None] = [None] * len(extent)
    for part in _conjunction(predicate):
        roots = set(part.meta.root_names())
        if len(roots) != 1 or not roots <= set(names):
            continue
        dim = names.index(roots.pop())
        mask = _tried(part, names[dim], extent[dim], dtypes[dim])
        if mask is not None:
            known = masks[dim]
            masks[dim] = mask if known is None else known & mask
    return masks


def _conjunction(predicate: Any) -> Iterator[Any]:
    """Yield expressions that all have to hold where the predicate does."""
    parts = predicate.meta.pop()
    if len(parts) == 2 and any((a & b).meta.eq(predicate) for a, b in (parts, parts[::-1])):
        for part in parts:
            yield from _conjunction(part)
    else:
        yield predicate


def _tried(part: Any, name: str, length: int, dtype: np.dtype[Any]) -> NDArray[np.bool_] | None:
    """Return where an expression of one column holds, of 0 to `length` - 1; None if it cannot be told."""
    if length > LONGEST:
        return None
    polars = POLARS.load()
    mask = np.zeros(length, np.bool_)
    for start in range(0, length, PIECE):
        places = np.arange(start, min(start + PIECE, length), dtype=dtype)
        try:
            found = polars.DataFrame({name: places}).select(part).to_series()
        except polars.exceptions.PolarsError:  # raised again where the predicate is applied to what is read
            return None
        if found.dtype != polars.Boolean or len(found) != len(places):
            return None
        mask[start : start + len(places)] = found.fill_null(False).to_numpy()
    return mask


def plain_series(name: str, values: NDArray[Any]) -> Any:
    """Return a column of polars; compounds are structs."""
    polars = POLARS.load()
    if values.dtype.names is not None:
        fields = [plain_series(field, values[field]) for field in values.dtype.names]
        return polars.DataFrame(fields).to_struct(name)
    native = values.astype(values.dtype.newbyteorder("="), copy=False)
    return polars.Series(name, np.ascontiguousarray(native))
