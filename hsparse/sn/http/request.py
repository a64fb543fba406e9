"""The JSON of a request's body, as stock clients send it, and the media types in its headers.

How much memory a JSON body takes once it is parsed: up to twenty times that of its text.

The type in a request: an item, a predefined name, or ids of committed types at any depth.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any, TypeVar

import numpy as np
import orjson

from hsparse.compute import compute, with_pauses
from hsparse.concurrency.collector import MANY, paused_collector
from hsparse.errors import BadRequest, TooLarge
from hsparse.model.attribute import parse_work
from hsparse.model.datatype import MAX_DEPTH as MAX_TYPE_DEPTH
from hsparse.model.datatype import MAX_PARTS, Datatype, parse_requested_type
from hsparse.model.json_values import item_count
from hsparse.sn.body_memory import BodyMemory
from hsparse.sn.http.long_json import MAX_DEPTH, WINDOW, parse_long_json
from hsparse.sn.request import Request
from hsparse.wire.message import Record

T = TypeVar("T")
LEAST = 64 * 1024
"""Bytes of a body from which on its value counts."""
BLOCK = 1 << 18
"""Bytes that are looked at at a time, in 1 ms."""
LIST, DICT, TEXT, ITEM = 64, 208, 64, 36
"""Bytes of a list, a dict, and a text, all without what is in them, and of an item: a number, and its place."""
WIDE = 4
"""Bytes of a character in a text that has one beyond the Basic Multilingual Plane."""


async def value_memory(data: bytes | bytearray) -> int:
    """Return about the most bytes of memory that JSON takes when it is parsed; others run after each block of it."""
    nbytes, wide, view = 0, 1, memoryview(data)
    async for first in with_pauses(range(0, len(data), BLOCK), 1):
        block = bytes(view[first : first + BLOCK])
        every = np.frombuffer(block, np.uint8)
        lists, dicts, quotes, commas = (int(np.count_nonzero(every == one)) for one in b'[{",')
        nbytes += LIST * lists + DICT * dicts + TEXT * quotes // 2 + ITEM * (commas + lists + dicts)
        wide = wide if block.isascii() and b"\\u" not in block else WIDE
    return nbytes + wide * len(data)


JSON_TYPE = "application/json"
BINARY_TYPE = "application/octet-stream"
ARROW_TYPE = "application/vnd.apache.arrow.stream"
MAX_JSON = 32 * 1024 * 1024
"""The most bytes of JSON in a body or an answer: to parse them takes 1 to 3 s."""
MAX_LISTS = 1 << 22
"""The most lists and objects in JSON: each takes as long as 20 bytes of numbers."""
MAX_NAMES = 100_000
"""The most names in one list: those of links, attributes or chunks."""
REFUSED = re.compile(r";\s*q\s*=\s*0(\.0*)?\s*(;|$)")
"""The weight of a media type that is not to be sent (RFC 9110, section 12.4.2)."""
JSON_BYTES = 16
"""Bytes of JSON that take as long to parse as one element takes otherwise, see `compute`."""
FEW = 1 << 14
"""Items of a value whose memory is not held: it is little beside that of the body."""


async def read_json(request: Request, pack: Callable[[Any], None] = lambda value: None) -> Any:
    """Return the JSON value of the body, None for an empty body; `NaN` and `Infinity` are floats, as in Python.

    Python clients (h5pyd) write these for floats that are not finite. `pack` may replace long lists in the value by
    arrays, before the collector of cycles looks through them.
    """
    data = await request.body()
    if len(data) > MAX_JSON:
        raise TooLarge(
            f"A JSON body can have {MAX_JSON} bytes, not {len(data)}; send values as octet-stream."
        )
    if not data.strip():
        return None
    memory = request.body_memory() if len(data) >= LEAST else None
    if memory is not None:
        await _make_room(request, memory, await value_memory(data))
    value = await compute(len(data) // JSON_BYTES, _parse_packed, data, pack)
    if memory is not None and item_count(value, FEW) <= FEW:
        # Arrays took the place of lists: a client that reads its answer slowly holds no more.
        await memory.drop_value()
    return value


async def _make_room(request: Request, memory: BodyMemory, nbytes: int) -> None:
    """Have memory for a body's value; others have the place of a request that waits for it."""
    if memory.has_room_for_value(nbytes):
        await memory.hold_value(nbytes)
    else:
        async with request.without_place():
            await memory.hold_value(nbytes)


def _parse_packed(data: bytearray, pack: Callable[[Any], None]) -> Any:
    opened = data.count(b"[") + data.count(b"{")
    if opened > MAX_LISTS:
        raise TooLarge(
            f"A JSON body can have {MAX_LISTS} lists and objects, not {opened}; send values as octet-stream."
        )
    with paused_collector() if opened >= MANY else nullcontext():
        value = _parse(data, opened)
        pack(value)
    return value


def _parse(data: bytearray, opened: int) -> Any:
    """Parse JSON with `opened` lists and objects; `BadRequest` for what is not valid or cannot be kept."""
    if len(data) > 2 * WINDOW:
        return parse_long_json(data, _parse_piece)
    try:
        value = _parse_piece(data)
    except ValueError as error:
        raise BadRequest(f"The body is not valid JSON: {error}.") from error
    if opened > MAX_DEPTH:
        _check_storable(value)
    return value


def _parse_piece(data: bytes | bytearray) -> Any:
    """Parse JSON; `ValueError` for what is not valid."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        if b"NaN" not in data and b"Infinity" not in data:
            raise
    try:
        value = json.loads(data)
    except RecursionError as error:
        raise BadRequest("The body is nested too deeply.") from error
    _check_storable(value)
    return value


def _check_storable(value: Any) -> None:
    """Raise `BadRequest` for JSON that can be parsed but not written to the store or an answer.

    That is nesting beyond `MAX_DEPTH`, lone surrogates, and integers beyond 64 bits.
    """
    for _ in range(254 - MAX_DEPTH):
        value = [value]
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        raise BadRequest(f"The body cannot be kept as JSON: {error}.") from error


async def read_json_object(
    request: Request, pack: Callable[[Any], None] = lambda value: None
) -> dict[str, Any]:
    """Return the body as a JSON object, `{}` for an empty body; `BadRequest` for other JSON; `pack` as above."""
    value = await read_json(request, pack)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadRequest("The body must be a JSON object.")
    return value


def text_list(body: dict[str, Any], key: str) -> list[str] | None:
    """Return a list of strings in a body, None without one; `TooLarge` for more than `MAX_NAMES`."""
    value = body.get(key)
    if value is None:
        return None
    if isinstance(value, list) and len(value) > MAX_NAMES:
        raise TooLarge(f"{key} has {len(value)} names; the limit is {MAX_NAMES}: send several requests.")
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise BadRequest(f"{key} must be a list of strings.")
    return value


def named_types(header: str) -> Iterator[str]:
    """Yield the media types that a header names and does not refuse (`q=0`), in its order, without their parameters."""
    for item in header.lower().split(","):
        if REFUSED.search(item) is None:
            yield item.partition(";")[0].strip()


PREFIX = "datatypes/"


async def read_type(request: Request, body: Record) -> Datatype:
    """Return the `type` of a body; the item of a committed type, at any depth, has its `id`."""
    item = body.get("type")
    if item is None:
        raise BadRequest("A type is needed, and none is given.")
    named: dict[str, None] = {}
    _collect(item, named, 0)
    if not named:
        return parse_requested_type(item)
    ids = [request.domain.member(id, "datatypes") for id in named]
    outcomes = await request.service.owners.read(*ids)
    committed = {
        name: {**outcome.unwrap()["type"], "id": id}
        for name, id, outcome in zip(named, ids, outcomes, strict=True)
    }
    return parse_requested_type(_resolved(item, committed))


async def parsed_value(body: Record, datatype: Datatype, parse: Callable[[Record, Datatype], T]) -> T:
    """Return what `parse` makes of a body and its type, which is known once committed types were read."""
    return await compute(parse_work(body), parse, body, datatype)


def committed_id(item: Any) -> str | None:
    """Return the id if an item refers to a committed type: `t-...` or `datatypes/t-...`."""
    if not isinstance(item, str):
        return None
    id = item.removeprefix(PREFIX)
    return id if id.startswith("t-") else None


def _collect(item: Any, named: dict[str, None], depth: int) -> None:
    """Collect the ids of committed types in an unchecked item; `parse_requested_type` checks the rest."""
    id = committed_id(item)
    if id is not None:
        named[id] = None
        if len(named) > MAX_PARTS:
            raise BadRequest(f"The type names more than {MAX_PARTS} committed types.")
    elif isinstance(item, dict) and depth <= MAX_TYPE_DEPTH:
        for part in _parts(item):
            _collect(part, named, depth + 1)


def _parts(item: Record) -> list[Any]:
    fields = item.get("fields")
    inside = (
        [field.get("type") for field in fields if isinstance(field, dict)] if isinstance(fields, list) else []
    )
    return [item.get("base"), *inside]


def _resolved(item: Any, committed: dict[str, Record]) -> Any:
    id = committed_id(item)
    if id is not None:
        return committed.get(id, item)
    if not isinstance(item, dict):
        return item
    result = dict(item)
    if "base" in item:
        result["base"] = _resolved(item["base"], committed)
    if isinstance(item.get("fields"), list):
        result["fields"] = [
            {**field, "type": _resolved(field.get("type"), committed)} if isinstance(field, dict) else field
            for field in item["fields"]
        ]
    return result
