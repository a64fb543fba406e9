"""Sending messages to the data nodes that own objects: one message to each owner, sent concurrently.

Each object is owned by one data node. `NodeSet` is the protocol of the data nodes that a service node sends to: nodes
in this process (`FixedNodes`), or the members of a cluster. `key_pages` lists keys of the store; any data node can
list keys.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, TypeVar

from hsparse.cluster.membership import Membership
from hsparse.concurrency.gathering import gather_all
from hsparse.errors import ErrorKind, Misconfigured
from hsparse.wire.message import DataNode, InBucket, Message, Record
from hsparse.wire.record_message import ChangeObjects, ListKeys, Outcome, ReadObjects, RecordChange

T = TypeVar("T")


class Resend(Enum):
    """A value in place of a reply: the message must be sent again, to the owner in a newer membership."""

    RESEND = "resend"


RESEND = Resend.RESEND


@dataclass(slots=True)
class Delivery:
    """The state of sending one message, or one message for each of several owners, until each has been answered.

    `epoch` is the epoch of the last membership whose owner did not carry the message out, or -1 if there is none. If
    `unanswered` is not 0, the message may have been carried out. It was first sent at the time `since`, in the epoch
    `first_epoch`, and is sent again until the time `until`; both times are monotonic, in seconds.
    """

    epoch: int = -1
    first_epoch: int = -1
    since: float = 0.0
    until: float = 0.0
    pauses: int = 0
    unanswered: int = 0
    key: str = ""
    """The idempotency key of a change; data nodes use it with the epoch, because each epoch splits messages anew."""


class NodeSet(Protocol):
    """The data nodes that a service node can send to, by their ids in a membership."""

    @property
    def membership(self) -> Membership:
        """The newest known membership."""
        ...

    async def readiness_error(self) -> Misconfigured | None:
        """Return the error that keeps messages from being sent, such as a missing node, or None if there is no error.

        If the nodes are not known yet, this call reads the membership.
        """
        ...

    async def members(self, delivery: Delivery) -> Membership:
        """Return a membership with nodes, if possible newer than `delivery.epoch`; raise `Unanswered` without nodes."""
        ...

    async def send(
        self, membership: Membership, node: str, message: Message[T], delivery: Delivery
    ) -> T | Resend:
        """Send a message to the node that owns its objects; return the reply, or `RESEND` if it must be sent again."""
        ...

    async def send_any(self, message: Message[T]) -> T:
        """Send a message to one node after the other until one answers; return the reply."""
        ...

    async def send_all(self, message: Message[T]) -> list[T]:
        """Send a message to all nodes of one membership; return the list of their replies."""
        ...


class FixedNodes:
    """The `NodeSet` of data nodes in this process. `refused` returns an error if they have stopped, otherwise None."""

    def __init__(
        self, nodes: dict[str, DataNode], refused: Callable[[], Misconfigured | None] = lambda: None
    ) -> None:
        self._nodes = nodes
        self._refused = refused
        self.membership = Membership(0, tuple(nodes))

    async def readiness_error(self) -> Misconfigured | None:
        return self._refused()

    async def members(self, delivery: Delivery) -> Membership:
        return self.membership

    async def send(
        self, membership: Membership, node: str, message: Message[T], delivery: Delivery
    ) -> T | Resend:
        return await self._nodes[node].send(message)

    async def send_any(self, message: Message[T]) -> T:
        return await next(iter(self._nodes.values())).send(message)

    async def send_all(self, message: Message[T]) -> list[T]:
        return await gather_all([node.send(message) for node in self._nodes.values()])


U = TypeVar("U")


class Owners:
    """Sends messages about the objects of one bucket to their owners; an empty `bucket` is the nodes' first bucket."""

    def __init__(
        self,
        nodes: NodeSet,
        bucket: str = "",
        trouble: Callable[[], Awaitable[Misconfigured | None]] | None = None,
    ) -> None:
        """`trouble`, if given, returns the error that keeps the nodes' store from answering, or None if it answers."""
        self._nodes = nodes
        self._bucket = bucket
        self._trouble = trouble

    @property
    def node_ids(self) -> tuple[str, ...]:
        """The ids of the data nodes."""
        return self._nodes.membership.nodes

    def of_bucket(self, bucket: str) -> Owners:
        """Return the `Owners` for another bucket on the same data nodes."""
        return Owners(self._nodes, bucket)

    async def readiness_error(self) -> Misconfigured | None:
        """Return the error of the `NodeSet`, else the store's error, or None if the nodes and the store answer."""
        error = await self._nodes.readiness_error()
        return await self._trouble() if error is None and self._trouble is not None else error

    async def read(self, *ids: str) -> list[Outcome]:
        """Read the records of `ids`; return an `Outcome` for each id, in order. Failures are not raised."""
        if len(ids) == 1:
            return list(await self.ask_owner(ids[0], ReadObjects(ids)))
        found = await self._read(ids)
        if not any(map(_is_left_out, found)):
            return found
        return [outcome async for _, some in self.read_parts(ids) for outcome in some]

    async def read_parts(self, ids: Sequence[str]) -> AsyncGenerator[tuple[int, list[Outcome]], None]:
        """Yield the outcomes of `ids` in runs that fit into a reply, as pairs: index of the run's first id, outcomes.

        Memory stays bounded if the caller drops each run after use.
        """
        first, count = 0, len(ids)
        while first < len(ids):
            found = await self._read(ids[first : first + count])
            whole = next(
                (place for place, one in enumerate(found) if place and _is_left_out(one)), len(found)
            )
            yield first, found[:whole]
            first += whole
            count = 2 * whole

    async def _read(self, ids: Sequence[str]) -> list[Outcome]:
        return await self.gather(ids, lambda id: id, lambda some: ReadObjects(tuple(some)))

    async def record(self, id: str) -> Record:
        """Return the record of `id`; raise `NotFound` or `Gone` if there is no such record."""
        outcome = (await self.read(id))[0]
        if outcome.failure is not None:
            raise outcome.failure.error()
        return outcome.record or {}

    async def change(self, *changes: RecordChange) -> list[Outcome]:
        """Apply each change atomically; return an `Outcome` for each change, in order. Failures are not raised."""
        if len(changes) == 1:
            return list(await self.ask_owner(changes[0].id, ChangeObjects(changes)))
        return await self.gather(changes, lambda change: change.id, lambda some: ChangeObjects(tuple(some)))

    async def apply(self, change: RecordChange) -> Outcome:
        """Apply one change; return its outcome, or raise its failure."""
        outcome = (await self.change(change))[0]
        outcome.unwrap()
        return outcome

    async def ask_any(self, message: Message[T]) -> T:
        """Send a message that any data node can answer; return the reply."""
        return await self._nodes.send_any(self._in_bucket(message))

    async def ask_owner(self, name: str, message: Message[T]) -> T:
        """Send a message to the owner of `name`, an object's id or a chunk's key; return the reply."""
        if self._bucket:
            message = InBucket(self._bucket, message)
        delivery = Delivery()
        while True:
            membership = await self._nodes.members(delivery)
            nodes = membership.nodes
            owner = nodes[0] if len(nodes) == 1 else membership.owner(name)
            reply = await self._nodes.send(membership, owner, message, delivery)
            if not isinstance(reply, Resend):
                return reply

    async def ask_all(self, message: Message[T]) -> list[T]:
        """Send a message to every data node of one membership; return the list of their replies."""
        return await self._nodes.send_all(self._in_bucket(message))

    async def gather(
        self,
        items: Sequence[U],
        name: Callable[[U], str],
        message: Callable[[list[U]], Message[Sequence[T]]],
    ) -> list[T]:
        """Send each owner one message about its items; return each item's reply. `name` returns an item's id or key."""
        replies = await self.scatter(items, name, lambda some: message([items[place] for place in some]))
        if len(replies) == 1:
            return list(replies[0][1])
        result: list[Any] = [None] * len(items)
        for some, reply in replies:
            for place, value in zip(some, reply, strict=True):
                result[place] = value
        return result

    async def scatter(
        self,
        items: Sequence[U],
        name: Callable[[U], str],
        message: Callable[[Sequence[int]], Message[T]],
    ) -> list[tuple[Sequence[int], T]]:
        """Send each owner one message about its items; return a pair for each message: its items' indices, its reply.

        If an owner is gone or no longer owns the items, the message is sent again, to their next owner.
        """
        done: list[tuple[Sequence[int], T]] = []
        todo: Sequence[int] = range(len(items))
        delivery = Delivery()
        while todo:
            membership = await self._nodes.members(delivery)
            shares = _split(membership, items, todo, name)
            replies = await gather_all(
                [
                    self._nodes.send(membership, owner, self._in_bucket(message(some)), delivery)
                    for owner, some in shares
                ]
            )
            todo = []
            for (_, some), reply in zip(shares, replies, strict=True):
                if isinstance(reply, Resend):
                    todo = sorted([*todo, *some])
                else:
                    done.append((some, reply))
        return done

    def _in_bucket(self, message: Message[T]) -> Message[T]:
        return InBucket(self._bucket, message) if self._bucket else message


def _is_left_out(outcome: Outcome) -> bool:
    """Return whether a record was left out of a reply because the reply would have become too large."""
    return outcome.failure is not None and outcome.failure.kind == ErrorKind.TOO_LARGE


def _split(
    membership: Membership, items: Sequence[U], places: Sequence[int], name: Callable[[U], str]
) -> list[tuple[str, Sequence[int]]]:
    """Return a pair for each owner of the items at the indices `places`: the owner, and the indices of its items."""
    if len(membership.nodes) == 1:
        return [(membership.nodes[0], places)]
    shares: dict[str, list[int]] = {}
    for place in places:
        shares.setdefault(membership.owner(name(items[place])), []).append(place)
    return list(shares.items())


KEYS_AT_ONCE = 10_000


async def key_pages(owners: Owners, prefix: str) -> AsyncIterator[list[tuple[str, int, float]]]:
    """Yield pages of the keys that begin with `prefix`, in order, as (key, size in bytes, change time in Unix s)."""
    marker = ""
    while True:
        listing = await owners.ask_any(ListKeys(prefix, start_after=marker, limit=KEYS_AT_ONCE))
        yield list(zip(listing.keys, listing.sizes, listing.modified, strict=True))
        if not listing.more or not listing.keys:
            return
        marker = listing.keys[-1]
