"""Numbers that Arrow has, and numbers of one type as another."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest

NUMBERS = frozenset({"i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"})


def is_number(dtype: np.dtype[Any]) -> bool:
    """Say whether Arrow has numbers of the type, in the machine's byte order."""
    return dtype.names is None and dtype.subdtype is None and dtype.str[1:] in NUMBERS


def as_numbers(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a column's numbers as a dataset's, in the machine's byte order; `BadRequest` where they do not fit."""
    if values.ndim != 1 or not np.can_cast(values.dtype, dtype, "same_kind"):
        raise BadRequest(f"Column value has the type {values.dtype}, which does not fit {dtype}.")
    cast = values.astype(dtype.newbyteorder("="))
    if dtype.kind in "iu" and not np.array_equal(cast, values):
        raise BadRequest(f"Column value has numbers that do not fit {dtype}.")
    return cast
