"""`DataNode` over HTTP: a message is a POST to the data node's one path.

The constants are the contract over HTTP: the path, the headers, and the status of each error kind. Service nodes send
clients the same statuses.

`MemberConnections` connects to the members of a cluster by id, on first use, and disconnects from former members.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, TypeAlias, TypeVar, cast
from urllib.parse import quote

import aiohttp

from hsparse.concurrency.request_trace import Work, current_trace, seconds_left
from hsparse.errors import ErrorKind, HsparseError, Misdirected, Unanswered
from hsparse.wire.codec import MESSAGE_VERSION, decode_frame, encode_frame
from hsparse.wire.message import DataNode, Failure, Message, message_name

PATH = "/messages"
VERSION_HEADER = "X-Hsparse-Version"
"""The header with the sender's version of the messages."""
TOKEN_HEADER = "X-Hsparse-Token"  # noqa: S105
"""The secret that the nodes of one installation share."""
REQUEST_HEADER = "X-Hsparse-Request"
"""The id of the client's request that caused the message, for the data node's log."""
USER_HEADER = "X-Hsparse-User"
"""The user that fair queues charge for the work, percent-encoded."""
TIMEOUT_HEADER = "X-Hsparse-Timeout"
"""The seconds that the client's request has left; a relative time, because clocks are not compared."""
FRAME_TYPE = "application/vnd.hsparse.frame"


STATUS: dict[ErrorKind, int] = {
    ErrorKind.BAD_REQUEST: 400,
    ErrorKind.UNAUTHENTICATED: 401,
    ErrorKind.FORBIDDEN: 403,
    ErrorKind.NOT_FOUND: 404,
    ErrorKind.GONE: 410,
    ErrorKind.CONFLICT: 409,
    ErrorKind.TOO_LARGE: 413,
    ErrorKind.BUSY: 503,
    ErrorKind.MOVED: 503,
    ErrorKind.PRECONDITION_FAILED: 412,
    ErrorKind.CORRUPT: 500,
    ErrorKind.STORE_FAILED: 500,
    ErrorKind.STORE_FULL: 507,
    ErrorKind.MISCONFIGURED: 500,
    ErrorKind.INTERNAL: 500,
    ErrorKind.UNSUPPORTED: 400,
    ErrorKind.RATE_LIMITED: 429,
    ErrorKind.MISDIRECTED: 421,
    ErrorKind.UNANSWERED: 503,
    ErrorKind.OUTDATED: 501,
    ErrorKind.OVER_QUOTA: 413,
    ErrorKind.OUT_OF_RANGE: 400,
    ErrorKind.DAMAGED_FILE: 422,
    ErrorKind.LEFT_OUT: 422,
}


R = TypeVar("R")

MESSAGE_SECONDS = 120.0
"""The most seconds that a message may take."""
CONNECT_SECONDS = 1.0
"""Seconds within which a running data node accepts a connection."""


class RemoteNode:
    """The data node at `url`, over pooled connections. `token` is the nodes' secret; messages have the `version`."""

    def __init__(self, url: str, token: str, version: int = MESSAGE_VERSION) -> None:
        self.url = url.rstrip("/")
        self._session = aiohttp.ClientSession(
            headers={VERSION_HEADER: str(version), TOKEN_HEADER: token, "Content-Type": FRAME_TYPE},
            connector=aiohttp.TCPConnector(limit=256),
            auto_decompress=False,
        )

    async def send(self, message: Message[R], /) -> R:
        """Send the message, see `DataNode`; raise `Unanswered` if the node cannot be reached or fails to answer.

        This method never sends a message twice: after a lost reply it is unknown whether the message was carried out.
        `Outdated` is raised by a node of another version.
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
            raise HsparseError(f"The data node at {self.url} answered with status {status}; see its log.")
        return cast(R, reply if not isinstance(reply, list) else tuple(reply))

    async def _traced_post(
        self, message: Message[Any], pieces: list[bytes | memoryview], headers: dict[str, str]
    ) -> tuple[int, Any]:
        """Post a message, counted in the current trace; return a pair: the HTTP status and the reply."""
        trace = current_trace()
        if trace is None:
            return await self._post(pieces, headers, MESSAGE_SECONDS)
        headers |= {REQUEST_HEADER: trace.id, USER_HEADER: quote(trace.queue_user)}
        seconds = MESSAGE_SECONDS
        if (left := seconds_left()) is not None:
            headers[TIMEOUT_HEADER] = f"{left:.3f}"
            seconds = min(seconds, left)
        with trace.measured(Work.MESSAGES, f"send {message_name(message)}", self.url) as span:
            return await self._post(pieces, headers if span is None else headers | span.headers, seconds)

    async def _post(
        self, pieces: list[bytes | memoryview], headers: dict[str, str], seconds: float
    ) -> tuple[int, Any]:
        timeout = aiohttp.ClientTimeout(total=seconds, connect=CONNECT_SECONDS)
        async with self._session.post(
            self.url + PATH,
            data=_each(pieces),
            headers=headers,
            timeout=timeout,
            allow_redirects=False,  # the other host would receive the token
        ) as response:
            if 300 <= response.status < 400:
                raise Unanswered(
                    f"The data node at {self.url} did not answer: it sent a redirect ({response.status}). Give "
                    "the node an address by --advertise at which nothing else answers."
                )
            return response.status, decode_frame(memoryview(await response.read()))

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()


async def _each(pieces: list[bytes | memoryview]) -> AsyncIterator[bytes | memoryview]:
    for piece in pieces:
        yield piece


Connect: TypeAlias = Callable[[str], DataNode]
"""A function that connects to the node at a URL."""


class MemberConnections:
    """Connections to the members of the newest membership; `connect` opens the connection to a member's URL."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._urls: Mapping[str, str] = {}
        self._nodes: dict[str, DataNode] = {}

    async def follow(self, urls: Mapping[str, str]) -> None:
        """Set the `urls` of the members by id, and close the connections to former members."""
        self._urls = urls
        gone = [self._nodes.pop(id) for id in self._nodes.keys() - urls.keys()]
        for node in gone:  # closing takes a moment, in which others may call this
            await node.close()

    async def send(self, id: str, message: Message[R]) -> R:
        """Send a message to a member; raise `Misdirected` for a former member, `Unanswered` if no reply arrives."""
        node = self._nodes.get(id)
        if node is None:
            if id not in self._urls:
                raise Misdirected(f"The data node {id} is not a member of the cluster; try again.")
            node = self._nodes[id] = self._connect(self._urls[id])
        return await node.send(message)

    async def close(self) -> None:
        """Close all connections; later messages raise `Misdirected`."""
        await self.follow({})
