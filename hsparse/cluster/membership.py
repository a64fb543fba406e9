"""Membership: the data nodes of an installation, and which of them owns what, in one epoch.

The store has the authority (`hsparse.cluster.membership_object`): each change of who owns what raises the epoch by one.
Nodes compare epochs, so that a message that was planned for another membership is found out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hsparse.cluster.rendezvous import rendezvous_order, rendezvous_owner
from hsparse.model.schema import FIRST_SCHEMA, Schema


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
