"""Answers of any size, sent page by page: nothing late ends cleanly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web

from hsparse.sn.media import Media

Piece = Any


async def respond_stream(
    request: web.Request, media: Media, pieces: AsyncIterator[Piece], length: int | None = None
) -> web.StreamResponse:
    """Send the pieces of bytes as they come, the next one made while the last is on its way.

    The first is made before the headers are sent, so that what fails at once is answered as an error. What
    fails later aborts the connection: a client never takes half an answer for a whole one.
    """
    following = asyncio.ensure_future(_next(pieces))
    try:
        piece = await following
        response = web.StreamResponse(headers={"Content-Type": media.value})
        response.content_length = length
        await response.prepare(request)
    except BaseException:
        following.cancel()
        raise
    try:
        while piece is not None:
            following = asyncio.ensure_future(_next(pieces))
            await response.write(piece)
            piece = await following
        await response.write_eof()
    except BaseException:
        following.cancel()
        if request.transport is not None:
            request.transport.abort()
        raise
    return response


async def _next(pieces: AsyncIterator[Piece]) -> Piece | None:
    return await anext(pieces, None)
