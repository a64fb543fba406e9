"""The eviction of members that do not answer: a member's lease must run out before others take over its objects.

A node that is cut off from all other members, but not from the store, keeps renewing its lease. A member that reaches
more than half of the members may revoke this lease; a member that reaches fewer may be cut off itself. If a cluster
splits evenly, the half that an outside *witness* contacts (a service node, or a node that joins) may revoke the leases
of the other half.

A node may join only after members that do not answer it have been evicted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable
from functools import partial

from hsparse.clock import Clock
from hsparse.cluster.lease_object import (
    EVICTED,
    HELD,
    RECALLED,
    REVOKED,
    LeaseObjects,
    LeaseWatch,
)
from hsparse.cluster.membership import Membership
from hsparse.cluster.membership_object import MembershipObject
from hsparse.concurrency.gathering import gather_all
from hsparse.concurrency.staggered import staggered
from hsparse.dn.membership.lease_keeper import QUESTIONS_PER_MEMBER
from hsparse.dn.membership.peers import ANSWER_SECONDS, NodeTasks, Peers, Witnesses
from hsparse.errors import Misconfigured, Misdirected, Unanswered
from hsparse.wire.message import CheckMember

log = logging.getLogger(__name__)


class Eviction:
    """Evicts members of a cluster on behalf of this node, `own`."""

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
        """Evict the member `other` and return the new membership, or None if `other` is alive and may not be evicted.

        An eviction takes up to the grace of the lease. If two members revoke each other's leases, the member with the
        greater id gives up, so that only one is evicted. This node also gives up if it was evicted meanwhile.
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
        """Return None once the lease of `other` shows `epoch`, or the membership without `other` if the lease ends."""
        if await self._watch.follows(other, epoch):
            return None
        return await self._removed(other, own)

    async def expire(self, other: str, own: str) -> Membership | None:
        """Watch the lease of `other`; return None if it is renewed, otherwise the membership without `other`."""
        lease = await self._leases.read(other)
        if lease is not None and not await self._watch.run_out(other, lease, may_revoke=False):
            return None
        return await self._removed(other, own)

    async def expire_unlisted(self) -> None:
        """Wait until all leases in a store without a membership have ended; raise `Unanswered` if one is renewed."""
        for other in await self._leases.nodes():
            lease = await self._leases.read(other)
            if lease is not None and not await self._watch.run_out(other, lease, may_revoke=False):
                raise Unanswered(
                    f"The store has no list of members, but {other} renews a lease: try again; if that does not "
                    "help, run `hsparse nodes --rebuild`."
                )
            await self._leases.delete(other)

    async def _removed(self, other: str, own: str) -> Membership:
        after = await self._membership.remove(other)
        await self._leases.delete(other)
        log.warning("%s evicted %s, which did not answer; epoch %d", own, other, after.epoch)
        return after

    async def _holds(self, own: str, view: Membership, *others: str) -> bool:
        """Return whether this node's lease is HELD, RECALLED or in a state of `others`; True if it has not joined."""
        if own not in view.members:
            return True
        lease = await self._leases.read(own)
        return lease is not None and lease.state in (HELD, RECALLED, *others)

    async def _reaches_most(self, other: str, own: str, view: Membership, witnessed: bool) -> bool:
        """Return whether this node reaches more than half of the members, or exactly half of them and has a witness.

        Return True if all members are leaving, because then nobody owns anything.
        """
        if not view.nodes:
            return True
        asked = [id for id in view.nodes if id not in (other, own)]
        reached = await self._peers.answering(asked, view.epoch) | ({own} & set(view.nodes))
        if 2 * len(reached) == len(view.nodes):
            # A witness asks the members in turn, and waits for each.
            rounds = len(view.members) + 1
            return witnessed and await self._witnesses.ask_about(other, rounds * ANSWER_SECONDS)
        return 2 * len(reached) > len(view.nodes)


class AbsentMembers:
    """Finds out from members that answer, or else from leases, whether members that do not answer are gone."""

    def __init__(self, stored: MembershipObject, peers: Peers, eviction: Eviction, tasks: NodeTasks) -> None:
        self._stored = stored
        self._peers = peers
        self._eviction = eviction
        self._tasks = tasks

    async def evicted(self, id: str, view: Membership) -> Membership:
        """Have members that do not answer evicted before a node joins as `id`; return the remaining membership.

        Members that answer check the others, because this node's own network link may be at fault. If no member
        answers, this node watches the leases. `Unanswered` is raised for a member that is alive but does not answer
        this node, and `Misconfigured` if such a member has another token or version.
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
        """Let a member that answers check `absent`; return once `absent` is evicted, or after a short wait."""
        for one in (*view.stand_ins(absent), *view.leaving):
            if one not in answering:
                continue
            asking = partial(self._peers.send, one, CheckMember(view.epoch, absent))
            try:
                async with asyncio.timeout(2 * ANSWER_SECONDS):
                    # Ask repeatedly: the asked member must know that this node still reaches it.
                    if await staggered(
                        QUESTIONS_PER_MEMBER * (asking,),
                        2 * ANSWER_SECONDS / QUESTIONS_PER_MEMBER,
                        (Unanswered,),
                    ):
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
        """Evict the members `absent` when their leases run out; raise an error if a member renews its lease."""
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
    return Unanswered(f"The data node {other} at {view.urls[other]} is alive but does not answer this node.")
