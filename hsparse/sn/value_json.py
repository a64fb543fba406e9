"""Values as JSON answers have them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from aiohttp import web
from h5json.array_util import bytesArrayToList
from numpy.typing import NDArray

from hsparse.errors import BadRequest
from hsparse.sn.context import Context
from hsparse.sn.respond import JSON_TYPE, respond


def respond_values(context: Context, answer: dict[str, Any], values: NDArray[Any]) -> web.Response:
    """Answer with `answer` and, under `value`, the values.

    Floats that are not finite are `NaN` and `Infinity`, as Python writes and reads them; with `ignore_nan` in
    the request they are null, as JSON has it.
    """
    shown = json_form(values)
    if context.flag("ignore_nan") or is_finite(values):
        return respond(answer | {"value": shown})
    answer = answer | {"value": shown}
    body = json.dumps(answer, separators=(",", ":"), ensure_ascii=False, default=np.ndarray.tolist).encode()
    return web.Response(body=body, headers={"Content-Type": JSON_TYPE})


def json_form(values: NDArray[Any]) -> Any:
    """Return values as JSON has them: compound elements and strings as h5json writes them.

    Plain numbers stay an array, which is written many times faster than a list.
    """
    if values.dtype.kind in "iufb" and values.dtype.names is None:
        if not values.ndim:
            return values.item()
        # As float64, whose digits Python's own floats have: orjson would write the fewest that tell a float32.
        kind = np.dtype(np.float64) if values.dtype.kind == "f" else values.dtype.newbyteorder("=")
        return np.ascontiguousarray(values, kind)
    try:
        return bytesArrayToList(values)
    except ValueError as error:
        raise BadRequest(
            f"The values have bytes that are no text: ask for octet-stream ({error})."
        ) from error


def is_finite(values: NDArray[Any]) -> bool:
    """Say whether no float, in whatever field, is NaN or infinite."""
    if values.dtype.names is not None:
        return all(is_finite(values[name]) for name in values.dtype.names)
    return values.dtype.kind not in "fc" or bool(np.isfinite(values).all())
