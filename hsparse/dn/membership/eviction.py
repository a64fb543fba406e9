"""Evicting a member that does not answer: its lease must have run out before others take over what it owns.

A node that is cut off from all others, but not from the store, goes on renewing its lease. Those that reach most of the
members may revoke it; a node that reaches few may not, since it may be the one that is cut off.

Tests: tests/dn/membership/test_member_node.py.
"""

from __future__ import annotations

import asyncio
import logging

from hsparse.clock import Clock
from hsparse.cluster.lease_object import EVICTED, HELD, Lease, LeaseObjects
from hsparse.cluster.membership import Membership
from hsparse.cluster.membership_object import MembershipObject
from hsparse.dn.membership.peers import Peers

log = logging.getLogger(__name__)

LOOKS = 8
"""How often a lease is looked at while it is watched."""


class Eviction:
    """Evicts members of a cluster on behalf of the node `own`."""

    def __init__(
        self, membership: MembershipObject, leases: LeaseObjects, peers: Peers, clock: Clock
    ) -> None:
        self._membership = membership
        self._leases = leases
        self._peers = peers
        self._clock = clock

    async def evict(self, other: str, own: str, view: Membership) -> Membership | None:
        """Return the membership without `other`, None if that is alive and may not be evicted.

        It takes up to the grace of the other's lease.
        """
        lease = await self._leases.read(other)
        if lease is not None and lease.state != EVICTED:
            may_revoke = await self._reaches_most(other, own, view)
            if not await self._run_out(other, lease, may_revoke):
                return None
        after = await self._membership.remove(other)
        await self._leases.delete(other)
        log.warning("%s evicted %s, which did not answer; epoch %d", own, other, after.epoch)
        return after

    async def _run_out(self, other: str, lease: Lease, may_revoke: bool) -> bool:
        """Wait until a lease has run out, and note the eviction; False if it is renewed and may not be revoked."""
        current: Lease | None = lease
        while current is not None and current.state != EVICTED:
            if current.state == HELD and may_revoke:
                current = await self._leases.revoke(other, current)
                continue
            if await self._stands(other, current):
                return await self._leases.evict(other, current)
            if not may_revoke:
                return False
            current = await self._leases.read(other)
        return True

    async def _stands(self, other: str, lease: Lease) -> bool:
        """Watch a lease until it has run out; say whether it was not renewed."""
        until = self._clock.monotonic() + lease.grace
        while self._clock.monotonic() < until:
            await asyncio.sleep(lease.grace / LOOKS)
            now = await self._leases.read(other)
            if now is None or now.etag != lease.etag:
                return now is None or now.state == EVICTED
        return True

    async def _reaches_most(self, other: str, own: str, view: Membership) -> bool:
        """Say whether this node reaches more than half of the members, or half of them with the first by id.

        True where all members are leaving: nobody owns anything.
        """
        if not view.nodes:
            return True
        asked = [id for id in view.nodes if id not in (other, own)]
        reached = await self._peers.answering(asked, view.epoch) | ({own} & set(view.nodes))
        if 2 * len(reached) == len(view.nodes):
            return min(view.nodes) in reached
        return 2 * len(reached) > len(view.nodes)
