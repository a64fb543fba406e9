"""Leases in the store: an object for each data node, which it renews by conditional put.

The object is JSON: `state`, `seconds`, `renewals`, and `epoch`, that of the membership that its holder has adopted. A
lease lasts `seconds` of its holder's monotonic clock, counted from before the renewal was sent. No clock is compared
with another machine's: whoever wants to take over overwrites the object, after which no renewal can succeed, and waits
until the holder's last lease must have run out. Only then it
notes in the object that the node is evicted, on condition that the holder has not come back meanwhile. A lease that is
*recalled* is overwritten, too: its holder adopts the newest membership, and renews it at once.

A membership is the data nodes in one epoch. The store has the authority (`hsparse.cluster.membership_object`): each
change of who owns what raises the epoch, by which a message that was planned for another membership is found out.

Ownership is by rendezvous hashing (highest random weight; Thaler and Ravishankar, 1998): every node computes the same
owner from the same set, and of a node that joins or leaves only its own names move. It is a hint for caching: commits
are conditional puts, so two owners of a name are slow, never wrong.

Of the two clocks of a machine either can be wrong: the monotonic one may stand while it is suspended, the time of day
may be set. A lease counts on what has passed at most, whoever waits for its end on what has passed at least.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from math import inf
from typing import Self

from hsparse.clock import Clock
from hsparse.errors import NotFound, PreconditionFailed
from hsparse.model.schema import FIRST_SCHEMA, Schema
from hsparse.storage.object_store import ObjectStore


def rendezvous_owner(nodes: Sequence[str], name: str) -> str:
    """Return the node of highest weight for `name` (an object id, a domain path, a chunk's key).

    `nodes` are node ids, at least one.
    """
    if len(nodes) == 1:
        return nodes[0]
    return max(nodes, key=lambda node: (rendezvous_weight(node, name), node))


def rendezvous_order(nodes: Sequence[str], name: str) -> list[str]:
    """Return the nodes by falling weight for `name`: its owner, then those that would own it if that were not there."""
    return sorted(nodes, key=lambda node: (rendezvous_weight(node, name), node), reverse=True)


@lru_cache(maxsize=65536)
def rendezvous_weight(node: str, name: str) -> int:
    """Return the weight of a node for a name: 64 bits of a hash keyed by the node's id."""
    digest = blake2b(name.encode(), digest_size=8, key=node.encode()[:64]).digest()
    return int.from_bytes(digest, "big")


@dataclass(frozen=True, slots=True)
class Membership:
    """The data nodes of one epoch, by id. Memberships with equal epochs have equal `nodes`.

    `nodes` own objects. Those that are `leaving` own nothing, but may still be storing what they had accepted. `urls`
    has the address of each of both kinds; without it all nodes are in this process. `servers` are whole servers, whose
    data nodes answer nobody else: no message reaches them, only what is in the store.
    """

    epoch: int
    nodes: tuple[str, ...]
    leaving: tuple[str, ...] = ()
    urls: Mapping[str, str] = field(default_factory=dict)
    secret: str = ""
    """A digest of the nodes' token."""
    servers: tuple[str, ...] = ()
    versions: Mapping[str, int] = field(default_factory=dict)
    """The version of the messages that each reachable member speaks."""
    buckets: frozenset[str] | None = None
    """The buckets besides the first that every data node serves, None where none says."""
    schema: Schema = FIRST_SCHEMA
    """What the members have to know of what is stored."""

    @property
    def members(self) -> tuple[str, ...]:
        """The ids of all members, those that leave and servers included."""
        return (*self.nodes, *self.leaving, *self.servers)

    @property
    def reachable(self) -> tuple[str, ...]:
        """The ids of the members that answer messages."""
        return (*self.nodes, *self.leaving)

    @property
    def shared(self) -> bool:
        """Whether a server and other members change the same objects: then no member may answer from its cache."""
        return bool(self.servers) and len(self.members) > 1

    def owner(self, name: str) -> str:
        """Return the node that owns `name` (an object id, a domain path, a chunk's key); there is at least one node."""
        return rendezvous_owner(self.nodes, name)

    def stand_ins(self, node: str) -> tuple[str, ...]:
        """Return the other nodes in the order in which they stand in for one that does not answer."""
        return tuple(other for other in rendezvous_order(self.nodes, node) if other != node)


NO_MEMBERS = Membership(0, ())
"""The membership of a store that no data node has joined yet."""


@dataclass(frozen=True, slots=True)
class ClockReading:
    """Both clocks of this machine, in seconds, as they were read one after the other."""

    monotonic: float
    day: float

    @classmethod
    def of(cls, clock: Clock) -> Self:
        """Read the clocks."""
        return cls(clock.monotonic(), clock.now())

    def most(self, clock: Clock) -> float:
        """Return the seconds that have passed since, by the clock that has gone further."""
        return max(clock.monotonic() - self.monotonic, clock.now() - self.day)

    def least(self, clock: Clock) -> float:
        """Return the seconds that have passed since, by the clock that has gone less far."""
        return min(clock.monotonic() - self.monotonic, clock.now() - self.day)

    def apart(self, later: ClockReading) -> float:
        """Return the seconds by which the time of day has gone further than the monotonic clock, or less far: < 0."""
        return (later.day - self.day) - (later.monotonic - self.monotonic)

    def jumped(self, later: ClockReading, tolerance: float) -> bool:
        """Say whether the clocks do not agree on what passed until `later`, by more than that part of it.

        A second counts as the least that has passed: clocks are read one after the other, and set by small steps.
        """
        passed = max(later.day - self.day, later.monotonic - self.monotonic, 1.0)
        return abs(self.apart(later)) > tolerance * passed


MARGIN = 1.1
"""By how much longer than the lease others wait: the holder's clock may be a tenth slower than theirs."""
MOST = 60.0
"""The most seconds of a lease."""
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
        """Seconds after which it has run out if it is not renewed, whatever the clocks are."""
        return self.seconds * MARGIN


def lease_key(node: str) -> str:
    """Return the key of a node's lease object."""
    return f"{PREFIX}{node}.json"


class LeaseObjects:
    """The lease objects of the data nodes of one store."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def take(self, node: str, seconds: float, epoch: int = 0) -> str:
        """Put the first lease of a node, and return its etag."""
        return await self._store.put_if_absent(lease_key(node), _encode(HELD, seconds, epoch))

    async def renew(self, node: str, etag: str, seconds: float, renewals: int, epoch: int = 0) -> str:
        """Renew a lease, and return its new etag; `PreconditionFailed` when another node has overwritten it."""
        return await self._store.put_if_match(lease_key(node), _encode(HELD, seconds, epoch, renewals), etag)

    async def nodes(self) -> list[str]:
        """Return the nodes that have a lease object, by a listing."""
        found = []
        async for page in self._store.list(PREFIX):
            found += [entry.key.removeprefix(PREFIX).removesuffix(".json") for entry in page.entries]
        return found

    async def read(self, node: str) -> Lease | None:
        """Return a node's lease, None when it has none (any more)."""
        try:
            stored = await self._store.get(lease_key(node))
        except NotFound:
            return None
        return _decode(stored.data, stored.etag)

    async def recall(self, node: str, lease: Lease) -> Lease | None:
        """Overwrite a lease as it was read, so that its holder looks at the membership; return what is there now."""
        return await self._overwrite(node, lease, RECALLED)

    async def revoke(self, node: str, lease: Lease) -> Lease | None:
        """Overwrite a lease as it was read, and return what is there now: another one if the holder was first."""
        return await self._overwrite(node, lease, REVOKED)

    async def evict(self, node: str, lease: Lease) -> bool:
        """Note that a node is evicted unless its lease has changed since it was read, `grace` seconds ago."""
        after = await self._overwrite(node, lease, EVICTED)
        return after is None or after.state == EVICTED

    async def delete(self, node: str) -> None:
        """Delete the lease of a node that holds none any more."""
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
    """Return the lease of an object; a damaged one counts as revoked, and as long as a lease can be."""
    try:
        form = json.loads(data)
        state, seconds, epoch = form["state"], float(form["seconds"]), int(form.get("epoch", 0))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return Lease(REVOKED, etag, MOST)
    if not (0 < seconds < inf and epoch >= 0):  # NaN is neither
        return Lease(REVOKED, etag, MOST)
    known = state in (HELD, RECALLED, EVICTED)
    return Lease(state if known else REVOKED, etag, min(seconds, MOST), epoch)


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
