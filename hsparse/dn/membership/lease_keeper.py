"""A data node's own lease: taken, renewed in time, and known to hold or not.

Tests: tests/dn/membership/test_member_node.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from hsparse.clock import Clock
from hsparse.cluster.lease_object import REVOKED, LeaseObjects
from hsparse.errors import HsparseError, PreconditionFailed

log = logging.getLogger(__name__)

RENEWALS = 2
"""How often a lease is renewed in the time that it lasts."""
RETRIES = 8
"""How often a renewal that failed is tried in that time."""
NEVER = float("-inf")


class LeaseKeeper:
    """The lease of this node, counted on its monotonic clock from before each renewal was sent."""

    def __init__(self, leases: LeaseObjects, clock: Clock, seconds: float) -> None:
        self._leases = leases
        self.seconds = seconds
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

    async def take(self, node: str) -> None:
        """Take the first lease of a node."""
        sent = self._clock.monotonic()
        self._etag = await self._leases.take(node, self.seconds)
        self._node, self._until = node, sent + self.seconds

    async def take_back(self) -> bool:
        """Take a lease back that was revoked; False if the node was evicted."""
        sent = self._clock.monotonic()
        lease = await self._leases.read(self._node)
        if lease is None or lease.state != REVOKED:
            return False
        try:
            self._etag = await self._leases.renew(self._node, lease.etag, self.seconds, 0)
        except PreconditionFailed:
            return False
        self._until = sent + self.seconds
        return True

    async def keep(self, regained: Callable[[], object]) -> None:
        """Renew the lease until it has been overwritten by another node, then return.

        `regained` is called when it had run out, because the store was slow, and holds again.
        """
        due = self._until - self.seconds + self.seconds / RENEWALS
        while True:
            await asyncio.sleep(max(0.0, due - self._clock.monotonic()))
            sent = self._clock.monotonic()
            try:
                self._etag = await self._leases.renew(
                    self._node, self._etag, self.seconds, self._renewals + 1
                )
            except PreconditionFailed:
                self.give_up()
                return
            except HsparseError as error:
                log.warning("the lease of %s could not be renewed: %s", self._node, error.message)
                due = self._clock.monotonic() + self.seconds / RETRIES
                continue
            self._renewals += 1
            held = self.holds()
            self._until, due = sent + self.seconds, sent + self.seconds / RENEWALS
            if not held:
                regained()

    def give_up(self) -> None:
        """Let the lease end now."""
        self._until = NEVER
