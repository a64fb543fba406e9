"""Members that do not answer a node that joins: another member finds out about them, or their leases tell."""

from __future__ import annotations

import logging

import pytest

from hsparse.cluster.lease_object import LeaseObjects
from hsparse.errors import Misconfigured, Unanswered
from tests.support.cluster import Cluster, cluster


def members(made: Cluster, url: str) -> set[str]:
    """Return the URLs of the members as one of them knows them."""
    return set(made.members[url].membership.urls.values())


async def test_a_node_whose_own_link_is_broken_evicts_nobody() -> None:
    async with cluster(2) as (made, urls):
        newcomer = made.members["http://new"] = made.make("http://new")
        made.cut = {("http://new", urls[0])}
        with pytest.raises(Unanswered, match="is alive"):
            await newcomer.join("http://new")
        assert members(made, urls[1]) == set(urls)
        made.cut = set()
        await newcomer.join("http://new")
        await made.in_force("http://new", *urls)
        assert members(made, urls[0]) == {"http://new", *urls}


async def test_a_node_that_reaches_nobody_evicts_nobody_who_renews_a_lease() -> None:
    async with cluster(2) as (made, urls):
        newcomer = made.members["http://new"] = made.make("http://new")
        made.cut = {("http://new", url) for url in urls}
        with pytest.raises(Unanswered, match="is alive"):
            await newcomer.join("http://new")
        assert members(made, urls[0]) == members(made, urls[1]) == set(urls)


async def test_a_dead_member_is_evicted_by_one_that_answers(caplog: pytest.LogCaptureFixture) -> None:
    async with cluster(2) as (made, urls):
        dead = made.kill(urls[0]).id
        with caplog.at_level(logging.WARNING):
            started = await made.start()
        assert members(made, started) == {urls[1], started}
        evicted = f"{made.members[urls[1]].id} evicted {dead}"
        assert any(record.getMessage().startswith(evicted) for record in caplog.records)


async def test_of_two_members_that_do_not_reach_each_other_a_newcomer_chooses() -> None:
    async with cluster(2) as (made, urls):
        made.cut = {(urls[0], urls[1]), (urls[1], urls[0]), ("http://new", urls[0])}
        newcomer = made.members["http://new"] = made.make("http://new")
        await newcomer.join("http://new")
        assert members(made, "http://new") == {urls[1], "http://new"}


async def test_a_node_with_another_token_evicts_nobody() -> None:
    async with cluster(3) as (made, urls):
        before = {url: made.members[url].id for url in urls}
        newcomer = made.members["http://new"] = made.make("http://new", "another")
        with pytest.raises(Misconfigured, match="token"):
            await newcomer.join("http://new")
        assert {url: made.members[url].id for url in urls} == before
        assert all(made.members[url].in_force for url in urls)
        leases = LeaseObjects(made.store)
        assert {(await leases.read(id)).state for id in before.values()} == {"held"}
