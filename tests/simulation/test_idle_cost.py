"""What a cluster asks of its store while no client asks anything of it."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from hsparse.dn.membership.ownership import SoleOwnership
from hsparse.dn.service import DataService
from tests.simulation.simulated_cluster import SETTINGS, SimulatedCluster
from tests.simulation.virtual_loop import VirtualLoop
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore

REQUESTS_A_PERIOD = 1
"""The most requests to the store that a data node sends in a lease period."""
PERIODS = 40
PERIOD = 1.0
"""Seconds of a lease period by default."""


@pytest.mark.parametrize("count", [1, 3])
def test_an_idle_cluster_renews_its_leases_and_asks_nothing_else(count: int) -> None:
    loop, calls = VirtualLoop(), Counter[str]()
    cluster = SimulatedCluster(loop, 1)
    cluster.store = store = CountingStore(cluster.store)  # type: ignore[assignment]

    async def main() -> None:
        for _ in range(count):
            cluster.start_data_node()
        for _ in range(2):
            cluster.start_service_node()
        await cluster.recover()
        await asyncio.sleep(PERIOD)
        store.reset()
        await asyncio.sleep(PERIODS * PERIOD)
        calls.update(store.calls)

    loop.run(main())
    assert set(calls) == {"put_if_match"}
    assert 0 < calls["put_if_match"] <= count * PERIODS * REQUESTS_A_PERIOD


def test_a_data_node_alone_asks_nothing_of_its_store() -> None:
    loop, store = VirtualLoop(), CountingStore(MemoryStore())

    async def main() -> None:
        cluster = SimulatedCluster(loop, 1)
        machine = cluster.start_service_node()
        node = DataService(store, machine.clock, SETTINGS, ownership=SoleOwnership())
        await asyncio.sleep(PERIODS * PERIOD)
        await node.close()

    loop.run(main())
    assert not store.calls
