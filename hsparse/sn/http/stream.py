"""Streamed answers of any size: a failure after the headers were sent aborts the connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from types import MappingProxyType
from typing import Any

from aiohttp import hdrs, web

from hsparse.concurrency.memory_budget import MemoryBudget
from hsparse.sn.coding import compressed
from hsparse.sn.http.request import JSON_TYPE
from hsparse.sn.request import JSON_HEADER, Request

BodyPart = Any
NO_HEADERS: Mapping[str, str] = MappingProxyType({})
PART = 1 << 20
MAX_WHOLE_BODY = 1 << 20
"""The most bytes of a body that is sent in one piece; aiohttp warns that larger bodies block the event loop."""
SMALL = 64 * 1024
"""The most bytes of an answer of unknown size that is sent whole instead of streamed."""
PATIENCE = 60.0
"""Seconds in which a client must take a part of an answer."""
HURRY = 5.0
"""Seconds for a part while other requests wait for memory, about 200 kB/s, so that slow clients cannot block many."""


class HungUp(ConnectionResetError):
    """The client has closed the connection or stopped reading while an answer is sent; this is no defect."""


@contextmanager
def sending() -> Iterator[None]:
    """Turn connection errors and timeouts while an answer is sent into `HungUp`."""
    try:
        yield
    except (ConnectionError, TimeoutError) as error:
        error.with_traceback(None)  # the traceback would keep the answer in memory
        raise HungUp("The client has closed the connection or reads too slowly.") from None


@asynccontextmanager
async def hold_until_sent(request: Request, budget: MemoryBudget, nbytes: int) -> AsyncIterator[None]:
    """Hold memory while an answer is made and streamed; the client must read faster if others wait for the budget."""
    async with budget.hold(nbytes):
        before = request.shared_memory
        request.shared_memory = (*before, budget)
        try:
            yield
        finally:
            request.shared_memory = before


async def respond_stream(
    request: Request,
    media: str,
    pieces: AsyncGenerator[BodyPart, None],
    length: int | None = None,
    headers: Mapping[str, str] = NO_HEADERS,
) -> web.StreamResponse:
    """Send pieces of bytes of a media type; the next piece is generated while the last one is sent.

    The first pieces are generated before the headers are sent, so that their failure is answered as an error. A later
    failure aborts the connection, so that a client never mistakes part of an answer for all of it. The connection is
    also aborted if the client is slower than `PATIENCE` and `HURRY` allow.
    """
    headers = {**headers, "Content-Type": JSON_HEADER if media == JSON_TYPE else media}
    first, size = [], 0
    async for piece in pieces:
        first.append(piece)
        size += memoryview(piece).nbytes
        if size > SMALL:
            break
    else:
        return web.Response(body=b"".join(first), headers=headers)
    pieces = _resumed(first, pieces)
    response = web.StreamResponse(headers=headers)
    coding = request.choose_coding(request, media, response) if request.choose_coding else None
    if coding is not None:
        pieces, length = compressed(pieces, coding), None
    response.content_length = length
    return await send_stream(request, response, pieces)


async def send_stream(
    request: Request, response: web.StreamResponse, pieces: AsyncGenerator[BodyPart, None]
) -> web.StreamResponse:
    """Send the headers of `response`, then the pieces, as `respond_stream` does."""
    following: asyncio.Future[BodyPart | None] | None = None
    try:
        piece = await anext(pieces, None)
        request.begin(response)
        with sending():
            await response.prepare(request.http)
        if request.http.method == hdrs.METH_HEAD:
            piece = None  # the first piece shows that the answer can be made; that is enough
        while piece is not None:
            following = asyncio.ensure_future(_next(pieces))
            await _send(response, piece, request.shared_memory)
            request.sent += memoryview(piece).nbytes
            piece = await following
        with sending():
            await response.write_eof()
    except BaseException:
        # Stop the generator of pieces before the abort, which cancels this task.
        await _end(following, pieces)
        if response.prepared and request.http.transport is not None:
            request.http.transport.abort()
        raise
    await pieces.aclose()
    return response


async def _resumed(
    first: list[BodyPart], pieces: AsyncGenerator[BodyPart, None]
) -> AsyncGenerator[BodyPart, None]:
    """Yield the pieces in `first`, then the others; close `pieces` at the end."""
    try:
        while first:
            yield first.pop(0)
        async for piece in pieces:
            yield piece
    finally:
        await pieces.aclose()


async def _end(
    following: asyncio.Future[BodyPart | None] | None, pieces: AsyncGenerator[BodyPart, None]
) -> None:
    """Stop generating pieces; await nothing without need, because an abort soon cancels this task."""
    if following is not None and not following.done():
        following.cancel()
        await asyncio.wait([following])
    await pieces.aclose()


async def _send(response: web.StreamResponse, piece: BodyPart, budgets: Sequence[MemoryBudget]) -> None:
    """Send a piece in parts; raise `HungUp` if the client does not read, or reads too slowly while others wait."""
    view, loop = memoryview(piece), asyncio.get_running_loop()

    look: asyncio.TimerHandle

    def hurry() -> None:
        nonlocal look
        if any(budget.is_waited_for for budget in budgets):
            limit.reschedule(loop.time())
        else:
            look = loop.call_later(HURRY, hurry)

    for first in range(0, len(view), PART):
        look = loop.call_later(HURRY, hurry)
        try:
            with sending():
                async with asyncio.timeout(PATIENCE) as limit:
                    await response.write(view[first : first + PART])
        finally:
            look.cancel()


async def _next(pieces: AsyncGenerator[BodyPart, None]) -> BodyPart | None:
    return await anext(pieces, None)
