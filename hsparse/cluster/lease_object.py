"""Leases in the store: one object per data node, which the node renews by conditional put.

The object is JSON: `state`, `seconds`, `renewals`, and `epoch`, the epoch of the membership that the holder has
adopted. A lease lasts `seconds` on the holder's clocks, counted from before the renewal was sent. Clocks of different
machines are never compared: a node that wants to take over overwrites the object, so that no renewal can succeed, and
waits until the last lease must have run out. Only then does it mark the holder as evicted in the object, on condition
that the holder has not changed the object since. A lease may also be *recalled* by overwriting: its holder then adopts
the newest membership and renews the lease at once.

Either clock of a machine can be wrong: the monotonic clock may stop during a suspend, and the time of day may be set.
The holder of a lease assumes the longer of the two measured times. A node that waits for the end of the lease assumes
the shorter.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from math import inf
from typing import Self

from hsparse.clock import Clock
from hsparse.errors import NotFound, PreconditionFailed
from hsparse.storage.object_store import ObjectStore


@dataclass(frozen=True, slots=True)
class ClockReading:
    """A reading of this machine's two clocks in seconds, taken one after the other."""

    monotonic: float
    day: float

    @classmethod
    def of(cls, clock: Clock) -> Self:
        """Read the clocks."""
        return cls(clock.monotonic(), clock.now())

    def most(self, clock: Clock) -> float:
        """Return the seconds since this reading, by the clock that has advanced more."""
        return max(clock.monotonic() - self.monotonic, clock.now() - self.day)

    def least(self, clock: Clock) -> float:
        """Return the seconds since this reading, by the clock that has advanced less."""
        return min(clock.monotonic() - self.monotonic, clock.now() - self.day)

    def apart(self, later: ClockReading) -> float:
        """Return the seconds by which the time of day has advanced more than the monotonic clock; negative if less."""
        return (later.day - self.day) - (later.monotonic - self.monotonic)

    def jumped(self, later: ClockReading, tolerance: float) -> bool:
        """Return whether the clocks disagree on the time until `later` by more than the fraction `tolerance` of it.

        The time counts as at least a second, because the clocks are read in turn and are adjusted in small steps.
        """
        passed = max(later.day - self.day, later.monotonic - self.monotonic, 1.0)
        return abs(self.apart(later)) > tolerance * passed


CLOCK_MARGIN = 1.1
"""Other nodes wait this many times as long as a lease lasts: the holder's clock may be a tenth slower than theirs."""
MAX_LEASE_SECONDS = 60.0
"""The longest lease, in seconds."""
HELD, RECALLED, REVOKED, EVICTED = "held", "recalled", "revoked", "evicted"
PREFIX = "db/.cluster/leases/"


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease object as read: `state` is `HELD`, `RECALLED`, `REVOKED` or `EVICTED`."""

    state: str
    etag: str
    seconds: float
    epoch: int = 0

    @property
    def grace(self) -> float:
        """The seconds after which a lease that is not renewed has run out on every node's clock."""
        return self.seconds * CLOCK_MARGIN


def lease_key(node: str) -> str:
    """Return the key of a node's lease object."""
    return f"{PREFIX}{node}.json"


class LeaseObjects:
    """The lease objects of the data nodes of one store."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def take(self, node: str, seconds: float, epoch: int = 0) -> str:
        """Put the first lease of a node and return its etag."""
        return await self._store.put_if_absent(lease_key(node), _encode(HELD, seconds, epoch))

    async def renew(self, node: str, etag: str, seconds: float, renewals: int, epoch: int = 0) -> str:
        """Renew a lease and return its new etag; raise `PreconditionFailed` if another node has overwritten it."""
        return await self._store.put_if_match(lease_key(node), _encode(HELD, seconds, epoch, renewals), etag)

    async def nodes(self) -> list[str]:
        """List the nodes that have a lease object."""
        found = []
        async for page in self._store.list(PREFIX):
            found += [entry.key.removeprefix(PREFIX).removesuffix(".json") for entry in page.entries]
        return found

    async def read(self, node: str) -> Lease | None:
        """Return a node's lease, or None if it has no lease object."""
        try:
            stored = await self._store.get(lease_key(node))
        except NotFound:
            return None
        return _decode(stored.data, stored.etag)

    async def recall(self, node: str, lease: Lease) -> Lease | None:
        """Recall an unchanged lease, so that its holder reads the membership; return the lease that is stored now."""
        return await self._overwrite(node, lease, RECALLED)

    async def revoke(self, node: str, lease: Lease) -> Lease | None:
        """Revoke an unchanged lease; return the lease stored now, which is a renewed lease if the holder was first."""
        return await self._overwrite(node, lease, REVOKED)

    async def evict(self, node: str, lease: Lease) -> bool:
        """Mark a node as evicted unless its lease has changed since `lease` was read; return whether it is evicted."""
        after = await self._overwrite(node, lease, EVICTED)
        return after is None or after.state == EVICTED

    async def delete(self, node: str) -> None:
        """Delete the lease object of a node that has no lease any more."""
        await self._store.delete(lease_key(node))

    async def _overwrite(self, node: str, lease: Lease, state: str) -> Lease | None:
        try:
            data = _encode(state, lease.seconds, lease.epoch)
            etag = await self._store.put_if_match(lease_key(node), data, lease.etag)
        except PreconditionFailed:
            return await self.read(node)
        return Lease(state, etag, lease.seconds, lease.epoch)


def _encode(state: str, seconds: float, epoch: int, renewals: int = 0) -> bytes:
    return json.dumps({"state": state, "seconds": seconds, "renewals": renewals, "epoch": epoch}).encode()


def _decode(data: bytes, etag: str) -> Lease:
    """Decode a lease object; a damaged lease counts as revoked, with the longest duration."""
    try:
        form = json.loads(data)
        state, seconds, epoch = form["state"], float(form["seconds"]), int(form.get("epoch", 0))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return Lease(REVOKED, etag, MAX_LEASE_SECONDS)
    if not (0 < seconds < inf and epoch >= 0):  # NaN is neither
        return Lease(REVOKED, etag, MAX_LEASE_SECONDS)
    known = state in (HELD, RECALLED, EVICTED)
    return Lease(state if known else REVOKED, etag, min(seconds, MAX_LEASE_SECONDS), epoch)


log = logging.getLogger(__name__)

CHECKS_PER_LEASE = 8
"""How often a lease is read during its grace while it is watched."""


async def _always() -> bool:
    return True


class LeaseWatch:
    """Watches leases on this node's clocks; the shorter of the two measured times counts."""

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
        """Wait until a lease has run out, and mark its node as evicted; return False if the node is not evicted.

        With `may_revoke`, revoke the lease first, and evict only if `may_still`. This takes up to the lease's grace.
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
        """Return True once a node has adopted the membership of `epoch`, or False once its lease has run out.

        This takes up to one renewal period for a live node, and up to the grace of its lease for a lost node.
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
        """Watch a lease until its grace has passed; return False if the lease object is changed meanwhile.

        After a jump of this node's clock the watch starts again.
        """
        began = last = ClockReading.of(self._clock)
        while began.least(self._clock) < lease.grace:
            await asyncio.sleep(lease.grace / CHECKS_PER_LEASE)
            now = await self._leases.read(node)
            if now is None or now.etag != lease.etag:
                return now is None or now.state == EVICTED
            before, last = last, ClockReading.of(self._clock)
            if before.jumped(last, CLOCK_MARGIN - 1):
                log.warning(
                    "The watch of the lease of %s begins again, because a clock jumped: the time of day gained %+.3g s",
                    node,
                    before.apart(last),
                )
                began = last
        return True
