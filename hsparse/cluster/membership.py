"""Who is there, and who owns what: rendezvous hashing, pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b


@dataclass(frozen=True, slots=True)
class Membership:
    """The data nodes of one epoch, by id. Epochs only grow; equal epochs have equal nodes."""

    epoch: int
    nodes: tuple[str, ...]

    def owner(self, name: str) -> str:
        """Return the node that owns `name` (an object id, a domain path, a chunk's key)."""
        if len(self.nodes) == 1:
            return self.nodes[0]
        return max(self.nodes, key=lambda node: (_weight(node, name), node))


@lru_cache(maxsize=65536)
def _weight(node: str, name: str) -> int:
    digest = blake2b(name.encode(), digest_size=8, key=node.encode()[:64]).digest()
    return int.from_bytes(digest, "big")
