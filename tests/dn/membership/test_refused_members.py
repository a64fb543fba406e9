"""Nodes that may not be members: they say why, and the store has no trace of them; who may not stay leaves."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from hsparse.cluster.lease_object import LeaseObjects
from hsparse.cluster.membership_object import KEY, MembershipObject
from hsparse.errors import Misconfigured, Misdirected
from hsparse.model.schema import Schema
from hsparse.sn.data_nodes import cluster_nodes
from hsparse.storage.object_store import ObjectStore
from hsparse.wire.message import GetInfo, Routed
from hsparse.wire.record_message import ReadObjects
from tests.dn.membership.test_member_node import create, read, write
from tests.support.cluster import TOKEN, Cluster, cluster, until
from tests.testing.memory_store import MemoryStore


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
        ({"buckets": ("x",), "version": 2}, "speaks version 1 of the messages, this hsparse 2"),
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
        with pytest.raises(Misconfigured, match="speaks version 1 of the messages, this hsparse 2"):
            await read(later)
        made.kill(urls[0])
        member = made.members["http://later"] = made.make("http://later", version=2)
        await member.join("http://later")
        await made.in_force("http://later")
        assert await later.readiness_error() is None
        await write(later, 7)
        assert await read(later) == {7}
        with pytest.raises(Misconfigured, match="speaks version 2 of the messages, this hsparse 1"):
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
async def test_who_joins_again_reads_again_what_the_store_needs(
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
