"""What a cluster asks of its store while no client asks anything of it."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from hsparse.dn.membership.ownership import SoleOwnership
from hsparse.dn.service import DataService
from hsparse.storage.object_store import ObjectStore
from tests.simulation.simulated_cluster import SETTINGS, SimulatedCluster
from tests.simulation.virtual_loop import VirtualLoop
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore

PERIODS = 100


def idle(data_nodes: int, servers: int) -> list[CountingStore]:
    """Return what each node of a cluster that nobody uses asks the store in so many periods of its lease."""
    loop, stores = VirtualLoop(), list[CountingStore]()

    def counted(store: ObjectStore) -> ObjectStore:
        stores.append(CountingStore(store))
        return stores[-1]

    cluster = SimulatedCluster(loop, 1, wrap=counted)

    async def main() -> None:
        for _ in range(data_nodes):
            cluster.start_data_node()
        for _ in range(servers):
            cluster.start_server()
        await cluster.recover()
        await asyncio.sleep(10)
        for store in stores:
            store.reset()
        await asyncio.sleep(PERIODS)

    loop.run(main(), seconds=600)
    return stores


def test_a_data_node_puts_its_lease_once_a_period() -> None:
    for store in idle(3, 0):
        assert set(store.calls) == {"put_if_match"}
        assert PERIODS - 2 <= store.calls["put_if_match"] <= PERIODS + 1


def test_a_server_alone_on_a_bucket_puts_its_lease_once_a_period() -> None:
    [store] = idle(0, 1)
    assert set(store.calls) == {"put_if_match"}
    assert PERIODS - 2 <= store.calls["put_if_match"] <= PERIODS + 1


def test_members_beside_a_server_read_the_list_and_a_lease_too() -> None:
    """A watched lease is seen to be renewed after a few looks."""
    for store in idle(2, 1):
        assert store.calls["put_if_match"] <= PERIODS + 1
        assert store.calls["get"] <= 2.2 * PERIODS


REQUESTS_A_PERIOD = 1
"""The most requests to the store that a data node sends in a lease period."""
COST_PERIODS = 40
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
        await asyncio.sleep(COST_PERIODS * PERIOD)
        calls.update(store.calls)

    loop.run(main())
    assert set(calls) == {"put_if_match"}
    assert 0 < calls["put_if_match"] <= count * COST_PERIODS * REQUESTS_A_PERIOD


def test_a_data_node_alone_asks_nothing_of_its_store() -> None:
    loop, store = VirtualLoop(), CountingStore(MemoryStore())

    async def main() -> None:
        cluster = SimulatedCluster(loop, 1)
        machine = cluster.start_service_node()
        node = DataService(store, machine.clock, SETTINGS, ownership=SoleOwnership())
        await asyncio.sleep(COST_PERIODS * PERIOD)
        await node.close()

    loop.run(main())
    assert not store.calls
