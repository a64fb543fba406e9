"""The store of a simulation: each process has a view of one store in memory, over the simulated network."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from hsparse.storage.object_store import Buffer, ObjectStore
from tests.simulation.simulated_network import FaultRates, SimulatedNetwork
from tests.simulation.virtual_loop import Process
from tests.testing.store_wrapper import StoreWrapper

R = TypeVar("R")

STORE = "store"
"""The store's name as the end of a link."""


class SimulatedStore(StoreWrapper):
    """One process's view of a store, which outlives it: a request that was sent may still be applied.

    `rates` are by method and key.
    """

    def __init__(
        self,
        store: ObjectStore,
        network: SimulatedNetwork,
        process: Process,
        rates: Callable[[str, str], FaultRates],
    ) -> None:
        super().__init__(store)
        self._network = network
        self._process = process
        self._rates = rates

    async def around(self, method: str, key: str, data: Buffer, call: Callable[[Buffer], Awaitable[R]]) -> R:
        sent, rates = bytes(data), self._rates(method, key)

        async def apply() -> R:
            return await call(sent)

        return await self._network.call(self._process, STORE, apply, rates)

    async def close(self) -> None:
        """Leave the store open."""
