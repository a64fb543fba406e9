"""Ownership by rendezvous hashing (highest random weight; Thaler and Ravishankar, 1998). Pure.

Every node computes the same owner from the same set of nodes, whatever their order. When a node joins, it takes
over an equal share of names from each other node; when one leaves, only its names move.
Ownership is a hint for caching: commits are conditional puts, so two owners of a name are slow, never wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b


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
