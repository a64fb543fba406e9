"""A data node's own lease: taken, renewed in time, and known to hold or not.

Tests: tests/dn/membership/test_member_node.py.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from hsparse.clock import Clock
from hsparse.cluster.lease_object import HELD, RECALLED, REVOKED, LeaseObjects
from hsparse.errors import HsparseError, PreconditionFailed

log = logging.getLogger(__name__)

PERIODS = 2
"""A lease is renewed once a period, and lasts so many of them."""
RETRIES = 8
"""How often a renewal that failed is tried in that time."""
NEVER = float("-inf")


class LeaseHolder(Protocol):
    """What a lease is kept for."""

    @property
    def epoch(self) -> int:
        """The epoch that this node has adopted."""
        ...

    async def follow(self) -> None:
        """Adopt the membership in the store: another node has recalled the lease."""
        ...

    def renewed(self, *, regained: bool) -> None:
        """Take note that the lease was renewed; `regained` if it had run out, because the store was slow."""
        ...


class LeaseKeeper:
    """The lease of this node, counted on its monotonic clock from before each renewal was sent."""

    def __init__(self, leases: LeaseObjects, clock: Clock, period: float) -> None:
        self._leases = leases
        self._period = period
        self.seconds = PERIODS * period
        self._clock = clock
        self._node = ""
        self._etag = ""
        self._renewals = 0
        self._until = NEVER

    def holds(self) -> bool:
        """Say whether the lease holds now: no other node has taken over what this one owns."""
        return self._clock.monotonic() < self._until

    @property
    def age(self) -> float:
        """Seconds since the last renewal that succeeded was sent."""
        return self._clock.monotonic() - self._until + self.seconds

    async def take(self, node: str, epoch: int) -> None:
        """Take the first lease of a node, which has read the membership of `epoch`."""
        sent = self._clock.monotonic()
        self._etag = await self._leases.take(node, self.seconds, epoch)
        self._node, self._until = node, sent + self.seconds

    async def take_back(self, epoch: int) -> bool:
        """Take a lease back that was revoked; False if the node was evicted."""
        sent = self._clock.monotonic()
        lease = await self._leases.read(self._node)
        if lease is None or lease.state != REVOKED:
            return False
        try:
            self._etag = await self._leases.renew(self._node, lease.etag, self.seconds, 0, epoch)
        except PreconditionFailed:
            return False
        self._until = sent + self.seconds
        return True

    async def keep(self, holder: LeaseHolder, *, at_once: bool = False) -> None:
        """Renew the lease, the first time `at_once` or in time, until it has been taken away; then return."""
        due = self._until - self.seconds + (0.0 if at_once else self._period)
        while True:
            await asyncio.sleep(max(0.0, due - self._clock.monotonic()))
            sent = self._clock.monotonic()
            try:
                if not await self._renew(holder):
                    self.give_up()
                    return
            except HsparseError as error:
                log.warning("the lease of %s could not be renewed: %s", self._node, error.message)
                due = self._clock.monotonic() + self.seconds / RETRIES
                continue
            regained = not self.holds()
            self._until, due = sent + self.seconds, sent + self._period
            holder.renewed(regained=regained)

    async def _renew(self, holder: LeaseHolder) -> bool:
        """Renew the lease once, after a look at the membership if it was recalled; False if it was taken away."""
        while True:
            try:
                self._etag = await self._leases.renew(
                    self._node, self._etag, self.seconds, self._renewals + 1, holder.epoch
                )
            except PreconditionFailed:
                lease = await self._leases.read(self._node)
                if lease is None or lease.state not in (HELD, RECALLED):
                    return False
                if lease.state == RECALLED:
                    await holder.follow()
                # Else it is this node's own renewal, whose reply was lost.
                self._etag = lease.etag
                continue
            self._renewals += 1
            return True

    def give_up(self) -> None:
        """Let the lease end now."""
        self._until = NEVER
