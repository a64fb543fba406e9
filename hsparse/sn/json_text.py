"""JSON of answers, with the floats that JSON has no word for as Python reads them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import orjson


def encode_floats(value: Any) -> bytes:
    """Return JSON in which floats that are not finite are `NaN` and `Infinity`, as Python reads them.

    Arrays of numbers are allowed in `value`.
    """
    body = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    if b"null" in body:  # what orjson makes of them; without one there is none, and it is nine times as fast
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=np.ndarray.tolist)
        body = text.encode()
    return body


def encode_members(members: dict[str, Any]) -> bytes:
    """Return the members of a JSON object, without its braces, as `encode_floats` does; several are fastest at once.

    Those that are bytes are JSON already, and then all are.
    """
    if any(isinstance(item, bytes) for item in members.values()):
        return b",".join(orjson.dumps(name) + b":" + item for name, item in members.items())
    body = orjson.dumps(members, option=orjson.OPT_SERIALIZE_NUMPY)
    if b"null" not in body:
        return body[1:-1]
    return b",".join(encode_floats(name) + b":" + encode_floats(item) for name, item in members.items())
