"""Streamed answers of any size: a failure after the headers were sent aborts the connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from aiohttp import web

from hsparse.sn.http.compression import coding_headers, compressed, streamed_coding
from hsparse.sn.http.request import JSON_TYPE
from hsparse.sn.http.response import JSON_HEADER

BodyPart = Any
PART = 1 << 20
MAX_WHOLE_BODY = 1 << 20
"""Bytes up to which aiohttp takes a body in one piece; a larger one it warns of, as it blocks the event loop."""
PATIENCE = 60.0
"""Seconds for a part of an answer: a client that takes none of it holds memory that others wait for."""


async def respond_stream(
    request: web.Request, media: str, pieces: AsyncGenerator[BodyPart, None], length: int | None = None
) -> web.StreamResponse:
    """Send the pieces of bytes, of a media type, as they come, the next one made while the last is on its way.

    The first is made before the headers are sent, so that what fails at once is answered as an error. What
    fails later aborts the connection: a client never takes half an answer for a whole one.
    """
    coding = streamed_coding(request, media)
    if coding is not None:
        pieces, length = compressed(pieces, coding), None
    kind = JSON_HEADER if media == JSON_TYPE else media
    response = web.StreamResponse(headers={"Content-Type": kind, **coding_headers(request, media, coding)})
    response.content_length = length
    return await send_stream(request, response, pieces)


async def send_stream(
    request: web.Request, response: web.StreamResponse, pieces: AsyncGenerator[BodyPart, None]
) -> web.StreamResponse:
    """Send an answer whose headers are set, and then the pieces, as `respond_stream` does."""
    following = asyncio.ensure_future(_next(pieces))
    try:
        piece = await following
        await response.prepare(request)
        try:
            while piece is not None:
                following = asyncio.ensure_future(_next(pieces))
                await _send(response, piece)
                piece = await following
            await response.write_eof()
        except BaseException:
            if request.transport is not None:
                request.transport.abort()
            raise
    finally:
        await _end(following, pieces)
    return response


async def _end(following: asyncio.Future[BodyPart | None], pieces: AsyncGenerator[BodyPart, None]) -> None:
    """Stop making pieces; nothing is awaited without need, for an abort soon cancels this task."""
    if not following.done():
        following.cancel()
        await asyncio.wait([following])
    await pieces.aclose()


async def _send(response: web.StreamResponse, piece: BodyPart) -> None:
    """Send a piece in parts, each within `PATIENCE`: `TimeoutError` for a client that takes nothing."""
    view = memoryview(piece)
    for first in range(0, len(view), PART):
        async with asyncio.timeout(PATIENCE):
            await response.write(view[first : first + PART])


async def _next(pieces: AsyncGenerator[BodyPart, None]) -> BodyPart | None:
    return await anext(pieces, None)
