"""A simulated cluster of data nodes that serve a store without asking each other: a fixed list of them.

Each service node has a list of its own, so that several data nodes may serve the same objects. Without leases their
caches are then stale, which the checker has to find.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from hsparse.cluster.membership import Membership
from hsparse.dn.data_settings import DataSettings
from hsparse.dn.service import DataService
from hsparse.sn.data_nodes import Owners
from hsparse.storage.memory import MemoryStore
from hsparse.storage.object_store import ObjectStore
from tests.simulation.service_operations import ServiceOperations
from tests.simulation.simulated_network import FaultRates, SimulatedNetwork, SimulatedNode
from tests.simulation.simulated_store import SimulatedStore
from tests.simulation.virtual_clock import VirtualClock
from tests.simulation.virtual_loop import Process, VirtualLoop

T = TypeVar("T")
SETTINGS = DataSettings(cache_size=2**20, workers=1)
CALM = FaultRates(slow=0.0)


@dataclass(slots=True)
class _Machine:
    process: Process
    node: Any


class FixedCluster:
    """Data nodes by id, each restarted under its id, and service nodes. `wrap` puts a store in place of a node's."""

    def __init__(
        self,
        loop: VirtualLoop,
        generator: random.Random,
        lists: Sequence[tuple[str, ...]],
        *,
        wrap: Callable[[ObjectStore], ObjectStore] = lambda store: store,
    ) -> None:
        self.loop = loop
        self.generator = generator
        self.rates = CALM
        self.network = SimulatedNetwork(loop, generator)
        self.store = MemoryStore(clock=VirtualClock(loop, generator))
        self._wrap = wrap
        self.data_nodes: dict[str, _Machine] = {}
        for id in dict.fromkeys(id for some in lists for id in some):
            self.start_data_node(id)
        self.service_nodes = [
            self._service_node(f"sn-{number}", some) for number, some in enumerate(lists, 1)
        ]

    def start_data_node(self, id: str) -> None:
        """Start a data node, after its kill too."""
        process = Process(id)
        view = SimulatedStore(self.store, self.network, process, lambda: self.rates)
        clock = VirtualClock(self.loop, self.generator)
        node = DataService(self._wrap(view), clock, SETTINGS, id=id)
        self.data_nodes[id] = _Machine(process, node)

    def _service_node(self, name: str, ids: tuple[str, ...]) -> _Machine:
        process = Process(name)

        def connect(id: str) -> SimulatedNode:
            def receiver() -> tuple[Process, Any]:
                machine = self.data_nodes[id]
                return machine.process, machine.node

            return SimulatedNode(self.network, process, receiver, lambda: self.rates)

        owners = Owners(Membership(1, ids), {id: connect(id) for id in ids})
        return _Machine(process, ServiceOperations(owners, VirtualClock(self.loop, self.generator)))

    async def request(self, work: Callable[[ServiceOperations], Awaitable[T]]) -> T:
        """Send a client's request to any service node."""
        chosen = self.generator.choice(self.service_nodes)

        async def answer() -> T:
            return await work(chosen.node)

        patience = FaultRates(slow=0.0, patience=60.0)
        return await self.network.call(None, chosen.process, answer, patience)
