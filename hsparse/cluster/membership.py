"""Membership: the data nodes, and the epoch by which nodes check that they agree on them.

Today the operator gives every node the same list of URLs, and the epoch is a hash of that list. Two nodes with the
same list have the same epoch, without asking each other; with different lists they have different epochs, and a
data node refuses the other's messages (`Moved`). Epochs are compared for equality only. They have no order: a
changed list has an arbitrary other epoch, and the former list has its former epoch again.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

from hsparse.cluster.rendezvous import rendezvous_owner


@dataclass(frozen=True, slots=True)
class Membership:
    """The data nodes of one epoch, by id. Memberships with equal epochs have equal nodes."""

    epoch: int
    nodes: tuple[str, ...]

    @classmethod
    def of_urls(cls, urls: tuple[str, ...]) -> Membership:
        """Return the membership of a list of data nodes: ids by place in the list, epoch by hash of the list."""
        digest = blake2b("\n".join(urls).encode(), digest_size=6).digest()
        return cls(int.from_bytes(digest, "big"), node_ids(len(urls)))

    @classmethod
    def of_one(cls, node: str) -> Membership:
        """Return the membership of a server whose only data node is in the same process."""
        return cls(0, (node,))

    def owner(self, name: str) -> str:
        """Return the node that owns `name` (an object id, a domain path, a chunk's key)."""
        return rendezvous_owner(self.nodes, name)


def node_ids(count: int) -> tuple[str, ...]:
    """Return the ids of the data nodes of a list of this length: dn-001, dn-002 and so on."""
    return tuple(f"dn-{place:03}" for place in range(1, count + 1))
