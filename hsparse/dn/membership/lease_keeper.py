"""A data node's own lease: taken, renewed in time, and known to hold or not.

It is counted on the clock of the machine that has gone further, the monotonic one or the time of day, so that one that
stands or goes slowly does not lengthen it. When they do not agree a renewal has to tell whether it still holds.
"""

from __future__ import annotations

import asyncio
import logging
from math import inf
from typing import Protocol

from hsparse.clock import Clock
from hsparse.cluster.lease_object import EVICTED, HELD, MARGIN, RECALLED, REVOKED, LeaseObjects
from hsparse.cluster.membership import ClockReading
from hsparse.errors import HsparseError, Misconfigured, PreconditionFailed

log = logging.getLogger(__name__)

PERIODS = 2
"""A lease is renewed once a period, and lasts so many of them."""
RETRIES = 8
"""How often a renewal that failed is tried in that time."""
MOST_JUMPS = 8
"""How many renewals in a row may find that the clock has jumped: a node with such a clock would hardly own anything."""


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
    """The lease of this node, counted on its clocks from before each renewal was sent."""

    def __init__(self, leases: LeaseObjects, clock: Clock, period: float) -> None:
        self._leases = leases
        self._period = period
        self.seconds = PERIODS * period
        self._clock = clock
        self._node = ""
        self._etag = ""
        self._renewals = 0
        self._sent: ClockReading | None = None
        """When the last renewal was sent that succeeded, None without a lease."""
        self._jumps = 0

    def holds(self) -> bool:
        """Say whether the lease holds now: no other node has taken over what this one owns."""
        return self._sent is not None and self._sent.most(self._clock) < self.seconds

    @property
    def age(self) -> float:
        """Seconds since the last renewal that succeeded was sent, infinite without a lease."""
        return inf if self._sent is None else self._sent.most(self._clock)

    async def take(self, node: str, epoch: int) -> None:
        """Take the first lease of a node, which has read the membership of `epoch`."""
        sent = ClockReading.of(self._clock)
        self._etag = await self._leases.take(node, self.seconds, epoch)
        self._node, self._sent = node, sent

    async def take_back(self, epoch: int) -> bool:
        """Take a lease back that was revoked; False if the node was evicted."""
        sent = ClockReading.of(self._clock)
        lease = await self._leases.read(self._node)
        if lease is None or lease.state != REVOKED:
            return False
        try:
            self._etag = await self._leases.renew(self._node, lease.etag, self.seconds, 0, epoch)
        except PreconditionFailed:
            return False
        self._sent = sent
        return True

    async def is_evicted(self) -> bool:
        """Say whether another node has taken over, after the lease was lost."""
        lease = await self._leases.read(self._node)
        return lease is None or lease.state == EVICTED

    async def keep(self, holder: LeaseHolder, *, at_once: bool = False) -> None:
        """Renew the lease, the first time `at_once` or in time, until it has been taken away; then return.

        `Misconfigured` when the clock keeps jumping.
        """
        last = self._sent or ClockReading.of(self._clock)
        due = last.monotonic + (0.0 if at_once else self._period)
        while True:
            await asyncio.sleep(max(0.0, due - self._clock.monotonic()))
            before, last = last, ClockReading.of(self._clock)
            self._compare_clocks(before, last)
            sent = last
            try:
                if not await self._renew(holder):
                    self.give_up()
                    return
            except HsparseError as error:
                log.warning("the lease of %s could not be renewed: %s", self._node, error.message)
                due = self._clock.monotonic() + self.seconds / RETRIES
                continue
            regained = not self.holds()
            self._sent, due = sent, sent.monotonic + self._period
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
        self._sent = None

    def _compare_clocks(self, before: ClockReading, now: ClockReading) -> None:
        """Give the lease up until it is renewed if the clocks have not gone on alike; tell why, once for each jump."""
        if not before.jumped(now, MARGIN - 1):
            self._jumps = 0
            return
        self._jumps += 1
        self.give_up()
        what = f"the time of day has gone {before.apart(now):+.3g} s further than the monotonic clock"
        if self._jumps > MOST_JUMPS:
            raise Misconfigured(
                f"The clock of this machine keeps jumping: {what}, time number {self._jumps} in a row. Leases count "
                "on it: let NTP or the hypervisor keep the clock, then start the node again."
            )
        if self._jumps == 1:
            log.warning(
                "%s owns nothing until its lease is renewed, as this machine was suspended or its clock set: %s",
                self._node,
                what,
            )
