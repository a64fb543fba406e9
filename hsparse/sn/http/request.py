"""Reading a request: query parameters, the media types in its headers, the body, and JSON as stock clients send it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import web

from hsparse.concurrency.collector import MANY, FrozenObjects, paused_collector
from hsparse.concurrency.offload import offload
from hsparse.errors import BadRequest, TooLarge, Unsupported
from hsparse.model.json_size import item_count
from hsparse.sn.http.body_memory import MEMORY_KEY, BodyMemory
from hsparse.sn.http.connection import wait_for_client, work_on
from hsparse.sn.http.json_memory import LEAST, value_memory
from hsparse.sn.http.long_json import MAX_DEPTH, WINDOW, parse_long_json
from hsparse.sn.http.request_admission import give_up_place, return_to_work

JSON_TYPE = "application/json"
BINARY_TYPE = "application/octet-stream"
ARROW_TYPE = "application/vnd.apache.arrow.stream"
BODY_PATIENCE = 30.0
BODY_RATE = 64 * 1024
"""After `BODY_PATIENCE` seconds a body must have come at this many bytes a second; and it never rests so long."""
MAX_WAIT = 60
"""The most seconds that a request waits for what it names."""
MAX_DIGITS = 19
"""The most digits of a number in a query: those of 2^63-1."""
TRUE = frozenset({"1", "t", "true", "yes", "on"})
FALSE = frozenset({"", "0", "f", "false", "no", "off"})
MAX_JSON = 32 * 1024 * 1024
"""The most bytes of JSON in a body or an answer: to parse them takes 1 to 3 s."""
MAX_LISTS = 1 << 22
"""The most lists and objects in JSON: each takes as long as 20 bytes of numbers."""
MAX_NAMES = 100_000
"""The most names in one list: those of links, attributes or chunks."""
REFUSED = re.compile(r";\s*q\s*=\s*0(\.0*)?\s*(;|$)")
"""The weight of a media type that is not to be sent (RFC 9110, section 12.4.2)."""
JSON_BYTES = 16
"""Bytes of JSON that take as long to parse as one element takes otherwise, see `offload`."""
SCANNED_BYTES = 64
"""Bytes of JSON that take as long to be counted."""
FEW = 1 << 14
"""Items of a value whose memory is not held: it is little beside that of the body."""


@dataclass(slots=True)
class RequestReader:
    """Reads a request's parameters and its body, which may have `limit` bytes."""

    request: web.Request
    limit: int

    def arg(self, name: str) -> str | None:
        """Return a query parameter, None without one."""
        return self.request.query.get(name)

    def wait_seconds(self) -> int:
        """Return how many seconds the client waits for what it names, 0 for none; `BadRequest` for too many."""
        seconds = self.number("wait") or 0
        if seconds > MAX_WAIT:
            raise BadRequest(f"wait must be at most {MAX_WAIT} seconds, not {seconds}: ask again after it.")
        return seconds

    def flag(self, name: str) -> bool:
        """Return a query parameter as a truth value; `BadRequest` for any other text."""
        text = self.request.query.get(name, "").lower()
        if text in TRUE:
            return True
        if text in FALSE:
            return False
        raise BadRequest(f"{name} must be 0 or 1, not {text!r}.")

    def number(self, name: str) -> int | None:
        """Return a query parameter as a non-negative integer, None without one."""
        text = self.request.query.get(name)
        if text is None:
            return None
        if not text.isascii() or not text.isdigit() or len(text) > MAX_DIGITS:
            raise BadRequest(
                f"{name} must be a non-negative integer below 10^{MAX_DIGITS}, not {text[:40]!r}."
            )
        return int(text)

    def refuse(self, *names: str) -> None:
        """Raise `Unsupported` if one of these parameters, which the API knows, is given."""
        for name in names:
            if self.request.query.get(name):
                raise Unsupported(f"The parameter {name} is not supported here yet; leave it out.")

    def check_length(self) -> None:
        """Raise `TooLarge` if Content-Length exceeds the limit."""
        length = self.request.content_length
        if length is not None and length > self.limit:
            raise TooLarge(f"The body has {length} bytes; the limit is {self.limit} (max_request_size).")

    async def body(self) -> bytearray:
        """Return the whole body; `TooLarge` beyond the limit, `BadRequest` if it was cut short."""
        self.check_length()
        length = self.request.content_length
        content, memory = self.request.content, self.request.get(MEMORY_KEY)
        there = content.total_bytes if content.is_eof() and content.exception() is None else None
        if there is not None and (memory is None or memory.has_room(there)):
            if memory is not None:
                await memory.grow(there, there)
            data = bytearray(content.read_nowait())  # it came with the headers
        else:
            give_up_place(self.request)
            data = await self._received(memory)
            await return_to_work(self.request)
            await self.body_came_late()
        if length is not None and len(data) != length:
            raise BadRequest(
                f"The body has {len(data)} bytes of the {length} announced; nothing was applied."
            )
        return data

    async def part(self, nbytes: int) -> bytearray:
        """Return the next bytes of a body that is not read as a whole; `BadRequest` if it was cut short.

        Memory is taken for one part, the largest: the one before must be done with.
        """
        give_up_place(self.request)
        data = await self._received(self.request.get(MEMORY_KEY), nbytes)
        await return_to_work(self.request)
        await self.body_came_late()
        if len(data) != nbytes:
            raise BadRequest("The body was cut short; what had come before was applied.")
        return data

    async def body_came_late(self) -> None:
        """Called when the body came after the head; raises if the request may not go on."""

    async def _received(self, memory: BodyMemory | None, part: int | None = None) -> bytearray:
        """Receive the body, or the next `part` bytes of it, into `memory`; raise if the client is too slow."""
        data, content = bytearray(), self.request.content
        most = min(self.request.content_length or self.limit, self.limit) if part is None else part
        clock = asyncio.get_running_loop().time
        late = clock() + BODY_PATIENCE
        applied = "nothing was applied" if part is None else "what had come before was applied"
        try:
            while part is None or len(data) < part:
                wait_for_client(self.request)
                async with asyncio.timeout_at(min(late + len(data) / BODY_RATE, clock() + BODY_PATIENCE)):
                    block = await (content.readany() if part is None else content.read(part - len(data)))
                work_on(self.request)
                if not block:
                    return data
                data += block
                if len(data) > self.limit:
                    raise TooLarge(
                        f"The body has more than {self.limit} bytes, the limit (max_request_size)."
                    )
                if memory is not None:
                    asked = clock()
                    await memory.grow(len(data), most)
                    late += clock() - asked  # the client could not send meanwhile
            return data
        except TimeoutError as error:
            raise BadRequest(f"The body came too slowly, or not at all; {applied}.") from error
        except (web.RequestPayloadError, ConnectionError) as error:
            raise BadRequest(f"The body was cut short; {applied}.") from error


async def read_json(request: RequestReader, pack: Callable[[Any], None] = lambda value: None) -> Any:
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
    memory = request.request.get(MEMORY_KEY)
    if memory is not None and len(data) >= LEAST:
        await _make_room(
            request.request, memory, await offload(len(data) // SCANNED_BYTES, value_memory, data)
        )
    frozen = memory.frozen_objects() if memory is not None and len(data) >= 2 * MANY else None
    value = await offload(len(data) // JSON_BYTES, _parse_packed, data, pack, frozen)
    if memory is not None and item_count(value, FEW) <= FEW:
        # Arrays took the place of lists: a client that reads its answer slowly holds no more.
        await memory.drop_value()
    return value


async def _make_room(request: web.Request, memory: BodyMemory, nbytes: int) -> None:
    """Have memory for a body's value; others have the place of a request that waits for it."""
    if memory.has_room_for_value(nbytes):
        await memory.hold_value(nbytes)
    else:
        give_up_place(request)
        await memory.hold_value(nbytes)
        await return_to_work(request)


def _parse_packed(data: bytearray, pack: Callable[[Any], None], frozen: FrozenObjects | None) -> Any:
    opened = data.count(b"[") + data.count(b"{")
    if opened > MAX_LISTS:
        raise TooLarge(
            f"A JSON body can have {MAX_LISTS} lists and objects, not {opened}; send values as octet-stream."
        )
    with paused_collector(opened):
        value = _parse(data, opened)
        pack(value)
        if frozen is not None and opened >= MANY:
            frozen.freeze()
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
    request: RequestReader, pack: Callable[[Any], None] = lambda value: None
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


def named_types(request: web.BaseRequest, header: str) -> Iterator[str]:
    """Yield the media types that a header names and does not refuse (`q=0`), in its order, without their parameters."""
    for item in request.headers.get(header, "").lower().split(","):
        if REFUSED.search(item) is None:
            yield item.partition(";")[0].strip()
