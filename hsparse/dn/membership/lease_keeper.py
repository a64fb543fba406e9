"""A data node's own lease: taken, renewed in time, and known to hold or not.

It is counted on the clock of the machine that has gone further, the monotonic one or the time of day, so that one that
stands or goes slowly does not lengthen it. When they do not agree a renewal has to tell whether it still holds.

A member that does not answer is evicted: its lease must have run out before others take over what it owns. A node that
is cut off from all others, but not from the store, goes on renewing its lease. A member that reaches most of them may
revoke it; one that reaches few may not, since it may be the one that is cut off. Of two halves the one may that
somebody outside asks for it, a *witness*: a service node, or a node that joins.

Those that do not answer a node that is about to join are evicted first, or it may not join yet.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable
from functools import partial
from math import inf
from typing import Protocol

from hsparse.clock import Clock
from hsparse.cluster.lease_object import (
    EVICTED,
    HELD,
    MARGIN,
    RECALLED,
    REVOKED,
    ClockReading,
    LeaseObjects,
    LeaseWatch,
    Membership,
)
from hsparse.cluster.membership_object import MembershipObject
from hsparse.compute import gather_all, staggered
from hsparse.dn.membership.peers import PATIENCE, NodeTasks, Peers, Witnesses
from hsparse.errors import HsparseError, Misconfigured, Misdirected, PreconditionFailed, Unanswered
from hsparse.wire.message import CheckMember

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
