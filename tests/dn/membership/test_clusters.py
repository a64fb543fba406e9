"""Nodes and servers that share a store: who may join, and what a rebuilt membership changes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from hsparse.clock import SystemClock
from hsparse.cluster.lease_object import LeaseObjects
from hsparse.cluster.membership_object import KEY, MembershipObject, rebuild_membership
from hsparse.dn.service import DataService
from hsparse.errors import Misconfigured, Misdirected, Unanswered
from hsparse.model.schema import Schema
from hsparse.sn.data_nodes import cluster_nodes
from hsparse.sn.data_nodes.owners import FixedNodes, Owners
from hsparse.storage.object_store import ObjectStore
from hsparse.wire.chunk_info_message import GetChunkVersion
from hsparse.wire.message import GetInfo, Routed
from hsparse.wire.record_message import ReadObjects
from tests.dn.membership.test_members import IDS, create, filled, read, write
from tests.support.cluster import TOKEN, Cluster, cluster, until
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore


async def raise_schema(store: ObjectStore) -> int:
    """Let a newer hsparse have joined, which raised the schema and is gone again; return the epoch."""
    form = json.loads((await store.get(KEY)).data)
    form["schema"], form["epoch"] = Schema(2).to_json(), form["epoch"] + 1
    await store.put(KEY, json.dumps(form).encode())
    return int(form["epoch"])


async def newer() -> Schema:
    raise Misconfigured("The store needs a newer hsparse.")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"token": "guess"}, "HSPARSE_NODE_TOKEN"),
        ({"buckets": ("y",)}, "--bucket x"),
        ({"buckets": ("x",), "schema": newer}, "newer hsparse"),
        ({"buckets": ("x",), "version": 2}, "speaks messages of version 1, but this hsparse"),
    ],
)
async def test_who_is_refused_leaves_no_trace(options: dict[str, object], named: str) -> None:
    made = Cluster()
    url = await made.start(buckets=("x",))
    before = await MembershipObject(made.store, TOKEN).read()
    stranger = made.make("http://stranger", **options)  # type: ignore[arg-type]
    with pytest.raises(Misconfigured, match=named):
        await stranger.join("http://stranger")
    assert await MembershipObject(made.store, TOKEN).read() == before
    assert await LeaseObjects(made.store).nodes() == list(before.nodes)
    await stranger.close()
    await made.members[url].close()


async def test_a_bucket_is_added_node_by_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Data nodes first, then the service nodes: nobody is asked for a bucket that it does not have."""
    monkeypatch.setattr(cluster_nodes, "MEMBERSHIP_READ_SECONDS", 0.0)
    async with cluster(2) as (made, urls):
        old, new = made.owners(), made.owners("new", buckets=("x",))
        await create(old)
        for number, url in enumerate(urls):
            refused = await new.readiness_error()
            assert "--bucket x" in str(refused)
            with pytest.raises(Misconfigured, match="--bucket x"):
                await read(new)
            await made.start(buckets=("x",))
            await made.leave(url)
            await write(old, number)
            assert await read(old) == {number}
        assert await new.readiness_error() is None
        assert await read(new) == {1}
        assert await old.readiness_error() is None


async def test_a_service_node_with_another_token_is_not_ready_until_the_nodes_have_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cluster_nodes, "MEMBERSHIP_READ_SECONDS", 0.0)
    async with cluster(1) as (made, urls):
        stranger = made.owners("stranger", token="guess")
        for _ in range(3):
            assert "HSPARSE_NODE_TOKEN" in str(await stranger.readiness_error())
        with pytest.raises(Misconfigured, match="HSPARSE_NODE_TOKEN"):
            await read(stranger)
        told = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
        assert len(told) == 1
        assert "HSPARSE_NODE_TOKEN" in told[0]
        assert "guess" not in caplog.text
        assert TOKEN not in caplog.text
        await made.leave(urls[0])
        assert "There is no data node" in str(await stranger.readiness_error())


async def test_a_service_node_of_another_version_is_not_ready_until_the_nodes_have_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nodes that are gone do not count, as soon as their leases have run out."""
    monkeypatch.setattr(cluster_nodes, "MEMBERSHIP_READ_SECONDS", 0.0)
    async with cluster(1) as (made, urls):
        await create(made.owners())
        later = made.owners("later", version=2)
        with pytest.raises(Misconfigured, match="speaks messages of version 1, but this hsparse"):
            await read(later)
        made.kill(urls[0])
        member = made.members["http://later"] = made.make("http://later", version=2)
        await member.join("http://later")
        await made.in_force("http://later")
        assert await later.readiness_error() is None
        await write(later, 7)
        assert await read(later) == {7}
        with pytest.raises(Misconfigured, match="speaks messages of version 2, but this hsparse"):
            await read(made.owners())


async def test_a_member_that_adopts_a_newer_schema_leaves() -> None:
    async with cluster(2) as (made, urls):
        members = [made.members[url] for url in urls]
        epoch = await raise_schema(made.store)
        with suppress(Misdirected):  # if it has left before it comes to the message
            await members[0].send(Routed(members[0].id, epoch, ReadObjects(())))
        await until(lambda: all(member.unfit.is_set() for member in members))
        for member in members:
            assert "newer hsparse" in str(member.refused)
            await member.leave()
        assert (await MembershipObject(made.store, TOKEN).read()).members == ()
        assert await LeaseObjects(made.store).nodes() == []


async def test_a_server_whose_schema_is_raised_answers_why() -> None:
    async with cluster(0) as (made, _):
        name = await made.serve()
        server = made.members[name]
        await server._adopted.catch_up(await raise_schema(made.store))
        assert server.unfit.is_set()
        with pytest.raises(Misconfigured, match="newer hsparse"):
            await server.send(ReadObjects(()))
        await until(lambda: not server.in_force)
        assert (await server.send(GetInfo())).id == server.id


@pytest.mark.parametrize("schema", [None, newer])
async def test_who_joins_again_reads_the_needs_again(
    schema: Callable[[], Awaitable[Schema]] | None,
) -> None:
    made = Cluster(MemoryStore())
    url = await made.start()
    member = made.members[url]
    id, member._schema = member.id, schema
    await LeaseObjects(made.store).delete(id)
    await MembershipObject(made.store, TOKEN).remove(id)
    await until(lambda: member.unfit.is_set() or member.id != id)
    assert member.unfit.is_set() is (schema is not None)
    await member.close()


async def rebuilt(made: Cluster) -> None:
    """Rebuild the membership, and wait until every member has joined again."""
    before = {member.id for member in made.members.values()}
    await rebuild_membership(made.store, TOKEN, SystemClock())
    await until(lambda: not before & {member.id for member in made.members.values()})
    await made.in_force(*made.members)


async def test_members_join_again_after_a_rebuild() -> None:
    async with cluster(2) as (made, _):
        owners = await filled(made, 1)
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
async def test_a_damaged_list_keeps_the_nodes(damage: bytes | None, caplog: pytest.LogCaptureFixture) -> None:
    async with cluster(2) as (made, urls):
        owners = await filled(made, 1)
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
        owners = await filled(made, 1)
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
