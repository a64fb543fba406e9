"""A simulated cluster: data nodes that join by the store, and service nodes that find them there."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from hsparse.cluster.membership_object import MembershipObject, rebuild_membership
from hsparse.dn.data_settings import DataSettings
from hsparse.dn.membership.member_node import MemberNode
from hsparse.dn.membership.ownership import Ownership
from hsparse.dn.service import DataService
from hsparse.errors import HsparseError, Unanswered
from hsparse.sn.data_nodes.cluster_nodes import ClusterNodes
from hsparse.sn.data_nodes.owners import FixedNodes, Owners
from hsparse.storage.object_store import ObjectStore
from hsparse.versions.wrapping import with_versions
from tests.simulation.clients import ServiceOperations
from tests.simulation.simulated_network import FaultRates, SimulatedNetwork, SimulatedNode, SimulatedStore
from tests.simulation.version_clients import VersionedOperations
from tests.simulation.virtual_loop import Process, VirtualClock, VirtualLoop
from tests.testing.memory_store import MemoryStore

T = TypeVar("T")
SETTINGS = DataSettings(cache_size=2**20)
TOKEN = "secret"
RESTART = 1.0
"""Seconds after which a node is started again that could not join."""
CALM = FaultRates(slow=0.0, patience=5.0)
CLIENT = FaultRates(slow=0.0, patience=300.0)


@dataclass(slots=True, eq=False)
class Machine:
    """A process and the node in it: a `MemberNode`, or `ServiceOperations`; a whole server has both."""

    process: Process
    clock: VirtualClock
    node: Any = None
    error: str = ""
    """Why it could not join, the last time."""
    member: MemberNode | None = None
    is_server: bool = False
    ending: bool = False
    """Whether it is about to be killed, or leaves."""
    requests: int = 0
    """The requests of clients that it has not answered yet."""
    unready: bool = False
    """Whether clients are told to go elsewhere, because it is about to stop."""


class SimulatedCluster:
    """Data nodes and service nodes by name, over one store. `rates` holds between nodes, `store_rates` to the store.

    What is drawn from the seed is drawn by separate generators, so that a change of the code that draws one token more
    does not give every seed another meaning.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        seed: int,
        *,
        wrap: Callable[[ObjectStore], ObjectStore] = lambda store: store,
        settings: DataSettings = SETTINGS,
        versions: bool = False,
    ) -> None:
        self.loop = loop
        self._versions = versions
        self._settings = settings
        self._seed = seed
        self._generator = random.Random(f"requests {seed}")
        self.rates = self.store_rates = CALM
        self.put_rates: FaultRates | None = None
        """What holds for puts of data, if that differs."""
        self.network = SimulatedNetwork(loop, random.Random(f"network {seed}"), error=Unanswered)
        self.store = MemoryStore(clock=VirtualClock(loop, random.Random(f"store {seed}")))
        self.data_nodes: dict[str, Machine] = {}
        self.service_nodes: dict[str, Machine] = {}
        self.longest = 0.0
        """The most seconds that a client has waited for an answer."""
        self.rebuilding = 0
        """How many operators are rebuilding the membership."""
        self._wrap = wrap
        self._count = 0

    # --- nodes ------------------------------------------------------------------------------------------

    def start_data_node(self) -> Machine:
        """Start a data node, which joins."""
        machine = self._machine("dn")
        self.data_nodes[machine.process.name] = machine
        view, clock = self._view(machine.process), machine.clock

        def make(ownership: Ownership) -> DataService:
            return self._service(view, clock, ownership)

        async def start() -> None:
            while True:
                machine.node = MemberNode(make, view, clock, TOKEN, self._connect(machine))
                try:
                    await machine.node.join(machine.process.name)
                except HsparseError as error:
                    machine.error = str(error)
                    await asyncio.sleep(RESTART)
                else:
                    break
            await machine.node.unfit.wait()
            machine.ending = True
            self.stop_data_node(machine)

        self.loop.spawn(machine.process, start())
        return machine

    def stop_data_node(self, machine: Machine) -> None:
        """Let a data node leave, as SIGTERM does; it ends when it has left."""

        async def stop() -> None:
            try:
                await machine.node.close()
            finally:  # a process ends, also when the store fails while it leaves
                machine.process.kill()

        self.loop.spawn(machine.process, stop())

    def start_service_node(self) -> Machine:
        """Start a service node."""
        machine = self._machine("sn")
        self.service_nodes[machine.process.name] = machine
        stored = MembershipObject(self._view(machine.process), TOKEN)
        nodes = ClusterNodes(stored, machine.clock, self._connect(machine))
        machine.node = self._operations(Owners(nodes), machine.clock)
        return machine

    def stop_service_node(self, machine: Machine) -> None:
        """Let a service node answer what it has taken and end, as SIGTERM does; other requests go elsewhere."""
        machine.unready = True

        async def stop() -> None:
            while machine.requests:  # noqa: ASYNC110 - nobody is told of the last one
                await asyncio.sleep(0.1)
            machine.process.kill()

        self.loop.spawn(machine.process, stop())

    def start_server(self) -> Machine:
        """Start a whole server; it answers clients once the other members know of it."""
        machine = self._machine("serve")
        machine.is_server = True
        self.service_nodes[machine.process.name] = machine
        view, clock = self._view(machine.process), machine.clock

        def make(ownership: Ownership) -> DataService:
            return self._service(view, clock, ownership)

        def connect(url: str) -> SimulatedNode:
            raise AssertionError("a server sends to nobody")

        async def start() -> None:
            while machine.node is None:
                member = machine.member = MemberNode(make, view, clock, "", connect, server=True)
                try:
                    await member.join()
                except HsparseError as error:
                    machine.error = str(error)
                    await asyncio.sleep(RESTART)
                    continue
                await member.wait_in_force()
                owners = Owners(FixedNodes({"local": member}))
                machine.node = self._operations(owners, clock)

        self.loop.spawn(machine.process, start())
        return machine

    def stop_server(self, machine: Machine) -> None:
        """Let a server leave, as SIGTERM does; it ends when it has left."""

        async def stop() -> None:
            try:
                if machine.member is not None:
                    await machine.member.close()
            finally:
                machine.process.kill()

        self.loop.spawn(machine.process, stop())

    def rebuild(self) -> None:
        """Let an operator rebuild the membership, again and again until that succeeds."""
        machine = self._machine("operator")

        async def rebuild() -> None:
            while True:
                try:
                    await rebuild_membership(self._view(machine.process), TOKEN, machine.clock)
                except HsparseError:
                    await asyncio.sleep(RESTART)
                else:
                    self.rebuilding -= 1
                    return

        self.rebuilding += 1
        self.loop.spawn(machine.process, rebuild())

    def living(self, machines: dict[str, Machine]) -> list[Machine]:
        """Return those that are not dead."""
        return [one for one in machines.values() if not one.process.dead]

    def _machine(self, kind: str) -> Machine:
        self._count += 1
        process = Process(f"{kind}{self._count}")
        generator = random.Random(f"{process.name} {self._seed}")
        return Machine(process, VirtualClock(self.loop, generator))

    def _service(self, view: ObjectStore, clock: VirtualClock, ownership: Ownership) -> DataService:
        if self._versions:
            view, ownership = with_versions(view, ownership, clock)
        return DataService(view, clock, self._settings, ownership=ownership)

    def _operations(self, owners: Owners, clock: VirtualClock) -> ServiceOperations:
        return (VersionedOperations if self._versions else ServiceOperations)(owners, clock)

    def _view(self, process: Process) -> ObjectStore:
        return self._wrap(SimulatedStore(self.store, self.network, process, self._rates_of))

    def _rates_of(self, method: str, key: str) -> FaultRates:
        """Return the rates of a request to the store: puts of data may have others than the members' own objects."""
        is_data = method.startswith("put") and "/.cluster/" not in key
        return self.put_rates or self.store_rates if is_data else self.store_rates

    def _connect(self, sender: Machine) -> Callable[[str], SimulatedNode]:
        def connect(url: str) -> SimulatedNode:
            def receiver() -> tuple[Process, Any]:
                machine = self.data_nodes[url]
                return machine.process, machine.node

            return SimulatedNode(self.network, sender.process, receiver, lambda: self.rates)

        return connect

    # --- clients ----------------------------------------------------------------------------------------

    async def request(self, work: Callable[[ServiceOperations], Awaitable[T]]) -> T:
        """Send a client's request to a service node; `Unanswered` if that dies."""
        ready = [one for one in self.living(self.service_nodes) if one.node and not one.unready]
        chosen = self._generator.choice(ready)
        chosen.requests += 1
        began = self.loop.time()

        async def answer() -> T:
            return await work(chosen.node)

        try:
            return await self.network.call(None, chosen.process, answer, CLIENT)
        finally:
            chosen.requests -= 1
            self.longest = max(self.longest, self.loop.time() - began)

    # --- the end of faults ------------------------------------------------------------------------------

    async def recover(self) -> None:
        """End all faults, and wait until every data node that lives owns its part.

        One that was killed may still be a member: nobody has missed it.
        """
        self.network.heal()
        self.rates = self.store_rates = CALM
        self.put_rates = None
        for machine in [*self.data_nodes.values(), *self.service_nodes.values()]:
            machine.clock.drift(1.0, both=True)
            if machine.process.frozen:
                machine.process.thaw(self.loop)
        while not self._settled():
            if not self.living(self.data_nodes) and not all(
                one.is_server for one in self.service_nodes.values()
            ):
                self.start_data_node()
            await asyncio.sleep(1)

    def describe(self) -> str:
        """Return what the data nodes that live know of each other."""
        lines = []
        servers = [machine for machine in self.living(self.service_nodes) if machine.is_server]
        for machine in [*self.living(self.data_nodes), *servers]:
            node = machine.member or machine.node
            if node is None:
                lines.append(f"{machine.process.name} has not begun")
            else:
                force = "in force" if node.in_force else "not in force"
                lines.append(
                    f"{machine.process.name} is {node.id}, {force}, and knows {node.membership} {machine.error}"
                )
        return "\n".join(lines)

    def _settled(self) -> bool:
        nodes = [machine.node for machine in self.living(self.data_nodes)]
        servers = [machine for machine in self.living(self.service_nodes) if machine.is_server]
        nodes += [machine.member for machine in servers]
        if self.rebuilding or not all(node is not None and node.in_force for node in nodes):
            return False
        if not all(machine.node for machine in servers):
            return False
        return len({node.membership.epoch for node in nodes}) == 1 and not any(
            node.unfit.is_set() for node in nodes
        )
