"""A data node reached over HTTP: the far equal of its own service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TypeVar, cast

import aiohttp

from hsparse.errors import HsparseError, StoreFailed
from hsparse.wire.codec import decode, encode
from hsparse.wire.http import EPOCH_HEADER, FRAME_TYPE, PATH, TOKEN_HEADER
from hsparse.wire.message import Failure, Message

R = TypeVar("R")


class RemoteNode:
    """Implements `DataNode` by sending messages to `url`. Its connections are pooled and made once."""

    def __init__(self, url: str, epoch: int, token: str, *, deadline: float = 120.0) -> None:
        self.url = url.rstrip("/")
        self._session = aiohttp.ClientSession(
            headers={EPOCH_HEADER: str(epoch), TOKEN_HEADER: token, "Content-Type": FRAME_TYPE},
            timeout=aiohttp.ClientTimeout(total=deadline, connect=5),
            connector=aiohttp.TCPConnector(limit=256),
            auto_decompress=False,
        )

    async def send(self, message: Message[R]) -> R:
        """Send the message, see `DataNode`; `StoreFailed` when the node cannot be reached or fails to answer.

        A message is never sent twice: what became of one whose reply was lost is not known here.
        """
        pieces = encode(message)
        length = sum(len(piece) for piece in pieces)
        try:
            async with self._session.post(
                self.url + PATH, data=_each(pieces), headers={"Content-Length": str(length)}
            ) as response:
                reply = decode(memoryview(await response.read()))
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            reason = str(error) or type(error).__name__
            raise StoreFailed(f"The data node at {self.url} did not answer: {reason}.") from error
        if isinstance(reply, Failure):
            raise reply.error()
        if response.status != 200:
            raise HsparseError(f"The data node at {self.url} answered {response.status}.")
        return cast(R, reply if not isinstance(reply, list) else tuple(reply))

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()


async def _each(pieces: list[bytes | memoryview]) -> AsyncIterator[bytes | memoryview]:
    for piece in pieces:
        yield piece
