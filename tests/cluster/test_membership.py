"""Epochs and node ids of a list of data nodes."""

from __future__ import annotations

from hsparse.cluster.membership import Membership, node_ids
from hsparse.cluster.rendezvous import rendezvous_owner

URLS = ("http://one:5101", "http://two:5101")


def test_equal_lists_have_equal_epochs() -> None:
    assert Membership.of_urls(URLS) == Membership.of_urls(tuple(URLS))
    assert Membership.of_urls(URLS).epoch == 92788249978580


def test_every_change_of_the_list_changes_the_epoch() -> None:
    lists = [URLS, URLS[::-1], URLS[:1], (*URLS, "http://three:5101"), ()]
    assert len({Membership.of_urls(one).epoch for one in lists}) == len(lists)


def test_ids_are_places_in_the_list() -> None:
    assert Membership.of_urls(URLS).nodes == node_ids(2) == ("dn-001", "dn-002")
    assert node_ids(1000)[-1] == "dn-1000"


def test_owners_are_those_of_the_nodes() -> None:
    members = Membership.of_urls(URLS)
    assert members.owner("a") == rendezvous_owner(("dn-001", "dn-002"), "a")
    assert Membership.of_one("dn-007").owner("a") == "dn-007"
