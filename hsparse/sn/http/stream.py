"""Streamed answers of any size. A failure after the headers were sent aborts the connection."""

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
PART_BYTES = 1 << 20
MAX_WHOLE_BODY = 1 << 20
"""The maximum size of a body that is sent in one piece; aiohttp warns that larger bodies block the event loop."""
MAX_WHOLE_BYTES = 64 * 1024
"""The maximum size of an answer that is sent whole; larger answers of unknown size are streamed."""
PART_SECONDS = 60.0
"""Seconds in which a client must take a part of an answer."""
CROWDED_PART_SECONDS = 5.0
"""`PART_SECONDS` while requests wait for memory, so that slow clients (less than about 200 kB/s) do not block them."""


class HungUp(ConnectionResetError):
    """Raised if the client closes the connection or stops reading an answer; this is no error of the server."""


@contextmanager
def sending() -> Iterator[None]:
    """Turn connection errors and timeouts into `HungUp`."""
    try:
        yield
    except (ConnectionError, TimeoutError) as error:
        error.with_traceback(None)  # the traceback would keep the answer in memory
        raise HungUp("The client has closed the connection or reads too slowly.") from None


@asynccontextmanager
async def hold_until_sent(request: Request, budget: MemoryBudget, nbytes: int) -> AsyncIterator[None]:
    """Hold memory while an answer is made and sent; while requests wait for the budget, the client must read faster."""
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
    """Answer with pieces of bytes, of the media type `media`; each piece is generated while the one before is sent.

    The first pieces are generated before the headers are sent, so that their failure is answered as an error. A later
    failure aborts the connection, so that a client never mistakes part of an answer for all of it. The connection is
    also aborted if the client is slower than `PART_SECONDS` and `CROWDED_PART_SECONDS` allow.
    """
    headers = {**headers, "Content-Type": JSON_HEADER if media == JSON_TYPE else media}
    first, size = [], 0
    async for piece in pieces:
        first.append(piece)
        size += memoryview(piece).nbytes
        if size > MAX_WHOLE_BYTES:
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
    """Yield the pieces in `first`, then the remaining `pieces`; close `pieces` at the end."""
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
    """Stop generating pieces. Only necessary awaits are made, because the abort that follows cancels this task."""
    if following is not None and not following.done():
        following.cancel()
        await asyncio.wait([following])
    await pieces.aclose()


async def _send(response: web.StreamResponse, piece: BodyPart, budgets: Sequence[MemoryBudget]) -> None:
    """Send a piece in parts. If the client stalls, or is slow while requests wait for `budgets`, raise `HungUp`."""
    view, loop = memoryview(piece), asyncio.get_running_loop()

    look: asyncio.TimerHandle

    def hurry() -> None:
        nonlocal look
        if any(budget.is_waited_for for budget in budgets):
            limit.reschedule(loop.time())
        else:
            look = loop.call_later(CROWDED_PART_SECONDS, hurry)

    for first in range(0, len(view), PART_BYTES):
        look = loop.call_later(CROWDED_PART_SECONDS, hurry)
        try:
            with sending():
                async with asyncio.timeout(PART_SECONDS) as limit:
                    await response.write(view[first : first + PART_BYTES])
        finally:
            look.cancel()


async def _next(pieces: AsyncGenerator[BodyPart, None]) -> BodyPart | None:
    return await anext(pieces, None)
