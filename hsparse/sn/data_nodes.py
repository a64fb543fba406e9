"""Sending messages to data nodes: to the owner of each object, in this process or over HTTP.

Tests: tests/test_two_owners.py, tests/dn/test_service.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import nullcontext
from typing import Any, TypeVar, cast

import aiohttp

from hsparse.cluster.membership import Membership
from hsparse.concurrency.gather import gather_all
from hsparse.concurrency.request_trace import Work, current_trace
from hsparse.errors import HsparseError, StoreFailed
from hsparse.wire.codec import decode_frame, encode_frame
from hsparse.wire.http import EPOCH_HEADER, FRAME_TYPE, PATH, REQUEST_HEADER, TOKEN_HEADER
from hsparse.wire.message import DataNode, Failure, InBucket, Message, Record
from hsparse.wire.record_message import ChangeObjects, Outcome, ReadObjects, RecordChange

T = TypeVar("T")
U = TypeVar("U")
R = TypeVar("R")


class Owners:
    """The data nodes of a membership. Each object has one owner."""

    def __init__(self, membership: Membership, nodes: dict[str, DataNode]) -> None:
        self.membership = membership
        self.nodes = nodes

    def of_bucket(self, bucket: str) -> Owners:
        """Return the same data nodes for another bucket."""
        return Owners(self.membership, {id: BucketNode(node, bucket) for id, node in self.nodes.items()})

    async def read(self, *ids: str) -> list[Outcome]:
        """Read records; one outcome for each id, in order."""
        return await self.gather(ids, lambda id: id, lambda some: ReadObjects(tuple(some)))

    async def record(self, id: str) -> Record:
        """Read one record; `NotFound` or `Gone` when there is none."""
        return (await self.read(id))[0].unwrap()

    async def change(self, *changes: RecordChange) -> list[Outcome]:
        """Apply changes, each atomically; one outcome for each change, in order. Failures are not raised."""
        return await self.gather(changes, lambda change: change.id, lambda some: ChangeObjects(tuple(some)))

    async def apply(self, change: RecordChange) -> Outcome:
        """Apply one change; raises its failure."""
        outcome = (await self.change(change))[0]
        outcome.unwrap()
        return outcome

    async def ask_any(self, message: Message[T]) -> T:
        """Send a message that any data node can answer."""
        return await next(iter(self.nodes.values())).send(message)

    async def ask_owner(self, name: str, message: Message[T]) -> T:
        """Send a message to the owner of `name`."""
        return await self.nodes[self.membership.owner(name)].send(message)

    async def ask_all(self, message: Message[T]) -> list[T]:
        """Send a message to every data node."""
        return list(await gather_all([node.send(message) for node in self.nodes.values()]))

    async def gather(
        self,
        items: Sequence[U],
        name: Callable[[U], str],
        message: Callable[[list[U]], Message[Sequence[T]]],
    ) -> list[T]:
        """Send each owner one message about its items; return a reply for each. `name` is the key of an item."""
        shares = self.split(items, name)
        if len(shares) == 1:
            return list(await shares[0][0].send(message(list(items))))
        result: list[Any] = [None] * len(items)
        replies = await gather_all([node.send(message([items[i] for i in some])) for node, some in shares])
        for (_, some), reply in zip(shares, replies, strict=True):
            for place, value in zip(some, reply, strict=True):
                result[place] = value
        return result

    def split(self, items: Sequence[U], name: Callable[[U], str]) -> list[tuple[DataNode, Sequence[int]]]:
        """Return each owner of some of the items, with their indices."""
        if len(self.nodes) == 1:
            return [(next(iter(self.nodes.values())), range(len(items)))] if items else []
        places: dict[str, list[int]] = {}
        for place, item in enumerate(items):
            places.setdefault(self.membership.owner(name(item)), []).append(place)
        return [(self.nodes[owner], some) for owner, some in places.items()]


class BucketNode:
    """`DataNode` of another bucket than a node's first."""

    def __init__(self, node: DataNode, bucket: str) -> None:
        self._node = node
        self._bucket = bucket

    async def send(self, message: Message[R]) -> R:
        """Send the message with the name of its bucket."""
        return await self._node.send(InBucket(self._bucket, message))

    async def close(self) -> None:
        """Nothing to do: the node is closed by whoever made it."""


class RemoteNode:
    """`DataNode` over HTTP, at `url`, with pooled connections."""

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

        A message is never sent twice: after a lost reply it is not known whether it was applied.
        """
        pieces = encode_frame(message)
        length = sum(len(piece) for piece in pieces)
        try:
            status, reply = await self._post(pieces, {"Content-Length": str(length)})
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            reason = str(error) or type(error).__name__
            raise StoreFailed(f"The data node at {self.url} did not answer: {reason}.") from error
        if isinstance(reply, Failure):
            raise reply.error()
        if status != 200:
            raise HsparseError(f"The data node at {self.url} answered {status}.")
        return cast(R, reply if not isinstance(reply, list) else tuple(reply))

    async def _post(self, pieces: list[bytes | memoryview], headers: dict[str, str]) -> tuple[int, Any]:
        """Return the status and the reply to a message, which is counted in the current trace."""
        trace = current_trace()
        with nullcontext() if trace is None else trace.measured(Work.MESSAGES):
            if trace is not None:
                headers[REQUEST_HEADER] = trace.id
            async with self._session.post(self.url + PATH, data=_each(pieces), headers=headers) as response:
                return response.status, decode_frame(memoryview(await response.read()))

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()


async def _each(pieces: list[bytes | memoryview]) -> AsyncIterator[bytes | memoryview]:
    for piece in pieces:
        yield piece
