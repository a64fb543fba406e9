"""The other members of the cluster: connections to them, and whether they answer.

Tests: tests/dn/membership/test_member_node.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

from hsparse.cluster.membership import Membership
from hsparse.errors import HsparseError, Misdirected, Unanswered
from hsparse.wire.membership_message import AdoptMembership
from hsparse.wire.message import DataNode, Message

R = TypeVar("R")

PATIENCE = 1.0
"""Seconds in which a member answers that is alive."""


class Peers:
    """Connections to the members of the newest membership, made by `connect` from their URLs when they are used."""

    def __init__(self, connect: Callable[[str], DataNode]) -> None:
        self._connect = connect
        self._membership: Membership | None = None
        self._nodes: dict[str, DataNode] = {}

    async def follow(self, membership: Membership) -> None:
        """Close the connections to nodes that are no members any more."""
        self._membership = membership
        for id in self._nodes.keys() - set(membership.members):
            await self._nodes.pop(id).close()

    async def send(self, id: str, message: Message[R]) -> R:
        """Send a message to a member; `Misdirected` for a node that is none, `Unanswered` without a reply."""
        if id not in self._nodes:
            if self._membership is None or id not in self._membership.urls:
                raise Misdirected(f"{id} is no member of the cluster.")
            self._nodes[id] = self._connect(self._membership.urls[id])
        return await self._nodes[id].send(message)

    async def adopted(self, id: str, epoch: int) -> bool:
        """Have a member adopt an epoch; say whether it has, and has finished what it accepted before.

        `Unanswered` when it gives no reply in time.
        """
        try:
            async with asyncio.timeout(PATIENCE):
                return await self.send(id, AdoptMembership(id, epoch)) >= epoch
        except TimeoutError as error:
            raise Unanswered(f"The data node {id} did not answer within {PATIENCE:g} s.") from error

    async def answering(self, ids: Iterable[str], epoch: int) -> set[str]:
        """Return those of some members that answer."""
        some = list(ids)
        replies = await asyncio.gather(*(self.adopted(id, epoch) for id in some), return_exceptions=True)
        for reply in replies:
            if isinstance(reply, BaseException) and not isinstance(reply, HsparseError):
                raise reply
        pairs = zip(some, replies, strict=True)
        return {id for id, reply in pairs if not isinstance(reply, Unanswered | Misdirected)}

    async def close(self) -> None:
        """Close all connections."""
        for node in self._nodes.values():
            await node.close()
        self._nodes.clear()
