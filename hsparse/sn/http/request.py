"""JSON bodies as stock clients send them: lists too, and numbers that JSON does not have."""

from __future__ import annotations

import gc
import json
from typing import Any

import orjson

from hsparse.errors import BadRequest, TooLarge
from hsparse.sn.context import Context

MAX_DEPTH = 240
"""How deep a body may be nested: orjson writes 254 levels, and a record puts a few around what it keeps."""


LARGE = 1024 * 1024
MOST_JSON = 32 * 1024 * 1024
"""The most bytes of JSON, sent or asked for: nothing else is answered while it is parsed, a second or two."""


async def read_json(context: Context) -> Any:
    """Return the body's JSON value, None when it is empty; `NaN` and `Infinity` are floats, as in Python.

    Python clients (h5pyd) write these for floats that are not finite.
    """
    data = await context.body()
    if len(data) > MOST_JSON:
        raise TooLarge(
            f"A JSON body can have {MOST_JSON} bytes, not {len(data)}; send values as octet-stream."
        )
    if not data.strip():
        return None
    try:
        value = _parse(data)
        if data.count(b"[") + data.count(b"{") > MAX_DEPTH:
            _check_storable(value)
        return value
    except orjson.JSONDecodeError as error:
        if b"NaN" not in data and b"Infinity" not in data:
            raise BadRequest(f"The body is not valid JSON: {error}.") from error
    try:
        value = json.loads(data)
    except RecursionError as error:
        raise BadRequest("The body is nested too deeply.") from error
    except ValueError as error:
        raise BadRequest(f"The body is not valid JSON: {error}.") from error
    _check_storable(value)
    return value


def _parse(data: bytearray) -> Any:
    """Parse JSON; of a large body without the garbage collector.

    It would look again and again at the lists that are just being made: two thirds of the time for a million
    points of two coordinates.
    """
    if len(data) < LARGE or not gc.isenabled():
        return orjson.loads(data)
    gc.disable()
    try:
        return orjson.loads(data)
    finally:
        gc.enable()


def _check_storable(value: Any) -> None:
    """Raise `BadRequest` for what can be read and never be written again, to the store or in an answer.

    That is nesting beyond `MAX_DEPTH`, and what `json` reads and JSON in UTF-8 does not have: lone
    surrogates, and integers beyond 64 bits.
    """
    for _ in range(254 - MAX_DEPTH):
        value = [value]
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        raise BadRequest(f"The body cannot be kept as JSON: {error}.") from error


async def read_json_object(context: Context) -> dict[str, Any]:
    """Return the body as a JSON object, `{}` when it is empty; `BadRequest` when it is none."""
    value = await read_json(context)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadRequest("The body must be a JSON object.")
    return value


def text_list(body: dict[str, Any], key: str) -> list[str] | None:
    """Return a list of strings in a body, None when it is not given."""
    value = body.get(key)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise BadRequest(f"{key} must be a list of strings.")
    return value
