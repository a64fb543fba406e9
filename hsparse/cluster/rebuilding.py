"""Rebuilding the membership, when its object is damaged or lost: nobody's lease holds when an empty one is put.

Nodes that run find their leases revoked, and join again by themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hsparse.clock import Clock, jitter
from hsparse.cluster.lease_object import Lease, LeaseObjects
from hsparse.cluster.lease_watch import LeaseWatch
from hsparse.cluster.membership import NO_MEMBERS, Membership
from hsparse.cluster.membership_object import MembershipObject, Seen
from hsparse.errors import Busy, PreconditionFailed
from hsparse.storage.object_store import ObjectStore

ATTEMPTS = 8
"""How often it is tried while nodes change the membership."""
GENERATION = 32
"""The bits of an epoch below those that a rebuilding counts up which cannot read the epoch of before."""


async def rebuild_membership(
    store: ObjectStore, token: str, clock: Clock, tell: Callable[[str], object] = lambda text: None
) -> Membership:
    """Revoke all leases, wait until they must have run out, and put a membership without members.

    Its epoch is larger than any that a node can have adopted. `Busy` if nodes keep changing the membership. `tell` is
    given a sentence before the wait.
    """
    stored, leases = MembershipObject(store, token), LeaseObjects(store)
    watch = LeaseWatch(leases, clock)
    for attempt in range(ATTEMPTS):
        seen = await stored.seen()
        held = {node: lease for node in await leases.nodes() if (lease := await leases.read(node))}
        if seen.etag is None and not held:
            return NO_MEMBERS
        longest = max((lease.grace for lease in held.values()), default=0.0)
        if held:
            tell(f"revoking {len(held)} leases, which takes up to {longest:.3g} s")
        await asyncio.gather(*(watch.run_out(node, one, may_revoke=True) for node, one in held.items()))
        try:
            view = await stored.replace(seen, _epoch_after(seen, list(held.values())))
        except PreconditionFailed:
            # A node has joined or left meanwhile: its lease holds. It may have been evicted by another rebuilding: of
            # two that go on in step neither ends.
            await asyncio.sleep(attempt * longest * jitter(clock))
            continue
        for node in held:
            await leases.delete(node)
        return view
    raise Busy("Data nodes kept changing the membership; try again.")


def _epoch_after(seen: Seen, leases: list[Lease]) -> int:
    """Return a larger epoch than that of the object and those in which leases were taken.

    A lease may tell an older epoch than its holder has adopted since. Without the object's own epoch the next one is so
    much larger that no node has come so far.
    """
    newest = max((lease.epoch for lease in leases), default=0)
    if seen.epoch is None:
        return ((newest >> GENERATION) + 1) << GENERATION
    return max(newest, seen.epoch) + 1
