"""Numbers in Arrow: their types, and numbers of one type as another."""

from __future__ import annotations

from typing import Any

import nanoarrow as na
import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest

TYPES: dict[str, Any] = {
    "i1": na.int8,
    "i2": na.int16,
    "i4": na.int32,
    "i8": na.int64,
    "u1": na.uint8,
    "u2": na.uint16,
    "u4": na.uint32,
    "u8": na.uint64,
    "f2": na.float16,
    "f4": na.float32,
    "f8": na.float64,
}


def number_type(dtype: np.dtype[Any]) -> Any:
    """Return the Arrow type of a number, None for anything else."""
    make = TYPES.get(dtype.str[1:]) if dtype.names is None and dtype.subdtype is None else None
    return None if make is None else make()


def as_numbers(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a column's numbers as a dataset's, in the machine's byte order; `BadRequest` where they do not fit."""
    if values.ndim != 1 or not np.can_cast(values.dtype, dtype, "same_kind"):
        raise BadRequest(f"Column value has the type {values.dtype}, which does not fit {dtype}.")
    cast = values.astype(dtype.newbyteorder("="))
    if dtype.kind in "iu" and not np.array_equal(cast, values):
        raise BadRequest(f"Column value has numbers that do not fit {dtype}.")
    return cast
