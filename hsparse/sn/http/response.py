"""Answers: JSON as stock clients expect it, errors, and links."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import numpy as np
import orjson
from aiohttp import web

from hsparse import __version__
from hsparse.errors import Busy, ErrorKind, HsparseError, RateLimited
from hsparse.model.short_text import shorten
from hsparse.sn.http.request import RequestReader
from hsparse.wire.http import STATUS

SERVER_NAME = f"hsparse/{__version__}"
"""The header `Server` of every answer (RFC 9110, section 10.2.4)."""
JSON_HEADER = "application/json; charset=utf-8"
MAX_MESSAGE = 4096
"""The most characters of an error's sentence, which names what a client has sent."""
UNPRINTABLE = re.compile("[^ -~]")
"""What may not stand in the reason of a status line."""
Href = dict[str, str]
"""A link of an answer: `rel` and `href`."""


def respond(value: Any, status: int = 200) -> web.Response:
    """Answer with JSON; numpy scalars and arrays are allowed in `value`."""
    body = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)
    return web.Response(body=body, status=status, headers={"Content-Type": JSON_HEADER})


def respond_floats(value: Any, status: int = 200) -> web.Response:
    """Answer with JSON in which floats that are not finite are `NaN` and `Infinity`, as Python reads them."""
    return respond_encoded(encode_json(value), status)


def respond_encoded(body: bytes, status: int = 200) -> web.Response:
    """Answer with JSON that is encoded."""
    return web.Response(body=body, status=status, headers={"Content-Type": JSON_HEADER})


def respond_error(error: HsparseError, status: int | None = None) -> web.Response:
    """Answer with an error: `{"error": {"kind":..., "message":...}}`, the sentence also as the reason.

    Without `status`, it is that of the kind.
    """
    headers = {"Content-Type": JSON_HEADER}
    if error.kind in (ErrorKind.MOVED, ErrorKind.UNANSWERED):
        headers["Retry-After"] = "1"
    if isinstance(error, Busy | RateLimited):
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after)))
    message = shorten(error.message, MAX_MESSAGE)
    reason = UNPRINTABLE.sub("", message)[:200] or None
    return web.Response(
        body=orjson.dumps({"error": {"kind": error.kind.value, "message": message}}),
        status=STATUS[error.kind] if status is None else status,
        reason=reason,
        headers=headers,
    )


def encode_json(value: Any) -> bytes:
    """Return JSON in which floats that are not finite are `NaN` and `Infinity`, as Python reads them.

    Arrays of numbers are allowed in `value`.
    """
    body = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    if (
        b"null" in body
    ):  # orjson writes NaN as null; it is nine times as fast, so its result is used if it has none
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=np.ndarray.tolist)
        body = text.encode()
    return body


def encode_json_members(members: dict[str, Any]) -> bytes:
    """Return the members of a JSON object, without its braces, like `encode_json`; one call for all is fastest.

    Members of bytes are encoded JSON; then all must be.
    """
    if any(isinstance(item, bytes) for item in members.values()):
        return b",".join(orjson.dumps(name) + b":" + item for name, item in members.items())
    body = orjson.dumps(members, option=orjson.OPT_SERIALIZE_NUMPY)
    if b"null" not in body:
        return body[1:-1]
    return b",".join(encode_json(name) + b":" + encode_json(item) for name, item in members.items())


def href(reader: RequestReader, path: str, domain: str | None = None, more: str = "") -> str:
    """Return an absolute URL with `domain`, by default that of the request, and `more` parameters."""
    request = reader.request
    named = domain if domain is not None else request.query.get("domain")
    parameters = "&".join(filter(None, (named and f"domain={named}", more)))
    return f"{request.scheme}://{request.host}{path}{parameters and '?'}{parameters}"


def hrefs(reader: RequestReader, **paths: str) -> list[Href]:
    """Return `[{"rel": name, "href": URL}]` of each named path."""
    return [{"rel": rel, "href": href(reader, path)} for rel, path in paths.items()]
