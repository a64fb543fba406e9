"""Ownership by rendezvous hashing."""

from __future__ import annotations

from collections import Counter

from hsparse.cluster.membership import Membership

NAMES = [f"db/1/d/2/{i}_{i * 7}" for i in range(3000)]


def test_ownership_is_even() -> None:
    nodes = ("dn-001", "dn-002", "dn-003")
    counts = Counter(Membership(1, nodes).owner(name) for name in NAMES)
    assert set(counts) == set(nodes)
    assert min(counts.values()) > 850


def test_a_new_node_only_takes_over() -> None:
    before = Membership(1, ("dn-001", "dn-002"))
    after = Membership(2, ("dn-001", "dn-002", "dn-003"))
    moved = [name for name in NAMES if before.owner(name) != after.owner(name)]
    assert all(after.owner(name) == "dn-003" for name in moved)
    assert 800 < len(moved) < 1200


def test_the_order_of_nodes_does_not_matter() -> None:
    one, two = Membership(1, ("a", "b", "c")), Membership(1, ("c", "a", "b"))
    assert [one.owner(name) for name in NAMES] == [two.owner(name) for name in NAMES]
