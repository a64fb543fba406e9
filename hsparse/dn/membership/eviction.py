"""Evicting a member that does not answer: its lease must have run out before others take over what it owns.

A node that is cut off from all others, but not from the store, goes on renewing its lease. A member that reaches most
of the members may revoke it; one that reaches few may not, since it may be the one that is cut off. Of two halves the
one may that somebody outside asks for it, a *witness*: a service node, or a node that joins.
"""

from __future__ import annotations

import logging

from hsparse.clock import Clock
from hsparse.cluster.lease_object import EVICTED, HELD, RECALLED, REVOKED, LeaseObjects, LeaseWatch
from hsparse.cluster.membership import Membership
from hsparse.cluster.membership_object import MembershipObject
from hsparse.dn.membership.peers import PATIENCE, Peers
from hsparse.dn.membership.witnesses import Witnesses
from hsparse.errors import Unanswered

log = logging.getLogger(__name__)


class Eviction:
    """Evicts members of a cluster on behalf of the node `own`."""

    def __init__(
        self,
        membership: MembershipObject,
        leases: LeaseObjects,
        peers: Peers,
        witnesses: Witnesses,
        clock: Clock,
    ) -> None:
        self._membership = membership
        self._leases = leases
        self._peers = peers
        self._witnesses = witnesses
        self._watch = LeaseWatch(leases, clock)

    async def evict(
        self, other: str, own: str, view: Membership, *, witnessed: bool = False
    ) -> Membership | None:
        """Return the membership without `other`, None if that is alive and may not be evicted.

        It takes up to the grace of the other's lease. Two members that revoke each other's leases do not both go: the
        one with the greater id gives up, and who is evicted already.
        """

        async def may_still() -> bool:
            return await self._holds(own, view, *((REVOKED,) if own < other else ()))

        lease = await self._leases.read(other)
        if lease is not None and lease.state != EVICTED:
            may_revoke = await self._reaches_most(other, own, view, witnessed) and await self._holds(
                own, view
            )
            if not await self._watch.run_out(other, lease, may_revoke=may_revoke, may_still=may_still):
                return None
        return await self._removed(other, own)

    async def follow(self, other: str, own: str, epoch: int) -> Membership | None:
        """Wait until a member has adopted the epoch, by its lease; return the membership without it if it is gone."""
        if await self._watch.follows(other, epoch):
            return None
        return await self._removed(other, own)

    async def expire(self, other: str, own: str) -> Membership | None:
        """Return the membership without a member if its lease is not renewed while it is watched, else None."""
        lease = await self._leases.read(other)
        if lease is not None and not await self._watch.run_out(other, lease, may_revoke=False):
            return None
        return await self._removed(other, own)

    async def expire_unlisted(self) -> None:
        """Where there is no membership, wait until no lease holds either; `Unanswered` if one is renewed."""
        for other in await self._leases.nodes():
            lease = await self._leases.read(other)
            if lease is not None and not await self._watch.run_out(other, lease, may_revoke=False):
                raise Unanswered(
                    f"The store has no list of members, but {other} renews a lease: try again, and if that does "
                    "not help, `hsparse nodes --rebuild`."
                )
            await self._leases.delete(other)

    async def _removed(self, other: str, own: str) -> Membership:
        after = await self._membership.remove(other)
        await self._leases.delete(other)
        log.warning("%s evicted %s, which did not answer; epoch %d", own, other, after.epoch)
        return after

    async def _holds(self, own: str, view: Membership, *others: str) -> bool:
        """Say whether nobody has revoked this node's lease, or it is one of `others`; before it joins it has none."""
        if own not in view.members:
            return True
        lease = await self._leases.read(own)
        return lease is not None and lease.state in (HELD, RECALLED, *others)

    async def _reaches_most(self, other: str, own: str, view: Membership, witnessed: bool) -> bool:
        """Say whether this node reaches more than half of the members, or half of them with a witness.

        True where all members are leaving: nobody owns anything.
        """
        if not view.nodes:
            return True
        asked = [id for id in view.nodes if id not in (other, own)]
        reached = await self._peers.answering(asked, view.epoch) | ({own} & set(view.nodes))
        if 2 * len(reached) == len(view.nodes):
            # Who asks goes around all members, and waits for each.
            rounds = len(view.members) + 1
            return witnessed and await self._witnesses.ask_about(other, rounds * PATIENCE)
        return 2 * len(reached) > len(view.nodes)
