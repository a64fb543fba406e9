"""The membership of a cluster, and the owner of each name by rendezvous hashing.

A membership is the set of data nodes in one epoch. The store holds the valid one (`hsparse.cluster.membership_object`).
Each change of ownership raises the epoch, so a message that was planned for another membership is detected.

Rendezvous hashing (highest random weight; Thaler and Ravishankar, 1998): every node computes the same owner from the
same set, and a node that joins or leaves moves only its own names. Ownership is a hint for caching: commits are
conditional puts, so two owners of a name make commits slow, but never wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b

from hsparse.model.schema import FIRST_SCHEMA, Schema


def rendezvous_owner(nodes: Sequence[str], name: str) -> str:
    """Return the id of the node with the highest weight for `name`: an object id, a domain path, or a chunk's key."""
    if len(nodes) == 1:
        return nodes[0]
    return max(nodes, key=lambda node: (rendezvous_weight(node, name), node))


def rendezvous_order(nodes: Sequence[str], name: str) -> list[str]:
    """Return the nodes by descending weight for `name`: the owner, then the nodes that own it if those before fail."""
    return sorted(nodes, key=lambda node: (rendezvous_weight(node, name), node), reverse=True)


@lru_cache(maxsize=65536)
def rendezvous_weight(node: str, name: str) -> int:
    """Return the weight of a node for a name: a 64-bit hash keyed by the node's id."""
    digest = blake2b(name.encode(), digest_size=8, key=node.encode()[:64]).digest()
    return int.from_bytes(digest, "big")


@dataclass(frozen=True, slots=True)
class Membership:
    """The data nodes of one epoch, by id. Memberships with equal epochs have equal `nodes`.

    `nodes` own objects. Nodes in `leaving` own nothing, but may still be storing changes that they had accepted. `urls`
    has the addresses of these nodes; if empty, all are in this process. `servers` are whole servers, whose data nodes
    answer only their own service nodes. Members send them no messages and communicate with them only through the store.
    """

    epoch: int
    nodes: tuple[str, ...]
    leaving: tuple[str, ...] = ()
    urls: Mapping[str, str] = field(default_factory=dict)
    secret: str = ""
    """The digest of the nodes' token."""
    servers: tuple[str, ...] = ()
    versions: Mapping[str, int] = field(default_factory=dict)
    """The version of the messages that each reachable member speaks."""
    buckets: frozenset[str] | None = None
    """The buckets, besides the first, that every data node serves; None if no data node lists its buckets."""
    schema: Schema = FIRST_SCHEMA
    """The schema that members must know in order to use the stored data."""

    @property
    def members(self) -> tuple[str, ...]:
        """The ids of all members, including leaving nodes and servers."""
        return (*self.nodes, *self.leaving, *self.servers)

    @property
    def reachable(self) -> tuple[str, ...]:
        """The ids of the members that answer messages."""
        return (*self.nodes, *self.leaving)

    @property
    def shared(self) -> bool:
        """Whether a server and other members change the same objects, so that no member may answer from its cache."""
        return bool(self.servers) and len(self.members) > 1

    def owner(self, name: str) -> str:
        """Return the node that owns `name` (an object id, a domain path, or a chunk's key); needs at least one node."""
        return rendezvous_owner(self.nodes, name)

    def stand_ins(self, node: str) -> tuple[str, ...]:
        """Return the other nodes in the order in which they replace a node that does not answer."""
        return tuple(other for other in rendezvous_order(self.nodes, node) if other != node)


NO_MEMBERS = Membership(0, ())
"""The membership of a store that no data node has joined yet."""
