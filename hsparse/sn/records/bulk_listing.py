"""Bulk listings: JSON answers about any number of records, in bounded memory.

Small answers are sent whole, larger ones are streamed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any

from aiohttp import web

from hsparse.sn.http.request import JSON_TYPE
from hsparse.sn.http.response import JSON_HEADER, Encoded, encode_json
from hsparse.sn.http.stream import NO_HEADERS, respond_stream
from hsparse.sn.records.crawl import RecordSource
from hsparse.sn.request import Request
from hsparse.wire.message import Record

PIECE = 1 << 20
ENCODED_AT_ONCE = 64
ENCODED_BYTES = 1 << 16
"""Records, and about the bytes of their JSON, that are encoded without letting other requests run."""


async def respond_parts(
    request: Request,
    parts: AsyncGenerator[bytes, None],
    media: str = JSON_TYPE,
    headers: Mapping[str, str] = NO_HEADERS,
) -> web.StreamResponse:
    """Answer with the concatenation of `parts`; one of more than `PIECE` bytes is streamed."""
    async with request.service.answers.hold(4 * PIECE):
        pieces = _joined_parts(parts)
        async with aclosing(pieces):
            first = await anext(pieces, b"")
            if len(first) < PIECE:
                kind = JSON_HEADER if media == JSON_TYPE else media
                return web.Response(body=first, headers={**headers, "Content-Type": kind})
            return await respond_stream(request, media, _continued(first, pieces), headers=headers)


async def _continued(first: bytes, rest: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    yield first
    async for piece in rest:
        yield piece


async def _joined_parts(parts: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Join the parts to pieces of at least `PIECE` bytes, except the last."""
    piece = bytearray()
    async with aclosing(parts):
        async for part in parts:
            piece += part
            if len(piece) >= PIECE:
                yield bytes(piece)
                piece = bytearray()
    if piece:
        yield bytes(piece)


async def wrap_items(
    name: str, items: AsyncGenerator[bytes, None], around: dict[str, Any], brackets: bytes = b"{}"
) -> AsyncGenerator[bytes, None]:
    """Yield a JSON object with the keys of `around` and, under `name`, `items` in brackets: `{}` or `[]`."""
    yield b"{" + encode_json(name) + b":" + brackets[:1]
    first = True
    async with aclosing(items):
        async for item in items:
            yield item if first else b"," + item
            first = False
    rest = encode_json(around)[1:]
    yield brackets[1:] + (rest if rest == b"}" else b"," + rest)


async def respond_records(
    request: Request,
    name: str,
    records: RecordSource,
    to_json: Callable[[str, Record], Encoded],
    around: Record,
) -> web.StreamResponse:
    """Answer with the keys of `around` and, under `name`, `to_json` of each record by its name.

    `to_json` is called in the records' order; a function that it returns is called in a thread.
    """
    return await respond_parts(request, wrap_items(name, _encoded_records(records, to_json), around))


async def _encoded_records(
    records: RecordSource, to_json: Callable[[str, Record], Encoded]
) -> AsyncGenerator[bytes, None]:
    batches = records.batches()
    async with aclosing(batches):
        async for batch in batches:
            size, some = 0, bytearray()
            for done, (name, record) in enumerate(batch, 1):
                found = to_json(name, record)
                item = found if isinstance(found, bytes) else await asyncio.to_thread(found)
                some += b"%b%b:%b" % (b"," if some else b"", encode_json(name), item)
                if len(some) >= ENCODED_BYTES or done % ENCODED_AT_ONCE == 0 or done == len(batch):
                    size += len(some)
                    yield bytes(some)
                    some = bytearray()
                    await asyncio.sleep(0)
            records.pace.weigh(size)
