"""Reaching data nodes: one message an owner, replies put back in the order asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hsparse.cluster.membership import Membership
from hsparse.concurrency.gather import gather_all
from hsparse.wire.message import DataNode, Message, Record
from hsparse.wire.record_message import Change, ChangeObjects, Outcome, ReadObjects

T = TypeVar("T")
U = TypeVar("U")


class Owners:
    """The data nodes of a membership, by what they own."""

    def __init__(self, membership: Membership, nodes: dict[str, DataNode]) -> None:
        self.membership = membership
        self.nodes = nodes

    async def read(self, *ids: str) -> list[Outcome]:
        """Read records; one outcome an id, in order."""
        return await self.gather(ids, lambda id: id, lambda some: ReadObjects(tuple(some)))

    async def record(self, id: str) -> Record:
        """Read one record; `NotFound` or `Gone` when there is none."""
        return (await self.read(id))[0].unwrap()

    async def change(self, *changes: Change) -> list[Outcome]:
        """Apply changes, each atomically; one outcome a change, in order. Failures are not raised."""
        return await self.gather(changes, lambda change: change.id, lambda some: ChangeObjects(tuple(some)))

    async def apply(self, change: Change) -> Outcome:
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
        """Send each owner (by the object `name` gives) one message about its items; reply per item."""
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
        """Return each owner that has some of the items, with their places."""
        if len(self.nodes) == 1:
            return [(next(iter(self.nodes.values())), range(len(items)))] if items else []
        places: dict[str, list[int]] = {}
        for place, item in enumerate(items):
            places.setdefault(self.membership.owner(name(item)), []).append(place)
        return [(self.nodes[owner], some) for owner, some in places.items()]
