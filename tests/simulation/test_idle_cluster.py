"""What leases cost the store, counted on virtual time: one request a node and period."""

from __future__ import annotations

import asyncio

from hsparse.storage.object_store import ObjectStore
from tests.simulation.simulated_cluster import SimulatedCluster
from tests.simulation.virtual_loop import VirtualLoop
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
