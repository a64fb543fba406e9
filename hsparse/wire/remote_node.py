"""`DataNode` over HTTP: a message is a POST to the data node's one path."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, TypeVar, cast
from urllib.parse import quote

import aiohttp

from hsparse.concurrency.request_trace import Work, current_trace, seconds_left
from hsparse.errors import HsparseError, Unanswered
from hsparse.wire.codec import decode_frame, encode_frame
from hsparse.wire.contract import VERSION
from hsparse.wire.http import (
    FRAME_TYPE,
    PATH,
    REQUEST_HEADER,
    TIMEOUT_HEADER,
    TOKEN_HEADER,
    USER_HEADER,
    VERSION_HEADER,
)
from hsparse.wire.membership_message import message_name
from hsparse.wire.message import Failure, Message

R = TypeVar("R")

DEADLINE = 120.0
"""Seconds that a message may take."""
CONNECT = 1.0
"""Seconds in which a data node that is there accepts a connection."""


class RemoteNode:
    """The data node at `url`, with pooled connections. `token` is the nodes' secret, `version` that of the messages."""

    def __init__(self, url: str, token: str, version: int = VERSION) -> None:
        self.url = url.rstrip("/")
        self._session = aiohttp.ClientSession(
            headers={VERSION_HEADER: str(version), TOKEN_HEADER: token, "Content-Type": FRAME_TYPE},
            connector=aiohttp.TCPConnector(limit=256),
            auto_decompress=False,
        )

    async def send(self, message: Message[R], /) -> R:
        """Send the message, see `DataNode`; `Unanswered` when the node cannot be reached or fails to answer.

        A message is never sent twice here: after a lost reply it is not known whether it was carried out. `Outdated`
        from a node of another version.
        """
        pieces = encode_frame(message)
        length = sum(len(piece) for piece in pieces)
        try:
            status, reply = await self._traced_post(message, pieces, {"Content-Length": str(length)})
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            reason = str(error) or type(error).__name__
            raise Unanswered(f"The data node at {self.url} did not answer: {reason}.") from error
        if isinstance(reply, Failure):
            raise reply.error()
        if status != 200:
            raise HsparseError(f"The data node at {self.url} answered {status}.")
        return cast(R, reply if not isinstance(reply, list) else tuple(reply))

    async def _traced_post(
        self, message: Message[Any], pieces: list[bytes | memoryview], headers: dict[str, str]
    ) -> tuple[int, Any]:
        """Return status and reply of the node that is sent a message, counted in the current trace."""
        trace = current_trace()
        if trace is None:
            return await self._post(pieces, headers, DEADLINE)
        headers |= {REQUEST_HEADER: trace.id, USER_HEADER: quote(trace.queue_user)}
        seconds = DEADLINE
        if (left := seconds_left()) is not None:
            headers[TIMEOUT_HEADER] = f"{left:.3f}"
            seconds = min(seconds, left)
        with trace.measured(Work.MESSAGES, f"send {message_name(message)}", self.url) as span:
            return await self._post(pieces, headers if span is None else headers | span.headers, seconds)

    async def _post(
        self, pieces: list[bytes | memoryview], headers: dict[str, str], seconds: float
    ) -> tuple[int, Any]:
        timeout = aiohttp.ClientTimeout(total=seconds, connect=CONNECT)
        async with self._session.post(
            self.url + PATH,
            data=_each(pieces),
            headers=headers,
            timeout=timeout,
            allow_redirects=False,  # another host would be sent the token
        ) as response:
            if 300 <= response.status < 400:
                raise Unanswered(
                    f"The data node at {self.url} did not answer: a redirect ({response.status}) came from there. Give "
                    "it an address by --advertise at which nothing else answers."
                )
            return response.status, decode_frame(memoryview(await response.read()))

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()


async def _each(pieces: list[bytes | memoryview]) -> AsyncIterator[bytes | memoryview]:
    for piece in pieces:
        yield piece
