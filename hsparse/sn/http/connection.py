"""A connection, and how what only reads is given up: when its client is gone, or its answer does not begin in time.

A change goes on until it is stored or has failed: its client could not tell how much of it was carried out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from hsparse.errors import TooLarge

LIMIT_KEY = web.RequestKey("read_limit", asyncio.Timeout)


class Connection(web.RequestHandler):
    """A connection that cancels the task `reading` when it is lost."""

    __slots__ = ("reading",)

    def __init__(self, manager: web.Server, **options: Any) -> None:
        super().__init__(manager, **options)
        self.reading: asyncio.Task[Any] | None = None

    def connection_lost(self, exc: BaseException | None) -> None:
        """Give up what only reads: nobody waits for it any more."""
        super().connection_lost(exc)
        if self.reading is not None:
            self.reading.cancel()


@asynccontextmanager
async def only_reading(request: web.Request, seconds: float) -> AsyncIterator[None]:
    """Cancel what is in the context when the client disconnects.

    `TooLarge` when the answer has not begun in `seconds`; 0 is any time.
    """
    connection = request.protocol
    if isinstance(connection, Connection):
        if request.transport is None:
            raise asyncio.CancelledError
        connection.reading = asyncio.current_task()
    try:
        async with asyncio.timeout(seconds or None) as limit:
            request[LIMIT_KEY] = limit
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise TooLarge(
            f"The answer did not begin within {seconds:g} s, the limit (max_read_time); ask for less at a time."
        ) from None
    finally:
        del request[LIMIT_KEY]
        finish_in_peace(request)


def begin_in_time(request: web.Request) -> None:
    """Note that the answer begins: it may be as long as the client reads it."""
    limit = request.get(LIMIT_KEY)
    if limit is not None and not limit.expired():
        limit.reschedule(None)


def finish_in_peace(request: web.Request) -> None:
    """Do not cancel what is left to do when the client disconnects."""
    if isinstance(request.protocol, Connection):
        request.protocol.reading = None
