"""`DataNode` over HTTP: a message is a POST to the data node's one path.

The contract over HTTP: the path and the headers of messages between nodes, and the status of each error kind.

The statuses are those of service nodes for clients too.

Connections to the members of a cluster, by their ids: made when they are used, closed when a member is gone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, TypeAlias, TypeVar, cast
from urllib.parse import quote

import aiohttp

from hsparse.concurrency.request_trace import Work, current_trace, seconds_left
from hsparse.errors import ErrorKind, HsparseError, Misdirected, Unanswered
from hsparse.wire.codec import VERSION, decode_frame, encode_frame
from hsparse.wire.message import DataNode, Failure, Message, message_name

PATH = "/messages"
VERSION_HEADER = "X-Hsparse-Version"
"""The version of the messages that the sender of one speaks."""
TOKEN_HEADER = "X-Hsparse-Token"  # noqa: S105
"""The secret that the nodes of one installation share."""
REQUEST_HEADER = "X-Hsparse-Request"
"""The id of the client's request that a message is sent for, for the data node's log."""
USER_HEADER = "X-Hsparse-User"
"""Whom the work counts for when users have turns, percent-encoded."""
TIMEOUT_HEADER = "X-Hsparse-Timeout"
"""The seconds that the client's request has left: clocks are not compared."""
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
    ErrorKind.MISCONFIGURED: 500,
    ErrorKind.INTERNAL: 500,
    ErrorKind.UNSUPPORTED: 400,
    ErrorKind.RATE_LIMITED: 429,
    ErrorKind.MISDIRECTED: 421,
    ErrorKind.UNANSWERED: 503,
    ErrorKind.OUTDATED: 501,
    ErrorKind.OVER_QUOTA: 413,
    ErrorKind.OUT_OF_RANGE: 400,
}


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


Connect: TypeAlias = Callable[[str], DataNode]
"""Connects to the node at a URL."""


class MemberConnections:
    """Connections to the members of the newest membership, made by `connect` from their URLs."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._urls: Mapping[str, str] = {}
        self._nodes: dict[str, DataNode] = {}

    async def follow(self, urls: Mapping[str, str]) -> None:
        """Let the members be those with `urls`, by their ids; close the connections to others."""
        self._urls = urls
        gone = [self._nodes.pop(id) for id in self._nodes.keys() - urls.keys()]
        for node in gone:  # which takes a moment, and others may call this meanwhile
            await node.close()

    async def send(self, id: str, message: Message[R]) -> R:
        """Send a message to a member; `Misdirected` for a node that is none any more, `Unanswered` without a reply."""
        node = self._nodes.get(id)
        if node is None:
            if id not in self._urls:
                raise Misdirected(f"{id} is no member of the cluster.")
            node = self._nodes[id] = self._connect(self._urls[id])
        return await node.send(message)

    async def close(self) -> None:
        """Close all connections; later messages make none."""
        await self.follow({})
