"""The other members of the cluster: connections to them, and whether they answer."""

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
