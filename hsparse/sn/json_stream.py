"""JSON answers made piece by piece: at once when they are small, streamed when they are not."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from aiohttp import web

from hsparse.sn.context import Context
from hsparse.sn.json_text import encode_floats
from hsparse.sn.media import Media
from hsparse.sn.respond import JSON_TYPE
from hsparse.sn.stream import respond_stream

PIECE = 1 << 20


async def respond_parts(
    context: Context, parts: AsyncGenerator[bytes, None], media: str = Media.JSON
) -> web.StreamResponse:
    """Answer with the text that `parts` make together; beyond `PIECE` bytes they are sent as they come."""
    async with context.service.answers.hold(4 * PIECE):
        pieces = _joined(parts)
        async with aclosing(pieces):
            first = await anext(pieces, b"")
            if len(first) < PIECE:
                kind = JSON_TYPE if media == Media.JSON else media
                return web.Response(body=first, headers={"Content-Type": kind})
            return await respond_stream(context.request, media, _again(first, pieces))


async def _again(first: bytes, rest: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    yield first
    async for piece in rest:
        yield piece


async def _joined(parts: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Yield the parts joined to pieces of at least `PIECE` bytes, but for the last."""
    piece = bytearray()
    async with aclosing(parts):
        async for part in parts:
            piece += part
            if len(piece) >= PIECE:
                yield bytes(piece)
                piece = bytearray()
    if piece:
        yield bytes(piece)


async def enclosed(
    name: str, items: AsyncGenerator[bytes, None], around: dict[str, Any], brackets: bytes = b"{}"
) -> AsyncGenerator[bytes, None]:
    """Yield an object with `around` and, as `name`, `items` in brackets: members, or with `[]` elements."""
    yield b"{" + encode_floats(name) + b":" + brackets[:1]
    first = True
    async with aclosing(items):
        async for item in items:
            yield item if first else b"," + item
            first = False
    rest = encode_floats(around)[1:]
    yield brackets[1:] + (rest if rest == b"}" else b"," + rest)
