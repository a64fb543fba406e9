"""A cluster whose membership is rebuilt while it runs, or damaged: nodes keep what they have, then join again."""

from __future__ import annotations

import asyncio

import pytest

from hsparse.clock import SystemClock
from hsparse.cluster.membership_object import KEY, MembershipObject, rebuild_membership
from hsparse.errors import Unanswered
from tests.dn.membership.test_member_node import create, read, write
from tests.support.cluster import TOKEN, Cluster, cluster, until


async def rebuilt(made: Cluster) -> None:
    """Rebuild the membership, and wait until every member has joined again."""
    before = {member.id for member in made.members.values()}
    await rebuild_membership(made.store, TOKEN, SystemClock())
    await until(lambda: not before & {member.id for member in made.members.values()})
    await made.in_force(*made.members)


async def test_members_join_again_after_a_rebuild() -> None:
    async with cluster(2) as (made, _):
        owners = made.owners()
        await create(owners)
        await write(owners, 1)
        await rebuilt(made)
        assert await read(owners) == {1}
        await write(owners, 2)
        await made.start()
        assert await read(made.owners("other")) == {2}
        assert len((await MembershipObject(made.store, TOKEN).read()).nodes) == 3


async def test_requests_during_a_rebuild_are_answered_and_lose_nothing() -> None:
    async with cluster(2) as (made, _):
        nodes = [made.owners(f"sn-{number}") for number in range(2)]
        await create(nodes[0])
        rebuilding = asyncio.create_task(rebuilt(made))
        number = 0
        while not rebuilding.done():
            number += 1
            await write(nodes[number % 2], number)
            assert [await read(one) for one in nodes] == [{number}] * 2
        await rebuilding


@pytest.mark.parametrize("damage", [b"{", None])
async def test_a_damaged_list_keeps_the_nodes_as_they_are(
    damage: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(2) as (made, urls):
        owners = made.owners()
        await create(owners)
        await write(owners, 1)
        await (made.store.delete(KEY) if damage is None else made.store.put(KEY, damage))
        await write(owners, 2)
        assert await read(owners) == {2}
        made.kill(urls[1])
        assert await read(owners) == {2}
        writing = asyncio.create_task(write(owners, 3))
        if damage is not None:
            await until(lambda: "could not be evicted" in caplog.text)
        await rebuilt(made)
        await writing
        assert await read(owners) == {3}
        await made.start()
        assert await read(made.owners("other")) == {3}


async def test_nobody_joins_beside_leases_without_a_list() -> None:
    async with cluster(1) as (made, _):
        await made.store.delete(KEY)
        with pytest.raises(Unanswered, match="--rebuild"):
            await made.start()
        await made.members.popitem()[1].close()
        await rebuilt(made)


async def test_leases_of_dead_nodes_without_a_list_are_waited_for() -> None:
    async with cluster(1) as (made, urls):
        made.kill(urls[0])
        await made.store.delete(KEY)
        url = await made.start()
        assert made.members[url].membership.nodes == (made.members[url].id,)
