"""Whole servers that share a store with each other, or with a cluster: no read is stale, and nothing is lost."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from hsparse.clock import SystemClock
from hsparse.dn.service import DataService
from hsparse.errors import Unanswered
from hsparse.sn.data_nodes.owners import FixedNodes, Owners
from hsparse.wire.chunk_info_message import GetChunkVersion
from tests.dn.membership.test_member_node import IDS, create, read, write
from tests.support.cluster import cluster, until
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore


async def write_until_known(owners: Owners, number: int) -> None:
    """Write, and again as long as it is not known whether that was done: a newcomer has taken the server's lease."""
    known = False
    while not known:
        with suppress(Unanswered):
            await write(owners, number)
            known = True


async def test_each_server_reads_what_the_other_wrote_at_once() -> None:
    async with cluster(0) as (made, _):
        await create(Owners(FixedNodes({"": DataService(made.store, SystemClock())})))
        servers = [made.server(await made.serve())]
        await write_until_known(servers[0], 1)
        assert await read(servers[0]) == {1}
        servers.append(made.server(await made.serve()))
        for number in range(2, 8):
            await write_until_known(servers[number % 2], number)
            assert [await read(one) for one in servers] == [{number}] * 2


async def test_a_server_beside_a_cluster_and_the_cluster_read_what_the_other_wrote() -> None:
    async with cluster(2) as (made, urls):
        owners = made.owners()
        await create(owners)
        await write(owners, 1)
        assert await read(owners) == {1}
        name = await made.serve()
        server = made.server(name)
        assert await read(server) == {1}
        for number in range(2, 8):
            if number == 4:
                await made.start()
            if number == 6:
                await made.leave(urls[0])
            await write_until_known((owners, server)[number % 2], number)
            assert (await read(owners), await read(server)) == ({number}, {number})
        await made.leave(name)
        await until(lambda: not any(member.membership.shared for member in made.members.values()))
        await made.in_force(*made.members)
        await write(owners, 9)
        assert await read(owners) == {9}


async def test_a_cluster_that_begins_beside_a_server() -> None:
    async with cluster(0) as (made, _):
        server = made.server(await made.serve())
        await create(server)
        await write(server, 1)
        await made.start()
        owners = made.owners()
        await write(owners, 2)
        assert await read(server) == {2}
        await write(server, 3)
        assert await read(owners) == {3}


async def test_changes_of_two_servers_at_once_are_all_made() -> None:
    async with cluster(0) as (made, _):
        servers = [made.server(await made.serve()) for _ in range(2)]
        await create(servers[0])
        writes = (write(servers[number % 2], number, IDS[number]) for number in range(len(IDS)))
        await asyncio.gather(*writes)
        for server in servers:
            records = await server.read(*IDS)
            found = [one.unwrap()["attributes"]["a"]["value"] for one in records]
            assert found == list(range(len(IDS)))


async def test_a_server_that_was_killed_is_replaced_and_missed() -> None:
    async with cluster(0) as (made, _):
        first = await made.serve()
        await create(made.server(first))
        made.kill(first)
        second = await made.serve()
        assert made.members[second].membership.servers == (made.members[second].id,)
        third = await made.serve()
        assert made.members[third].membership.shared
        made.kill(third)
        await until(lambda: not made.members[second].membership.shared)
        await write(made.server(second), 1)


async def test_a_single_server_reads_from_its_cache() -> None:
    store = CountingStore(MemoryStore())
    async with cluster(0, store) as (made, _):
        name = await made.serve()
        server = made.server(name)
        await create(server)
        await write_until_known(server, 1)  # a machine that is busy for longer than a lease may lose it
        store.reset()
        for _ in range(20):
            assert await read(server) == {1}
        assert set(store.calls) <= {"put_if_match"}, "nothing but renewals of its lease"


async def test_versions_of_chunks_are_not_kept_beside_another_server() -> None:
    async with cluster(0) as (made, _):
        name = await made.serve()
        node = made.members[name]
        dataset = "d-" + IDS[0][2:]
        version = await node.send(GetChunkVersion(dataset))
        assert await node.send(GetChunkVersion(dataset)) == version
        other = await made.serve()
        await until(lambda: node.membership.shared)
        during = await node.send(GetChunkVersion(dataset))
        assert during != await node.send(GetChunkVersion(dataset))
        await made.leave(other)
        await until(lambda: not node.membership.shared)
        after = await node.send(GetChunkVersion(dataset))
        assert after not in (version, during)
        assert await node.send(GetChunkVersion(dataset)) == after


async def test_a_dead_member_that_nobody_uses_is_evicted() -> None:
    async with cluster(3) as (made, urls):
        made.kill(urls[1])
        members = [made.members[url] for url in (urls[0], urls[2])]
        await until(lambda: all(len(member.membership.members) == 2 for member in members))
