"""Answers: JSON in the form that HSDS's clients expect, errors, and links.

The JSON of large answers is encoded in a worker thread and in pieces, because an encoder holds the interpreter's lock
until it returns: encoding all at once would block all other threads.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, TypeAlias, TypeVar

import numpy as np
import orjson
from aiohttp import web

from hsparse.compute import MAX_INLINE_BYTES, compute
from hsparse.errors import Busy, ErrorKind, HsparseError, RateLimited
from hsparse.model.json_values import list_count
from hsparse.model.short_text import shorten
from hsparse.sn.request import JSON_HEADER, JSON_HEADERS, Request
from hsparse.wire.remote_node import STATUS

MAX_MESSAGE = 4096
"""The maximum number of characters of an error's message; a message may quote a client's text."""
PIECE_BYTES = 1 << 18
"""The maximum of JSON in bytes that `json` encodes at a time, because `json` is slow and blocks other threads."""
PIECE_ITEMS = 1 << 12
"""The maximum of list items that are encoded at a time if the list may have floats that are not finite."""
TRIED_LEVELS = 2
"""Levels of nested short lists at which the fast encoder is tried on a whole list before it is tried on each item."""
MAX_WHOLE_ITEMS = 1 << 16
"""The maximum of items of a value that the fast encoder encodes at once; larger values are encoded in pieces."""
UNPRINTABLE = re.compile("[^ -~]")
"""Characters that are removed from the reason phrase of a status line."""
Href = dict[str, str]
"""A link in the `hrefs` of an answer: `rel` and `href`."""
Encoded: TypeAlias = bytes | Callable[[], bytes]
"""JSON or, if encoding takes long, a function that returns the JSON and may be called in any thread."""


def respond_floats(value: Any, status: int = 200, items: int = 0) -> web.Response:
    """Answer with `encode_json(value, items)`; `items` is the approximate number of items in `value`."""
    return web.Response(body=encode_json(value, items), status=status, headers=JSON_HEADERS)


def respond_error(error: HsparseError, status: int | None = None) -> web.Response:
    """Answer with an error: `{"error": {"kind":..., "message":...}}`, and the message as the reason phrase."""
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


def encode_json(value: Any, items: int = 0) -> bytes:
    """Return JSON in which floats that are not finite are `NaN` and `Infinity`, as Python reads them.

    Arrays of numbers are allowed in `value`. Values with more than `MAX_WHOLE_ITEMS` items, by the caller's estimate
    `items`, are encoded in pieces.
    """
    if items <= MAX_WHOLE_ITEMS:
        # orjson writes NaN as null, and is nine times as fast as `json`. Its JSON is right if it has no null.
        body = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
        if b"null" not in body:
            return body
        if len(body) <= PIECE_BYTES:
            return _encode_floats(value)
    return _encode_parts(value, TRIED_LEVELS)


def _encode_floats(value: Any) -> bytes:
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=np.ndarray.tolist)
    return text.encode()


def _encode_parts(value: Any, tried: int) -> bytes:
    """Return the JSON of a long value, encoded part by part; see `TRIED_LEVELS` for `tried`."""
    if isinstance(value, dict):
        members = (orjson.dumps(name) + b":" + _encode_parts(item, tried) for name, item in value.items())
        return b"{%b}" % b",".join(members)
    items = value if isinstance(value, list | tuple) else ()
    if len(items) > PIECE_ITEMS:
        slices = (items[first : first + PIECE_ITEMS] for first in range(0, len(items), PIECE_ITEMS))
        return b"[%b]" % b",".join(_encode_parts(some, tried)[1:-1] for some in slices)
    if not items or tried or _is_flat(items):
        body = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
        if b"null" not in body:
            return body
        if not items or len(body) <= PIECE_BYTES:
            return _encode_floats(value)
    return b"[%b]" % b",".join(_encode_parts(item, max(tried - 1, 0)) for item in items)


def _is_flat(items: Sequence[Any]) -> bool:
    """Return whether there are items and no item is a list, object or array."""
    return bool(items) and {type(item) for item in items}.isdisjoint({dict, list, tuple, np.ndarray})


def encode_unless_long(items: int, make: Callable[[], Any]) -> Encoded:
    """Return the JSON of `make()` or, for more than `MAX_INLINE_BYTES` items, a function that returns the JSON."""

    def encode() -> bytes:
        return encode_json(make(), items)

    return encode if items > MAX_INLINE_BYTES else encode()


def href(request: Request, path: str, domain: str | None = None, more: str = "") -> str:
    """Return the absolute URL of `path` with two query parts: `domain` (default: the request's) and the text `more`."""
    http = request.http
    named = domain if domain is not None else http.query.get("domain")
    parameters = "&".join(filter(None, (named and f"domain={named}", more)))
    return f"{http.scheme}://{http.host}{path}{parameters and '?'}{parameters}"


def hrefs(request: Request, **paths: str) -> list[Href]:
    """Return a list of `{"rel": name, "href": URL}` for the named paths."""
    return [{"rel": rel, "href": href(request, path)} for rel, path in paths.items()]


STREAMED_ITEMS = 1 << 16
"""The maximum number of numbers, texts and lists that are encoded at a time."""
Answer = TypeVar("Answer", bound=web.StreamResponse)
Encode = Callable[[Any], bytes]
Rows = Callable[[Any, int, int], Any]
"""A function of `(values, first, last)` that returns these rows of the values."""


def encode_nulls(value: Any) -> bytes:
    """Return JSON with null for floats that are not finite, which is valid JSON."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def encode_pieces(value: Any, encode: Encode = encode_json) -> Iterator[bytes]:
    """Yield JSON in pieces; `value` may have arrays of numbers, and iterators that yield encoded JSON."""
    if isinstance(value, dict):
        between = b"{"
        for key, item in value.items():
            yield between + orjson.dumps(key) + b":"
            yield from encode_pieces(item, encode)
            between = b","
        yield b"{}" if between == b"{" else b"}"
    elif isinstance(value, np.ndarray):
        yield from encode_rows(value, items_of(value.shape), _rows, encode)
    elif isinstance(value, Iterator):
        yield from value
    else:
        yield encode(value)


def encode_rows(values: Any, items: int, rows: Rows, encode: Encode) -> Iterator[bytes]:
    """Yield pieces of the JSON of `values`, which have about `items` items; `rows` slices their first dimension."""
    count = values.shape[0] if values.shape else 0
    if items <= STREAMED_ITEMS or not count:
        yield encode(values)
        return
    step = max(1, count * STREAMED_ITEMS // items)
    between = b"["
    for first in range(0, count, step):
        yield between
        part = rows(values, first, min(first + step, count))
        if step == 1 and len(values.shape) > 1:
            yield from encode_rows(part.reshape(values.shape[1:]), items // count, rows, encode)
        else:
            yield encode(part)[1:-1]
        between = b","
    yield b"]"


def items_of(shape: Sequence[int]) -> int:
    """Return the number of numbers and lists in the JSON of an array of this shape."""
    return prod(shape) + list_count(shape)


def _rows(values: Any, first: int, last: int) -> Any:
    return values[first:last]


async def respond_pieces(count: int, value: Any, encode: Encode = encode_json) -> web.Response:
    """Answer with the JSON of `value`, as `encode_pieces` yields it; `count` is its approximate number of items."""
    headers = {"Content-Type": JSON_HEADER}
    return await respond_computed(
        count, lambda: web.Response(body=b"".join(encode_pieces(value, encode)), headers=headers)
    )


async def respond_computed(work: int, make: Callable[[], Answer]) -> Answer:
    """Answer with `make()`. If `work`, the approximate number of elements, is large, a worker thread calls `make`."""
    return await compute(work, make)
