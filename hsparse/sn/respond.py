"""The one shape of answers: JSON as stock clients expect it."""

from __future__ import annotations

import math
from typing import Any

import orjson
from aiohttp import web

from hsparse.errors import ErrorKind, HsparseError, RateLimited
from hsparse.wire.http import STATUS

JSON_TYPE = "application/json; charset=utf-8"


def respond(value: Any, status: int = 200) -> web.Response:
    """Answer with JSON; numpy scalars and arrays are allowed in `value`."""
    body = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)
    return web.Response(body=body, status=status, headers={"Content-Type": JSON_TYPE})


def respond_error(error: HsparseError, status: int | None = None) -> web.Response:
    """Answer with an error: `{"error": {"kind":..., "message":...}}`, the sentence also as the reason.

    `status` is the kind's if it is not given.
    """
    headers = {"Content-Type": JSON_TYPE}
    if error.kind in (ErrorKind.BUSY, ErrorKind.MOVED):
        headers["Retry-After"] = "1"
    if isinstance(error, RateLimited):
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after)))
    reason = "".join(c for c in error.message if 32 <= ord(c) < 127)[:200] or None
    return web.Response(
        body=orjson.dumps({"error": {"kind": error.kind.value, "message": error.message}}),
        status=STATUS[error.kind] if status is None else status,
        reason=reason,
        headers=headers,
    )
