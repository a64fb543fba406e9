"""Streamed answers of any size: a failure after the headers were sent aborts the connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any

from aiohttp import hdrs, web

from hsparse.concurrency.memory_budget import MemoryBudget
from hsparse.sn.http.compression import coding_headers, compressed, streamed_coding
from hsparse.sn.http.connection import finish_in_peace, sending
from hsparse.sn.http.request import JSON_TYPE
from hsparse.sn.http.request_admission import begin_answer
from hsparse.sn.http.response import JSON_HEADER

BodyPart = Any
NO_HEADERS: Mapping[str, str] = MappingProxyType({})
PART = 1 << 20
MAX_WHOLE_BODY = 1 << 20
"""Bytes of the largest body that is sent in one piece; aiohttp warns of a larger one, which blocks the event loop."""
PATIENCE = 60.0
"""Seconds in which a client takes a part of an answer."""
HURRY = 5.0
"""The same while others wait for memory: 200 kB a second is the least rate then, so that few cannot hold up many."""
ANSWERS_KEY = web.AppKey("answers", MemoryBudget)
BUDGETS_KEY = web.RequestKey("budgets", tuple[MemoryBudget, ...])
"""The other budgets of which a request holds memory until its answer is sent."""


@asynccontextmanager
async def hold_until_sent(request: web.Request, budget: MemoryBudget, nbytes: int) -> AsyncIterator[None]:
    """Hold memory of a budget while an answer is made and streamed; its client is hurried while others wait for it."""
    async with budget.hold(nbytes):
        before = request.get(BUDGETS_KEY, ())
        request[BUDGETS_KEY] = (*before, budget)
        try:
            yield
        finally:
            request[BUDGETS_KEY] = before


async def respond_stream(
    request: web.Request,
    media: str,
    pieces: AsyncGenerator[BodyPart, None],
    length: int | None = None,
    headers: Mapping[str, str] = NO_HEADERS,
) -> web.StreamResponse:
    """Send pieces of bytes of a media type; the next piece is generated while the last one is sent.

    The first piece is generated before the headers are sent, so that its failure is answered as an error. A later
    failure aborts the connection: a client never mistakes part of an answer for all of it. So does a client that is
    slower than `PATIENCE` and `HURRY` allow.
    """
    coding = streamed_coding(request, media)
    if coding is not None:
        pieces, length = compressed(pieces, coding), None
    kind = JSON_HEADER if media == JSON_TYPE else media
    response = web.StreamResponse(headers={**headers, "Content-Type": kind})
    response.headers.extend(coding_headers(request, media, coding))  # there may be one Vary already
    response.content_length = length
    return await send_stream(request, response, pieces)


async def send_stream(
    request: web.Request, response: web.StreamResponse, pieces: AsyncGenerator[BodyPart, None]
) -> web.StreamResponse:
    """Send the headers of `response`, then the pieces, as `respond_stream` does."""
    answers = request.app.get(ANSWERS_KEY)
    budgets = (*((answers,) if answers is not None else ()), *request.get(BUDGETS_KEY, ()))
    following = asyncio.ensure_future(_next(pieces))
    try:
        piece = await following
        begin_answer(request)
        with sending():
            await response.prepare(request)
        if request.method == hdrs.METH_HEAD:
            piece = None  # the first piece shows that there is an answer; no other is generated
        try:
            while piece is not None:
                following = asyncio.ensure_future(_next(pieces))
                await _send(response, piece, budgets)
                piece = await following
            with sending():
                await response.write_eof()
        except BaseException:
            finish_in_peace(request)  # losing the connection must not cancel what ends the pieces
            if request.transport is not None:
                request.transport.abort()
            raise
    finally:
        await _end(following, pieces)
    return response


async def _end(following: asyncio.Future[BodyPart | None], pieces: AsyncGenerator[BodyPart, None]) -> None:
    """Stop generating pieces. Nothing is awaited without need, because an abort soon cancels this task."""
    if not following.done():
        following.cancel()
        await asyncio.wait([following])
    await pieces.aclose()


async def _send(response: web.StreamResponse, piece: BodyPart, budgets: Sequence[MemoryBudget]) -> None:
    """Send a piece in parts; `HungUp` for a client that does not read, or too slowly while others wait."""
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
