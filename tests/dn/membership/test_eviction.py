"""Members that do not reach each other: who may evict whom, by most of the members or by a witness."""

from __future__ import annotations

import asyncio

import pytest

from hsparse.cluster.lease_object import LeaseObjects
from hsparse.cluster.membership_object import MembershipObject
from hsparse.dn.membership.member_node import MemberNode
from hsparse.errors import Unanswered
from hsparse.wire.message import CheckMember
from tests.support.cluster import TOKEN, Cluster, cluster


def parted(made: Cluster, urls: list[str]) -> tuple[MemberNode, MemberNode]:
    """Cut two members off from each other; return them in the order of their ids."""
    made.cut |= {(urls[0], urls[1]), (urls[1], urls[0])}
    first, second = sorted((made.members[url] for url in urls), key=lambda member: member.id)
    return first, second


async def ask(asked: MemberNode, about: MemberNode) -> bool:
    """Ask a member as a witness does."""
    return await asked.send(CheckMember(asked.membership.epoch, about.id))


async def nodes(made: Cluster) -> tuple[str, ...]:
    return (await MembershipObject(made.store, TOKEN).read()).nodes


async def test_of_two_halves_none_evicts_the_other_by_itself() -> None:
    async with cluster(2) as (made, urls):
        first, second = parted(made, urls)
        for one, other in ((first, second), (second, first)):
            with pytest.raises(Unanswered):
                await one._adopted.is_alive(other.id)
        assert set(await nodes(made)) == {first.id, second.id}


@pytest.mark.parametrize("chosen", [0, 1])
async def test_of_two_halves_the_one_evicts_that_a_witness_asks(chosen: int) -> None:
    async with cluster(2) as (made, urls):
        pair = parted(made, urls)
        kept, other = pair[chosen], pair[1 - chosen]
        gone = other.id
        alone = asyncio.create_task(kept._adopted.is_alive(gone))
        await asyncio.sleep(0)
        assert not await ask(kept, other), "it does not wait for what it would find out without a witness"
        await asyncio.gather(alone, return_exceptions=True)
        assert gone not in await nodes(made)
        made.cut = set()
        await made.in_force(*urls)


async def test_two_halves_with_witnesses_do_not_evict_each_other() -> None:
    async with cluster(2) as (made, urls):
        first, second = parted(made, urls)
        await asyncio.gather(ask(first, second), ask(second, first), return_exceptions=True)
        assert len(await nodes(made)) == 1
        made.cut = set()
        await made.in_force(*urls)
        assert len(await nodes(made)) == 2


async def test_a_member_whose_lease_was_revoked_evicts_nobody() -> None:
    async with cluster(2) as (made, urls):
        first, second = parted(made, urls)
        leases = LeaseObjects(made.store)
        while (await leases.read(first.id)).state != "revoked":
            await leases.revoke(first.id, await leases.read(first.id))
        with pytest.raises(Unanswered):
            await ask(first, second)
        assert second.id in await nodes(made)


async def test_a_member_that_was_evicted_meanwhile_evicts_nobody() -> None:
    async with cluster(2) as (made, urls):
        first, second = parted(made, urls)
        leases = LeaseObjects(made.store)
        evicting = asyncio.create_task(ask(first, second))
        async with asyncio.timeout(20):
            while (await leases.read(second.id)).state != "revoked":  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0)
        while (await leases.read(first.id)).state != "evicted":
            await leases.evict(first.id, await leases.read(first.id))
        with pytest.raises(Unanswered):
            await evicting
        assert second.id in await nodes(made)


async def test_of_three_members_the_one_that_two_do_not_reach_goes() -> None:
    async with cluster(3) as (made, urls):
        lonely = made.members[urls[2]]
        made.cut = {pair for url in urls[:2] for pair in ((url, urls[2]), (urls[2], url))}
        with pytest.raises(Unanswered):
            await ask(lonely, made.members[urls[0]])
        gone = lonely.id
        assert not await ask(made.members[urls[0]], lonely)
        assert gone not in await nodes(made)
