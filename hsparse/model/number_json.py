"""JSON of numbers and of other elements of a fixed size, as arrays at once.

Floats that JSON has no number for: kept in records by their names, `"nan"`, `"inf"` and `"-inf"`.
"""

from __future__ import annotations

import math
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest
from hsparse.model.element import ArrayOfVlen, Compound, Element, Fixed, VlenSequence
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


NAMES = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def name_non_finite(value: Any) -> Any:
    """Return a JSON value with the floats that JSON has no number for replaced by their names."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, list | tuple):
        return [name_non_finite(part) for part in value]
    return value


def restore_non_finite(value: Any, element: Element, rank: int, *, ignore_nan: bool = False) -> Any:
    """Return a stored value, `rank` lists deep, its floats being floats again; with `ignore_nan` None instead."""
    if isinstance(element, Fixed) and element.dtype.names is None:
        if element.dtype.base.kind != "f":
            return value
        if isinstance(value, str):
            return None if ignore_nan else NAMES.get(value, value)
        return (
            [restore_non_finite(part, element, 0, ignore_nan=ignore_nan) for part in value]
            if isinstance(value, list)
            else value
        )
    if rank and isinstance(value, list):
        return [restore_non_finite(part, element, rank - 1, ignore_nan=ignore_nan) for part in value]
    parts = _parts(element)
    if parts is None or not isinstance(value, list):
        return value
    if isinstance(parts, tuple):
        return [
            restore_non_finite(part, kind, 0, ignore_nan=ignore_nan)
            for part, kind in zip(value, parts, strict=False)
        ]
    depth = len(element.dims) if isinstance(element, ArrayOfVlen) else 1
    return restore_non_finite(value, parts, depth, ignore_nan=ignore_nan)


def _parts(element: Element) -> Element | tuple[Element, ...] | None:
    """Return a compound's fields, the base of an array or sequence, or None."""
    if isinstance(element, Compound):
        return element.parts
    if isinstance(element, Fixed):
        dtype = element.dtype
        return tuple(Fixed(dtype[name]) for name in dtype.names or ())
    return element.base if isinstance(element, ArrayOfVlen | VlenSequence) else None


def has_floats(element: Element) -> bool:
    """Say whether floats are among an element's parts."""
    if isinstance(element, Fixed) and element.dtype.names is None:
        base = element.dtype
        while base.subdtype is not None:
            base = base.subdtype[0]
        return base.kind == "f" if base.names is None else has_floats(Fixed(base))
    parts = _parts(element)
    return (
        any(map(has_floats, parts)) if isinstance(parts, tuple) else parts is not None and has_floats(parts)
    )
