"""Members that do not answer a node that is about to join: they are evicted first, or the node may not join yet."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from functools import partial

from hsparse.cluster.lease_object import Membership
from hsparse.cluster.membership_object import MembershipObject
from hsparse.concurrency.gather import gather_all, staggered
from hsparse.dn.membership.lease_keeper import Eviction
from hsparse.dn.membership.node_tasks import NodeTasks
from hsparse.dn.membership.peers import PATIENCE, Peers
from hsparse.errors import Misconfigured, Misdirected, Unanswered
from hsparse.wire.message import CheckMember

ASKS = 3
"""How often a member is asked about another one, while it finds out about that."""


class AbsentMembers:
    """Finds out about the members that do not answer, by those that do, else by their leases."""

    def __init__(self, stored: MembershipObject, peers: Peers, eviction: Eviction, tasks: NodeTasks) -> None:
        self._stored = stored
        self._peers = peers
        self._eviction = eviction
        self._tasks = tasks

    async def evicted(self, id: str, view: Membership) -> Membership:
        """Return the membership without the reachable members that do not answer, before a node joins it as `id`.

        A member that answers finds out about those that do not: this node's own link may be to blame. Where none
        answers, their leases tell. `Unanswered` for a member that is alive, and does not answer this node;
        `Misconfigured` if that has another token or version.
        """
        while True:
            await self._peers.follow(view.urls)
            refused = self._stored.unreachable(view)
            answering = set() if refused else await self._peers.answering(view.reachable, view.epoch)
            absent = [other for other in view.reachable if other not in answering]
            if not absent:
                return view
            if answering:
                await gather_all([self._report(other, answering, view) for other in absent])
            else:
                await self._await_ends(absent, id, view, refused)
            view = await self._stored.read()

    async def _report(self, absent: str, answering: Collection[str], view: Membership) -> None:
        """Have a member that answers find out about one that does not; return when it was evicted, or soon."""
        for one in (*view.stand_ins(absent), *view.leaving):
            if one not in answering:
                continue
            asking = partial(self._peers.send, one, CheckMember(view.epoch, absent))
            try:
                async with asyncio.timeout(2 * PATIENCE):
                    # Again, as who is asked has to know that this node reaches it still.
                    if await staggered(ASKS * (asking,), 2 * PATIENCE / ASKS, (Unanswered,)):
                        break
            except (Misdirected, TimeoutError):
                return
            except Unanswered:
                continue
            return
        raise _is_alive(absent, view)

    async def _await_ends(
        self, absent: Iterable[str], id: str, view: Membership, refused: Misconfigured | None
    ) -> None:
        """Evict members when their leases have run out; that the first one renews its lease is an error."""
        nobody_owns = not view.nodes and refused is None

        async def await_end(other: str) -> None:
            evicting = (
                self._eviction.evict(other, id, view) if nobody_owns else self._eviction.expire(other, id)
            )
            if await evicting is None:
                raise refused or _is_alive(other, view)

        tasks = [self._tasks.start(await_end(other)) for other in absent]
        try:
            for done in asyncio.as_completed(tasks):
                await done
        finally:
            for task in tasks:
                task.cancel()


def _is_alive(other: str, view: Membership) -> Unanswered:
    return Unanswered(f"The data node {other} at {view.urls[other]} is alive, but does not answer this one.")
