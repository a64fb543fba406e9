"""Reading requests: JSON bodies, including those of h5pyd, and media types in headers.

Before a JSON body is parsed, memory is reserved for its value, which can be twenty times as large as the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any, TypeVar

import numpy as np
import orjson

from hsparse.compute import compute
from hsparse.concurrency.collector import PAUSING_LISTS, paused_collector
from hsparse.concurrency.gathering import with_pauses
from hsparse.errors import BadRequest, TooLarge
from hsparse.model.json_values import item_count
from hsparse.sn.body_memory import BodyMemory
from hsparse.sn.http.long_json import MAX_DEPTH, WINDOW_BYTES, parse_long_json
from hsparse.sn.request import Request

T = TypeVar("T")
MIN_RESERVED_BYTES = 64 * 1024
"""Memory is reserved for the values of bodies of at least this many bytes."""
SCAN_BYTES = 1 << 18
"""Bytes that are scanned without a pause for other requests: about 1 ms."""
LIST, DICT, TEXT, ITEM = 64, 208, 64, 36
"""Bytes of memory of a list, a dict and a text without their content, and of an item: a number and its reference."""
WIDE = 4
"""Bytes of each character in a text that has a character beyond the Basic Multilingual Plane."""


async def value_memory(data: bytes | bytearray) -> int:
    """Return the approximate maximum of bytes of memory that the value of the JSON `data` takes once it is parsed."""
    nbytes, wide, view = 0, 1, memoryview(data)
    async for first in with_pauses(range(0, len(data), SCAN_BYTES), 1):
        block = bytes(view[first : first + SCAN_BYTES])
        every = np.frombuffer(block, np.uint8)
        lists, dicts, quotes, commas = (int(np.count_nonzero(every == one)) for one in b'[{",')
        nbytes += LIST * lists + DICT * dicts + TEXT * quotes // 2 + ITEM * (commas + lists + dicts)
        wide = wide if block.isascii() and b"\\u" not in block else WIDE
    return nbytes + wide * len(data)


JSON_TYPE = "application/json"
BINARY_TYPE = "application/octet-stream"
ARROW_TYPE = "application/vnd.apache.arrow.stream"
MAX_JSON = 32 * 1024 * 1024
"""The maximum size in bytes of JSON in a body or an answer; parsing that much takes 1 to 3 s."""
MAX_LISTS = 1 << 22
"""The maximum number of lists and objects in JSON: parsing each takes as long as parsing 20 bytes of numbers."""
MAX_NAMES = 100_000
"""The maximum number of names (of links, attributes or chunks) in one list."""
REFUSED = re.compile(r";\s*q\s*=\s*0(\.0*)?\s*(;|$)")
"""The weight 0, in a header, of a media type that the client refuses (RFC 9110, section 12.4.2)."""
JSON_BYTES = 16
"""Bytes of JSON whose parsing takes as long as one unit of the work passed to `compute`."""
MAX_UNRESERVED_ITEMS = 1 << 14
"""A packed value with at most this many items holds no memory, because it is small compared to the body."""


async def read_json(request: Request, pack: Callable[[Any], None] = lambda value: None) -> Any:
    """Return the JSON value of the body, or None if the body is empty; raise `BadRequest` or `TooLarge`.

    `NaN` and `Infinity` are accepted as floats, because Python clients (h5pyd) write them. `pack` may replace long
    lists in the value by arrays, before the cyclic garbage collector scans them.
    """
    data = await request.body()
    if len(data) > MAX_JSON:
        raise TooLarge(
            f"A JSON body can have at most {MAX_JSON} bytes, not {len(data)}: send values as octet-stream."
        )
    if not data.strip():
        return None
    memory = request.body_memory() if len(data) >= MIN_RESERVED_BYTES else None
    if memory is not None:
        await _make_room(request, memory, await value_memory(data))
    value = await compute(len(data) // JSON_BYTES, _parse_packed, data, pack)
    if memory is not None and item_count(value, MAX_UNRESERVED_ITEMS) <= MAX_UNRESERVED_ITEMS:
        # `pack` has replaced the lists by arrays: release the memory before the answer is sent.
        await memory.drop_value()
    return value


async def _make_room(request: Request, memory: BodyMemory, nbytes: int) -> None:
    """Hold `nbytes` of memory for a body's value; while the request waits for memory, it is not counted as running."""
    if memory.has_room_for_value(nbytes):
        await memory.hold_value(nbytes)
    else:
        async with request.without_place():
            await memory.hold_value(nbytes)


def _parse_packed(data: bytearray, pack: Callable[[Any], None]) -> Any:
    opened = data.count(b"[") + data.count(b"{")
    if opened > MAX_LISTS:
        raise TooLarge(
            f"A JSON body can have at most {MAX_LISTS} lists and objects, not {opened}: send values as octet-stream."
        )
    with paused_collector() if opened >= PAUSING_LISTS else nullcontext():
        value = _parse(data, opened)
        pack(value)
    return value


def _parse(data: bytearray, opened: int) -> Any:
    """Parse JSON that has `opened` opening brackets; raise `BadRequest` if it is invalid or cannot be stored."""
    if len(data) > 2 * WINDOW_BYTES:
        return parse_long_json(data, _parse_piece)
    try:
        value = _parse_piece(data)
    except ValueError as error:
        raise BadRequest(f"The body is not valid JSON: {error}.") from error
    if opened > MAX_DEPTH:
        _check_storable(value)
    return value


def _parse_piece(data: bytes | bytearray) -> Any:
    """Parse JSON; raise `ValueError` if it is invalid, `BadRequest` if it cannot be stored."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        if b"NaN" not in data and b"Infinity" not in data:
            raise
    try:
        value = json.loads(data)
    except RecursionError as error:
        raise BadRequest(f"The body is nested too deeply: it may have at most {MAX_DEPTH} levels.") from error
    _check_storable(value)
    return value


def _check_storable(value: Any) -> None:
    """Raise `BadRequest` for JSON that can be parsed but not written to the store or an answer.

    This is the case for nesting beyond `MAX_DEPTH`, lone surrogates, and integers beyond 64 bits.
    """
    for _ in range(254 - MAX_DEPTH):
        value = [value]
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        raise BadRequest(f"The body cannot be stored as JSON: {error}.") from error


async def read_json_object(
    request: Request, pack: Callable[[Any], None] = lambda value: None
) -> dict[str, Any]:
    """Return the body's JSON object, or `{}` if the body is empty; raise `BadRequest` for other JSON (`read_json`)."""
    value = await read_json(request, pack)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadRequest("The body must be a JSON object.")
    return value


def text_list(body: dict[str, Any], key: str) -> list[str] | None:
    """Return the body's list of strings `key`, or None if it is missing; raise `TooLarge` beyond `MAX_NAMES`."""
    value = body.get(key)
    if value is None:
        return None
    if isinstance(value, list) and len(value) > MAX_NAMES:
        raise TooLarge(f"{key} has {len(value)} names; the limit is {MAX_NAMES}: send several requests.")
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise BadRequest(f"{key} must be a list of strings.")
    return value


def named_types(header: str) -> Iterator[str]:
    """Yield the media types that a header names and does not refuse (`q=0`), in order, without their parameters."""
    for item in header.lower().split(","):
        if REFUSED.search(item) is None:
            yield item.partition(";")[0].strip()
