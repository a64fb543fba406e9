"""A data node that leaves: not ready from the signal on, though it is a member until it has handed over."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import aiohttp

from hsparse.cli.data_node import serve_member
from hsparse.clock import SystemClock
from hsparse.cluster.membership_object import KEY
from hsparse.config import Settings, load_settings
from hsparse.dn.membership.member_node import MemberNode
from hsparse.dn.metrics import NodeMetrics, NodeState
from hsparse.dn.service import DataService
from hsparse.wire.remote_node import RemoteNode
from tests.testing.faulty_store import FaultyStore
from tests.testing.memory_store import MemoryStore

TOKEN = "secret"


def settings_of_a_member() -> Settings:
    settings = load_settings()
    return replace(
        settings,
        server=replace(settings.server, port=0),
        cluster=replace(settings.cluster, node_token=TOKEN),
    )


async def test_a_data_node_is_not_ready_while_it_leaves() -> None:
    store, clock, stop = FaultyStore(MemoryStore()), SystemClock(), asyncio.Event()
    node = MemberNode(
        lambda ownership: DataService(store, clock, ownership=ownership),
        store,
        clock,
        TOKEN,
        lambda url: RemoteNode(url, TOKEN),
    )
    metrics = NodeMetrics(lambda: NodeState(node.counters(), node.lease_age, len(node.membership.nodes), {}))
    serving = asyncio.create_task(serve_member(stop, node, settings_of_a_member(), metrics, None))
    await node.wait_in_force()
    url = node.membership.urls[node.id]
    async with aiohttp.ClientSession(url) as session:
        async with session.get("/readyz") as reply:
            assert reply.status == 200
        leaving = store.hang("put_if_match", KEY)
        removing = store.hang("put_if_match", KEY, applied=True)
        stop.set()
        for step in (leaving, removing):
            await step.entered.wait()
            async with session.get("/readyz") as reply:
                assert reply.status == 503
            async with session.get("/livez") as reply:
                assert reply.status == 200
            step.release()
    await serving
    await node.close()
