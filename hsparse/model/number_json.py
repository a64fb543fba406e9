"""JSON of numbers and of other elements of a fixed size, as arrays at once.

Tests: tests/sn/values/media/test_value_json.py, tests/sn/values/test_values.py.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from h5json.array_util import jsonToArray
from numpy.typing import NDArray

from hsparse.errors import BadRequest
from hsparse.model.json_values import array_json


def numbers_from_json(value: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return JSON numbers in `shape`, or one for all; `BadRequest` for what does not fit."""
    size = prod(shape)
    dims = shape
    if not isinstance(value, list):
        dims = () if size != 1 else shape
        value = value if not dims else [value]
    try:
        _check_fit(value, dtype)
        with np.errstate(over="raise", invalid="raise"):
            array: NDArray[Any] = np.asarray(jsonToArray(dims, dtype, value))
    except (ValueError, TypeError, KeyError, IndexError, ArithmeticError) as error:
        raise BadRequest(f"The value does not fit {prod(dims)} elements of type {dtype}: {error}.") from error
    if array.dtype != dtype or array.size not in (1, size):
        raise BadRequest(f"The value has {array.size} elements; {size} are selected.")
    return array.reshape(shape) if array.size == size else array.reshape(1)


def _check_fit(value: Any, dtype: np.dtype[Any]) -> None:
    """Raise `ValueError` for fractions for integers, which numpy would cut to fit."""
    natural = np.array(value)
    if dtype.kind in "iu" and natural.size and natural.dtype.kind not in "iub":
        raise ValueError(f"{natural.dtype} values are not integers")


def number_json(values: NDArray[Any]) -> Any:
    """Return values as JSON has them, see `hsparse.model.json_values`.

    Plain numbers stay an array, which is written many times faster than a list.
    """
    if values.dtype.kind in "iufb" and values.dtype.names is None:
        if not values.ndim:
            return values.item()
        # As float64, whose digits Python's own floats have: orjson would write the fewest that tell a float32.
        kind = np.dtype(np.float64) if values.dtype.kind == "f" else values.dtype.newbyteorder("=")
        return np.ascontiguousarray(values, kind)
    return array_json(values)


def is_finite(values: NDArray[Any]) -> bool:
    """Say whether no float, in whatever field, is NaN or infinite."""
    if values.dtype.names is not None:
        return all(is_finite(values[name]) for name in values.dtype.names)
    return values.dtype.kind not in "fc" or bool(np.isfinite(values).all())
