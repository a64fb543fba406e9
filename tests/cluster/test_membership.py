"""Owners and stand-ins of a membership."""

from __future__ import annotations

from hsparse.cluster.membership import Membership, rendezvous_owner

NAMES = [f"db/1/d/2/{i}" for i in range(200)]


def test_owners_are_those_of_the_nodes_that_stay() -> None:
    members = Membership(3, ("a", "b"), ("c",))
    assert members.members == ("a", "b", "c")
    assert {members.owner(name) for name in NAMES} == {"a", "b"}
    assert all(members.owner(name) == rendezvous_owner(("a", "b"), name) for name in NAMES)


def test_stand_ins_are_all_others_in_an_order_that_depends_on_the_node() -> None:
    members = Membership(3, tuple("abcdefgh"))
    orders = {node: members.stand_ins(node) for node in members.nodes}
    assert all({node, *order} == set(members.nodes) for node, order in orders.items())
    assert len({order[0] for order in orders.values()}) > 1, "not all load goes to the same one"
