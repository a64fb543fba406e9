"""Values as JSON answers have them."""

from __future__ import annotations

from typing import Any

import numpy as np
from aiohttp import web
from numpy.typing import NDArray

from hsparse.model.json_form import array_json
from hsparse.sn.context import Context
from hsparse.sn.http.response import respond, respond_floats


def respond_values(
    context: Context, answer: dict[str, Any], values: NDArray[Any], dtype: np.dtype[Any] | None = None
) -> web.Response:
    """Answer with `answer` and, under `value`, the values; `dtype` is the elements' type where it may be an array's.

    Floats that are not finite are as `respond_shown` has them.
    """
    values = typed(values, dtype)
    answer = answer | {"value": json_form(values)}
    return respond(answer) if is_finite(values) else respond_shown(context, answer)


def respond_shown(context: Context, answer: dict[str, Any]) -> web.Response:
    """Answer with JSON in which floats that are not finite are `NaN` and `Infinity`, as Python writes and reads them.

    With `ignore_nan` in the request they are null, as JSON has it.
    """
    return respond(answer) if context.flag("ignore_nan") else respond_floats(answer)


def typed(values: NDArray[Any], dtype: np.dtype[Any] | None) -> NDArray[Any]:
    """Return values as their type has them: of an array type, opaque until then, each is an array."""
    if dtype is None or dtype.subdtype is None:
        return values
    return np.ndarray(values.shape, dtype, np.ascontiguousarray(values))


def json_form(values: NDArray[Any]) -> Any:
    """Return values as JSON has them, see `hsparse.model.json_form`.

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
