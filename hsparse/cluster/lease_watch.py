"""Watching other nodes' leases: until one has run out, or until its holder has adopted a membership."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from hsparse.clock import Clock
from hsparse.cluster.clock_reading import ClockReading
from hsparse.cluster.lease_object import EVICTED, HELD, MARGIN, RECALLED, Lease, LeaseObjects

log = logging.getLogger(__name__)

LOOKS = 8
"""How often a lease is looked at while it is watched."""


async def _always() -> bool:
    return True


class LeaseWatch:
    """Watches leases on this node's clocks: for as long as both say that it took."""

    def __init__(self, leases: LeaseObjects, clock: Clock) -> None:
        self._leases = leases
        self._clock = clock

    async def run_out(
        self,
        node: str,
        lease: Lease,
        *,
        may_revoke: bool,
        may_still: Callable[[], Awaitable[bool]] = _always,
    ) -> bool:
        """Wait until a lease has run out, and note the eviction; False if it is renewed and may not be revoked.

        It takes up to the lease's grace. `may_still` is asked before the eviction of one that may be revoked.
        """
        current: Lease | None = lease
        while current is not None and current.state != EVICTED:
            if may_revoke and current.state in (HELD, RECALLED):
                current = await self._leases.revoke(node, current)
                continue
            if await self._stands(node, current):
                if may_revoke and not await may_still():
                    return False
                return await self._leases.evict(node, current)
            if not may_revoke:
                return False
            current = await self._leases.read(node)
        return True

    async def follows(self, node: str, epoch: int) -> bool:
        """Return True once a node has adopted the membership of `epoch`, False once its lease has run out.

        A node that lives needs up to one of its renewals, one that is gone the grace of its lease.
        """
        while True:
            lease = await self._leases.read(node)
            if lease is None or lease.state == EVICTED:
                return False
            if lease.state == HELD:
                if lease.epoch >= epoch:
                    return True
                await self._leases.recall(node, lease)
            elif await self._stands(node, lease) and await self._leases.evict(node, lease):
                return False

    async def _stands(self, node: str, lease: Lease) -> bool:
        """Watch a lease until it has run out; say whether it was not renewed.

        After a jump of this node's clock it is watched from then on.
        """
        began = last = ClockReading.of(self._clock)
        while began.least(self._clock) < lease.grace:
            await asyncio.sleep(lease.grace / LOOKS)
            now = await self._leases.read(node)
            if now is None or now.etag != lease.etag:
                return now is None or now.state == EVICTED
            before, last = last, ClockReading.of(self._clock)
            if before.jumped(last, MARGIN - 1):
                log.warning(
                    "%s is watched from now on, as a clock jumped: the time of day has gone %+.3g s further",
                    node,
                    before.apart(last),
                )
                began = last
        return True
