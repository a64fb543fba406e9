"""A data node's own lease: the node renews it in time, and knows whether it holds.

A machine has two clocks: the monotonic clock and the time of day. The age of a lease is measured by the clock that has
advanced further, so a clock that stands still or runs slow does not lengthen the lease. If the clocks disagree, the
lease counts as ended until it is renewed.
"""

from __future__ import annotations

import asyncio
import logging
from math import inf
from typing import Protocol

from hsparse.clock import Clock, Reminder
from hsparse.cluster.lease_object import (
    CLOCK_MARGIN,
    EVICTED,
    HELD,
    RECALLED,
    REVOKED,
    ClockReading,
    LeaseObjects,
)
from hsparse.errors import HsparseError, Misconfigured, PreconditionFailed

log = logging.getLogger(__name__)

PERIODS = 2
"""A lease is renewed once a period, and lasts for this many periods."""
RETRIES_PER_LEASE = 8
"""How often a failed renewal is retried during the time that a lease lasts."""
MOST_JUMPS = 8
"""The most renewals in a row that may find a clock jump; with more, the node would hardly ever own anything."""


class LeaseHolder(Protocol):
    """The object that is told about a lease's renewals, such as an `AdoptedMembership`."""

    @property
    def epoch(self) -> int:
        """The epoch that this node has adopted."""
        ...

    async def follow(self) -> None:
        """Adopt the membership in the store, because another node has recalled the lease."""
        ...

    def renewed(self, *, regained: bool) -> None:
        """Note that the lease was renewed; `regained` means that it had run out before, because the store was slow."""
        ...


class LeaseKeeper:
    """The lease of this node, renewed every `period` seconds; its age counts from before a renewal was sent."""

    def __init__(self, leases: LeaseObjects, clock: Clock, period: float) -> None:
        self._leases = leases
        self._period = period
        self.seconds = PERIODS * period
        self._clock = clock
        self._node = ""
        self._etag = ""
        self._renewals = 0
        self._sent: ClockReading | None = None
        """When the last successful renewal was sent, or None if there is no lease."""
        self._jumps = 0
        self._reminder = Reminder(clock)
        self.failed = ""
        """The error of the last renewal, empty if it succeeded."""

    def holds(self) -> bool:
        """Return whether the lease holds now: no other node has taken over what this node owns."""
        return self._sent is not None and self._sent.most(self._clock) < self.seconds

    @property
    def age(self) -> float:
        """Seconds since the last successful renewal was sent, or infinity if there is no lease."""
        return inf if self._sent is None else self._sent.most(self._clock)

    async def take(self, node: str, epoch: int) -> None:
        """Take the first lease of a node that has read the membership of `epoch`."""
        sent = ClockReading.of(self._clock)
        self._etag = await self._leases.take(node, self.seconds, epoch)
        self._node, self._sent = node, sent

    async def take_back(self, epoch: int) -> bool:
        """Take back a revoked lease; return False if the node was evicted."""
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
        """Return whether another node has evicted this node after the lease was lost."""
        lease = await self._leases.read(self._node)
        return lease is None or lease.state == EVICTED

    async def keep(self, holder: LeaseHolder, *, at_once: bool = False) -> None:
        """Renew the lease in time, the first time immediately if `at_once`, until another node takes the lease away.

        `Misconfigured` is raised if the clock keeps jumping.
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
                self.failed = error.message
                if self._reminder.is_due(error.message):
                    log.warning("the lease of %s could not be renewed: %s", self._node, error.message)
                due = self._clock.monotonic() + self.seconds / RETRIES_PER_LEASE
                continue
            regained, self.failed = not self.holds(), ""
            self._sent, due = sent, sent.monotonic + self._period
            holder.renewed(regained=regained)

    async def _renew(self, holder: LeaseHolder) -> bool:
        """Renew the lease once, after adopting the membership if it was recalled; return False if it was taken away."""
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
                # Otherwise the lease is this node's own renewal, whose reply was lost.
                self._etag = lease.etag
                continue
            self._renewals += 1
            return True

    def give_up(self) -> None:
        """Treat the lease as ended from now on."""
        self._sent = None

    def _compare_clocks(self, before: ClockReading, now: ClockReading) -> None:
        """Give the lease up until its next renewal if the clocks have diverged; log the first jump in a row."""
        if not before.jumped(now, CLOCK_MARGIN - 1):
            self._jumps = 0
            return
        self._jumps += 1
        self.give_up()
        what = f"the time of day has gone {before.apart(now):+.3g} s further than the monotonic clock"
        if self._jumps > MOST_JUMPS:
            raise Misconfigured(
                f"The clock of this machine keeps jumping ({self._jumps} times in a row): {what}. Leases depend on "
                "the clock: let NTP or the hypervisor keep it, then start the node again."
            )
        if self._jumps == 1:
            log.warning(
                "%s owns nothing until its lease is renewed, as this machine was suspended or its clock set: %s",
                self._node,
                what,
            )


QUESTIONS_PER_MEMBER = 3
"""How often a joining node asks a member to check another member, if the asked member has not replied yet."""
