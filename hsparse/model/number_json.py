"""JSON of numbers and of other elements of a fixed size, as arrays at once."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest
from hsparse.model.element import Fixed
from hsparse.model.json_values import array_json, from_json
from hsparse.model.vlen_array import VlenArray


def numbers_from_json(value: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return JSON numbers in `shape`, or one for all; `BadRequest` for what does not fit."""
    size = prod(shape)
    array = _plain_numbers(value, dtype)
    if array is None:  # names of floats, nulls, or what does not fit
        found = from_json(value, shape if isinstance(value, list) or size == 1 else (), Fixed(dtype))
        assert not isinstance(found, VlenArray)
        array = found
    if array.size != size and (array.size != 1 or isinstance(value, list)):
        raise BadRequest(f"The value has {array.size} elements; {size} are selected.")
    return array.reshape(shape) if array.size == size else array.reshape(1)


def _plain_numbers(value: Any, dtype: np.dtype[Any]) -> NDArray[Any] | None:
    """Return lists of numbers as an array of `dtype`; None for other values, and for numbers that it does not have."""
    try:
        natural = np.array(value)
    except ValueError:
        return None
    if natural.dtype.kind not in ("iuf" if dtype.kind == "f" else "iu"):
        return None
    if dtype.kind == "f":
        try:
            with np.errstate(over="raise", invalid="raise"):
                return natural.astype(dtype)
        except FloatingPointError:
            return None
    limits = np.iinfo(dtype)
    if natural.size and (int(natural.min()) < limits.min or int(natural.max()) > limits.max):
        return None
    return natural.astype(dtype)


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
