"""The other members of the cluster: connections to them, and whether they answer.

Witnesses are nodes outside the membership that ask about a member which does not answer them. A member that they reach
is not the one that is cut off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial

from hsparse.concurrency.gather import staggered
from hsparse.errors import HsparseError, Misdirected, Unanswered, Unauthenticated
from hsparse.wire.message import AdoptMembership
from hsparse.wire.remote_node import MemberConnections

NO_ANSWERS = (Unanswered, Misdirected, Unauthenticated)
PATIENCE = 1.0
"""Seconds in which a member answers that is alive."""


class Peers(MemberConnections):
    """Connections to the other members of the newest membership."""

    async def adopted(self, id: str, epoch: int) -> bool:
        """Have a member adopt an epoch; say whether it has, and has finished what it accepted before.

        `Unanswered` when it gives no reply in time. It is sent twice if need be: the first packet of a connection may
        be lost, and is repeated only after a second.
        """
        asking = partial(self.send, id, AdoptMembership(id, epoch))
        try:
            async with asyncio.timeout(PATIENCE):
                return await staggered((asking, asking), PATIENCE / 2, (Unanswered,)) >= epoch
        except TimeoutError as error:
            raise Unanswered(f"The data node {id} did not answer within {PATIENCE:g} s.") from error

    async def answering(self, ids: Iterable[str], epoch: int) -> set[str]:
        """Return those of some members that answer, and take this node for one of theirs."""
        some = list(ids)
        replies = await asyncio.gather(*(self.adopted(id, epoch) for id in some), return_exceptions=True)
        for reply in replies:
            if isinstance(reply, BaseException) and not isinstance(reply, HsparseError):
                raise reply
        pairs = zip(some, replies, strict=True)
        return {id for id, reply in pairs if not isinstance(reply, NO_ANSWERS)}


FRESH = 0.25
"""Seconds for which it counts that somebody has asked: this node may have been cut off after it."""


class Witnesses:
    """The times at which service nodes, and nodes that join, asked about members."""

    def __init__(self) -> None:
        self._times: dict[str, float] = {}
        self._changed = asyncio.Condition()

    async def note(self, member: str) -> None:
        """Note that somebody outside asks about a member, now."""
        now = asyncio.get_running_loop().time()
        self._times = {one: time for one, time in self._times.items() if now - time <= FRESH}
        self._times[member] = now
        async with self._changed:
            self._changed.notify_all()

    async def ask_about(self, member: str, patience: float) -> bool:
        """Wait until somebody asks about a member who has just asked, or asks again; False if nobody does in time."""
        loop = asyncio.get_running_loop()

        def is_fresh() -> bool:
            return member in self._times and loop.time() - self._times[member] <= FRESH

        try:
            async with asyncio.timeout(patience), self._changed:
                return await self._changed.wait_for(is_fresh)
        except TimeoutError:
            return False
