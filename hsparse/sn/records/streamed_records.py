"""Bulk listings: JSON answers about any number of records, in bounded memory.

Small answers are sent whole, large answers are streamed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from typing import Any

from aiohttp import web

from hsparse.compute import LONG_WORK_BYTES, compute
from hsparse.errors import HsparseError
from hsparse.model.schema import VIRTUAL_DATA
from hsparse.sn.http.request import JSON_TYPE
from hsparse.sn.http.response import Encoded, encode_json
from hsparse.sn.http.stream import NO_HEADERS, respond_stream
from hsparse.sn.records.crawl import RecordSource
from hsparse.sn.request import JSON_HEADER, Request
from hsparse.wire.message import Record

PIECE_BYTES = 1 << 20
ENCODED_AT_ONCE = 64
ENCODED_BYTES = 1 << 16
"""The most records, and about the most bytes of JSON, that are encoded without a pause for other requests."""


async def respond_parts(
    request: Request,
    parts: AsyncGenerator[bytes, None],
    media: str = JSON_TYPE,
    headers: Mapping[str, str] = NO_HEADERS,
) -> web.StreamResponse:
    """Answer with the concatenation of `parts`, of media type `media`; stream an answer of `PIECE_BYTES` or more."""
    async with request.service.answers.hold(4 * PIECE_BYTES):
        pieces = _joined_parts(parts)
        async with aclosing(pieces):
            first = await anext(pieces, b"")
            if len(first) < PIECE_BYTES:
                kind = JSON_HEADER if media == JSON_TYPE else media
                return web.Response(body=first, headers={**headers, "Content-Type": kind})
            return await respond_stream(request, media, _continued(first, pieces), headers=headers)


async def _continued(first: bytes, rest: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    yield first
    async for piece in rest:
        yield piece


async def _joined_parts(parts: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Join the parts to pieces of at least `PIECE_BYTES` bytes; the last piece may be shorter."""
    piece = bytearray()
    async with aclosing(parts):
        async for part in parts:
            piece += part
            if len(piece) >= PIECE_BYTES:
                yield bytes(piece)
                piece = bytearray()
    if piece:
        yield bytes(piece)


async def wrap_items(
    name: str, items: AsyncGenerator[bytes, None], around: dict[str, Any], brackets: bytes = b"{}"
) -> AsyncGenerator[bytes, None]:
    """Yield a JSON object with `items` in `brackets` ({} or []) under the key `name`, and the keys of `around`."""
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
    """Answer with the keys of `around` and, under the key `name`, an object that maps each record's name to its JSON.

    `to_json` is called with each name and record, in order. A function that it returns is called in a worker thread.
    """
    return await respond_parts(
        request, wrap_items(name, _encoded_records(records, to_json, request.current), around)
    )


async def _encoded_records(
    records: RecordSource,
    to_json: Callable[[str, Record], Encoded],
    current: Callable[[Record], Awaitable[Record]],
) -> AsyncGenerator[bytes, None]:
    batches = records.batches()
    async with aclosing(batches):
        async for batch in batches:
            size, some = 0, bytearray()
            for done, (name, record) in enumerate(batch, 1):
                if VIRTUAL_DATA in record:  # list it as stored if its extent cannot be computed
                    with suppress(HsparseError):
                        record = await current(record)
                found = to_json(name, record)
                item = found if isinstance(found, bytes) else await compute(LONG_WORK_BYTES, found)
                some += b"%b%b:%b" % (b"," if some else b"", encode_json(name), item)
                if len(some) >= ENCODED_BYTES or done % ENCODED_AT_ONCE == 0 or done == len(batch):
                    size += len(some)
                    yield bytes(some)
                    some = bytearray()
                    await asyncio.sleep(0)
            records.pace.weigh(size)
