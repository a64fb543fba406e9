"""Answers: JSON as stock clients expect it, errors, and links.

JSON of large answers, encoded in pieces and in a thread.

To encode keeps the interpreter to itself: in one piece, it would stop everything else for as long as that takes.
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

from hsparse.compute import INLINE, compute
from hsparse.errors import Busy, ErrorKind, HsparseError, RateLimited
from hsparse.model.json_values import list_count
from hsparse.model.short_text import shorten
from hsparse.sn.request import JSON_HEADER, JSON_HEADERS, Request
from hsparse.wire.remote_node import STATUS

MAX_MESSAGE = 4096
"""The most characters of an error's sentence, which names what a client has sent."""
PIECE_BYTES = 1 << 18
"""Bytes of JSON that `json` encodes at a time: it is slow, and keeps other threads from running meanwhile."""
PIECE_ITEMS = 1 << 12
"""Items of a list that are encoded at a time, where floats that are not finite are looked for."""
TRIED_LEVELS = 2
"""Levels of short lists, one in the other, that are tried with the fast encoder before their items are."""
LONG = 1 << 16
"""Items of a value that is encoded in pieces from the beginning."""
UNPRINTABLE = re.compile("[^ -~]")
"""What may not stand in the reason of a status line."""
Href = dict[str, str]
"""A link of an answer: `rel` and `href`."""
Encoded: TypeAlias = bytes | Callable[[], bytes]
"""JSON, or a function that makes it, in any thread, because that takes long."""


def respond_floats(value: Any, status: int = 200, items: int = 0) -> web.Response:
    """Answer with JSON as `encode_json` makes it of a value that has about so many items."""
    return web.Response(body=encode_json(value, items), status=status, headers=JSON_HEADERS)


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


def encode_json(value: Any, items: int = 0) -> bytes:
    """Return JSON in which floats that are not finite are `NaN` and `Infinity`, as Python reads them.

    Arrays of numbers are allowed in `value`. With more than `LONG` items, as far as these are known before, it is
    encoded in pieces from the beginning.
    """
    if items <= LONG:
        # orjson writes NaN as null. It is nine times as fast as `json`, so what it writes is taken if that has none.
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
    """Return the JSON of a long value, its parts by themselves; so many levels of short lists are tried as a whole."""
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
    """Say whether items, one or more, have no lists, objects or arrays among them."""
    return bool(items) and {type(item) for item in items}.isdisjoint({dict, list, tuple, np.ndarray})


def encode_unless_long(items: int, make: Callable[[], Any]) -> Encoded:
    """Return the JSON of the value that `make` returns or, for one of more than `INLINE` items, what makes the JSON."""

    def encode() -> bytes:
        return encode_json(make(), items)

    return encode if items > INLINE else encode()


def href(request: Request, path: str, domain: str | None = None, more: str = "") -> str:
    """Return an absolute URL with `domain`, by default that of the request, and `more` parameters."""
    http = request.http
    named = domain if domain is not None else http.query.get("domain")
    parameters = "&".join(filter(None, (named and f"domain={named}", more)))
    return f"{http.scheme}://{http.host}{path}{parameters and '?'}{parameters}"


def hrefs(request: Request, **paths: str) -> list[Href]:
    """Return `[{"rel": name, "href": URL}]` of each named path."""
    return [{"rel": rel, "href": href(request, path)} for rel, path in paths.items()]


STREAMED_ITEMS = 1 << 16
"""Numbers, texts and lists that are encoded at a time."""
Answer = TypeVar("Answer", bound=web.StreamResponse)
Encode = Callable[[Any], bytes]
Rows = Callable[[Any, int, int], Any]
"""`rows(values, first, last)` returns these rows of values."""


def encode_nulls(value: Any) -> bytes:
    """Return JSON in which floats that are not finite are null, which is valid JSON."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def encode_pieces(value: Any, encode: Encode = encode_json) -> Iterator[bytes]:
    """Yield JSON; `value` may have arrays of numbers, and iterators over JSON that is encoded already."""
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
    """Yield the JSON of values that have a shape; they have about `items` numbers, texts and lists."""
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
    """Return how many numbers and lists an array of this shape has in JSON."""
    return prod(shape) + list_count(shape)


def _rows(values: Any, first: int, last: int) -> Any:
    return values[first:last]


async def respond_pieces(count: int, value: Any, encode: Encode = encode_json) -> web.Response:
    """Answer with the JSON of `value`, see `encode_pieces`; `count` is about the number of items, see `compute`."""
    headers = {"Content-Type": JSON_HEADER}
    return await respond_computed(
        count, lambda: web.Response(body=b"".join(encode_pieces(value, encode)), headers=headers)
    )


async def respond_computed(work: int, make: Callable[[], Answer]) -> Answer:
    """Answer with what `make` returns; `work` is about how many elements it converts and encodes, see `compute`."""
    return await compute(work, make)
