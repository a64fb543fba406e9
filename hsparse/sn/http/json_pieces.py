"""JSON of large answers, encoded in pieces and in a thread.

To encode keeps the interpreter to itself: in one piece, it would stop everything else for as long as that takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

import numpy as np
import orjson
from aiohttp import web

from hsparse.concurrency.offload import offload
from hsparse.model.json_size import list_count
from hsparse.sn.http.response import JSON_HEADER, encode_json

PIECE_ITEMS = 1 << 16
"""Numbers, texts and lists that are encoded at a time."""
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
    if items <= PIECE_ITEMS or not count:
        yield encode(values)
        return
    step = max(1, count * PIECE_ITEMS // items)
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
    """Answer with the JSON of `value`, see `encode_pieces`; `count` is about the number of items, see `offload`."""
    body = await offload(count, lambda: b"".join(encode_pieces(value, encode)))
    return web.Response(body=body, headers={"Content-Type": JSON_HEADER})
