"""Membership: the data nodes of an installation, and which of them owns what, in one epoch.

The store has the authority (`hsparse.cluster.membership_object`): each change of who owns what raises the epoch by one.
Nodes compare epochs, so that a message that was planned for another membership is found out.

Ownership by rendezvous hashing (highest random weight; Thaler and Ravishankar, 1998). Pure.

Every node computes the same owner from the same set of nodes, whatever their order. When a node joins, it takes
over an equal share of names from each other node; when one leaves, only its names move.
Ownership is a hint for caching: commits are conditional puts, so two owners of a name are slow, never wrong.

Time that has passed, by the two clocks of a machine: the monotonic one and the time of day.

Either can be wrong. A monotonic clock may stand while the machine is suspended, and the time of day may be set. A lease
counts on what has passed at most, whoever waits for its end on what has passed at least.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import Self

from hsparse.clock import Clock
from hsparse.model.schema import FIRST_SCHEMA, Schema


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
