"""What goes wrong in a simulated cluster: faults drawn from the seed, each told with its time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any

from hsparse.cluster.lease_object import CLOCK_MARGIN
from hsparse.cluster.membership_object import KEY
from tests.simulation.simulated_cluster import CALM, Machine, SimulatedCluster
from tests.simulation.simulated_network import STORE, FaultRates

Fault = Callable[["Nemesis"], Coroutine[Any, Any, None]]
TAKES_OVER, JOINS = 10.0, 3.0
"""Seconds in which others have taken over from a node that is cut off, and in which it is a member again after that."""


@dataclass(slots=True)
class Nemesis:
    """Does faults to a cluster, and tells them in `told`."""

    cluster: SimulatedCluster
    generator: random.Random
    told: list[str] = field(default_factory=list)
    until: float = 0.0
    """When the last fault so far ends."""

    async def run(self, faults: list[Fault], pause: float) -> None:
        """Do the faults one after another, with pauses of about so many seconds; some overlap."""
        for fault in faults:
            await asyncio.sleep(self.generator.expovariate(1 / pause))
            await fault(self)

    async def wait(self) -> None:
        """Wait until all faults have ended."""
        await asyncio.sleep(max(0.0, self.until - self.cluster.loop.time()))

    def tell(self, text: str) -> None:
        """Note a fault, now."""
        self.told.append(f"{self.cluster.loop.time():.3f}: {text}")

    def after(self, seconds: float, end: Callable[[], None]) -> None:
        """End a fault later."""
        when = self.cluster.loop.time() + seconds
        self.until = max(self.until, when)
        self.cluster.loop.outside_at(when, end)

    def server(self) -> Machine | None:
        """Return a whole server that lives on, None if there is no other node that answers clients."""
        nodes = [
            one for one in self.cluster.living(self.cluster.service_nodes) if one.node and not one.ending
        ]
        servers = [one for one in nodes if one.is_server]
        return self.generator.choice(servers) if servers and len(nodes) > 1 else None

    def data_node(self) -> Machine | None:
        """Return a data node that lives on, None if it is the last one."""
        living = [one for one in self.cluster.living(self.cluster.data_nodes) if not one.ending]
        return self.generator.choice(living) if len(living) > 1 else None


def kill_soon(nemesis: Nemesis, machine: Machine) -> None:
    """Kill a process at any await."""
    nemesis.tell(f"kill {machine.process.name}")
    machine.process.kill_after(nemesis.generator.randrange(60))
    nemesis.after(0.5, machine.process.kill)


def pause_seconds(nemesis: Nemesis) -> float:
    """Return for how long to pause a process: often for longer than its lease."""
    return nemesis.generator.choice((0.3, 1.5, 2.5, 4, 8)) * nemesis.generator.uniform(0.8, 1.2)


def freeze(nemesis: Nemesis, machine: Machine, seconds: float) -> None:
    """Freeze a process for a time."""
    nemesis.tell(f"freeze {machine.process.name} for {seconds:.3f} s")
    machine.process.freeze()
    nemesis.after(seconds, lambda: machine.process.thaw(nemesis.cluster.loop))


async def kill(nemesis: Nemesis) -> None:
    """Kill a data node at any await; often another one starts after a while."""
    machine = nemesis.data_node()
    if machine is None:
        return
    machine.ending = True
    kill_soon(nemesis, machine)
    if nemesis.generator.random() < 0.7:
        nemesis.after(nemesis.generator.uniform(0, 6), nemesis.cluster.start_data_node)


async def pause(nemesis: Nemesis) -> None:
    """Freeze a data node."""
    machine = nemesis.data_node()
    if machine is None:
        return
    freeze(nemesis, machine, pause_seconds(nemesis))


async def pause_long(nemesis: Nemesis) -> None:
    """Freeze a data node until another one has taken over, and more has been written there."""
    machine = nemesis.data_node()
    if machine is None:
        return
    freeze(nemesis, machine, nemesis.generator.uniform(4, 7))


async def join(nemesis: Nemesis) -> None:
    """Start one data node more."""
    nemesis.tell(f"start {nemesis.cluster.start_data_node().process.name}")


async def leave(nemesis: Nemesis) -> None:
    """Stop a data node by SIGTERM."""
    machine = nemesis.data_node()
    if machine is not None and machine.node is not None:
        nemesis.tell(f"stop {machine.process.name}")
        machine.ending = True
        nemesis.cluster.stop_data_node(machine)


async def partition(nemesis: Nemesis) -> None:
    """Split the nodes into two groups that do not reach each other; one of them, or both, may reach the store."""
    cluster, generator = nemesis.cluster, nemesis.generator
    machines = [*cluster.living(cluster.data_nodes), *cluster.living(cluster.service_nodes)]
    names = [machine.process.name for machine in machines]
    group = generator.sample(names, generator.randint(1, len(names) - 1))
    _split(nemesis, group, [name for name in names if name not in group])


async def isolate(nemesis: Nemesis) -> None:
    """Leave one data node to one service node, which would go on reading there what others replace."""
    cluster, generator = nemesis.cluster, nemesis.generator
    chosen = [generator.choice(cluster.living(some)) for some in (cluster.data_nodes, cluster.service_nodes)]
    group = [machine.process.name for machine in chosen]
    machines = [*cluster.living(cluster.data_nodes), *cluster.living(cluster.service_nodes)]
    _split(
        nemesis, group, [machine.process.name for machine in machines if machine.process.name not in group]
    )


def _split(nemesis: Nemesis, group: list[str], others: list[str]) -> None:
    generator = nemesis.generator
    if generator.random() < 0.6:
        others = [*others, STORE]
    seconds = generator.choice((0.5, 3, 6, 10)) * generator.uniform(0.8, 1.2)
    nemesis.tell(f"cut {', '.join(group)} from {', '.join(others)} for {seconds:.3f} s")
    for one in group:
        for other in others:
            nemesis.cluster.network.cut(one, other)
    nemesis.after(seconds, nemesis.cluster.network.heal)


async def cut_off(nemesis: Nemesis) -> None:
    """Cut a data node off from all other nodes, but not from the store, until the others must have taken over."""
    cluster, generator = nemesis.cluster, nemesis.generator
    data_nodes = [one.process.name for one in cluster.living(cluster.data_nodes)]
    others = [one.process.name for one in cluster.living(cluster.service_nodes)]
    chosen, seconds = generator.choice(data_nodes), generator.uniform(1, 15)
    nemesis.tell(f"cut {chosen} off for {seconds:.3f} s")
    for other in (*data_nodes, *others):
        cluster.network.cut(chosen, other)
    await asyncio.sleep(seconds)
    cluster.network.heal()
    await asyncio.sleep(max(JOINS, TAKES_OVER - seconds))


async def cut(nemesis: Nemesis) -> None:
    """Cut one link: between two nodes, or between a node and the store."""
    cluster, generator = nemesis.cluster, nemesis.generator
    machines = [*cluster.living(cluster.data_nodes), *cluster.living(cluster.service_nodes)]
    one, other = generator.sample([STORE, *(machine.process.name for machine in machines)], 2)
    seconds = generator.choice((0.5, 3, 6, 10)) * generator.uniform(0.8, 1.2)
    nemesis.tell(f"cut {one} from {other} for {seconds:.3f} s")
    cluster.network.cut(one, other)
    nemesis.after(seconds, cluster.network.heal)


async def jump(nemesis: Nemesis) -> None:
    """Set a node's time of day."""
    cluster, generator = nemesis.cluster, nemesis.generator
    machine = generator.choice([*cluster.data_nodes.values(), *cluster.service_nodes.values()])
    seconds = generator.choice((-1, 1)) * generator.uniform(1, 5000)
    nemesis.tell(f"set the clock of {machine.process.name} by {seconds:.0f} s")
    machine.clock.jump(seconds)


async def drift(nemesis: Nemesis) -> None:
    """Let a machine's monotonic clock drift: any two of them keep within what leases allow for."""
    cluster, generator = nemesis.cluster, nemesis.generator
    machine = generator.choice([*cluster.data_nodes.values(), *cluster.service_nodes.values()])
    rate = CLOCK_MARGIN ** generator.uniform(-0.5, 0.5)
    nemesis.tell(f"let the clock of {machine.process.name} drift: {rate:.3f} s a second")
    machine.clock.drift(rate)


async def drift_far(nemesis: Nemesis) -> None:
    """Let a data node's monotonic clock go far slower, or faster, than leases allow for; its time of day is right."""
    machine = nemesis.data_node()
    if machine is not None:
        rate = nemesis.generator.choice((0.0, 0.3, 0.8, 1.5, 5.0))
        nemesis.tell(f"let the clock of {machine.process.name} drift far: {rate:.1f} s a second")
        machine.clock.drift(rate)


async def slow_machine(nemesis: Nemesis) -> None:
    """Let both clocks of a data node's machine go far slower than leases allow for: nothing there can tell."""
    machine = nemesis.data_node()
    if machine is not None:
        nemesis.tell(f"let the clocks of {machine.process.name} go slowly")
        machine.clock.drift(0.1, both=True)


async def suspend(nemesis: Nemesis) -> None:
    """Suspend a data node's machine; in half of the cases its monotonic clock stands meanwhile."""
    machine = nemesis.data_node()
    if machine is None:
        return
    seconds = nemesis.generator.uniform(4, 7)
    freeze(nemesis, machine, seconds)
    if nemesis.generator.random() < 0.5:
        nemesis.tell(f"let the clock of {machine.process.name} stand meanwhile")
        machine.clock.stand()
        nemesis.after(seconds, machine.clock.go_on)


async def restart_service_node(nemesis: Nemesis) -> None:
    """Kill a service node at any await, and start another one."""
    cluster = nemesis.cluster
    machine = nemesis.generator.choice(cluster.living(cluster.service_nodes))
    nemesis.tell(f"kill {machine.process.name}")
    cluster.start_service_node()
    machine.process.kill_after(nemesis.generator.randrange(40))
    nemesis.after(0.5, machine.process.kill)


async def bad_network(nemesis: Nemesis) -> None:
    """Lose some messages between nodes for a while."""
    cluster, seconds = nemesis.cluster, nemesis.generator.uniform(0.5, 4)
    nemesis.tell(f"lose messages for {seconds:.3f} s")
    cluster.rates = replace(cluster.rates, lost_request=0.1, lost_reply=0.1, late=0.05, duplicated=0.05)

    def end() -> None:
        cluster.rates = CALM

    nemesis.after(seconds, end)


async def bad_store(nemesis: Nemesis) -> None:
    """Let requests to the store fail for a while."""
    cluster = nemesis.cluster
    _for_a_while(
        nemesis,
        "fail requests to the store",
        replace(cluster.store_rates, lost_request=0.05, lost_reply=0.05, late=0.05, refused=0.1),
    )


async def slow_store(nemesis: Nemesis) -> None:
    """Let some requests to the store take seconds, and their replies too."""
    cluster = nemesis.cluster
    _for_a_while(nemesis, "slow the store down", replace(cluster.store_rates, latency=0.02, slow=0.3))


async def slow_puts(nemesis: Nemesis) -> None:
    """Let most puts of data take about a second, or their replies: others see a value before it is acknowledged."""
    cluster, seconds = nemesis.cluster, nemesis.generator.uniform(2, 8)
    nemesis.tell(f"slow puts down for {seconds:.3f} s")
    cluster.put_rates = replace(CALM, latency=0.03, slow=0.6)

    def end() -> None:
        cluster.put_rates = None

    nemesis.after(seconds, end)


async def part_one(nemesis: Nemesis) -> None:
    """Cut one service node from one data node: it reads from the store by way of another one."""
    cluster, generator = nemesis.cluster, nemesis.generator
    chosen = [generator.choice(cluster.living(some)) for some in (cluster.data_nodes, cluster.service_nodes)]
    one, other = (machine.process.name for machine in chosen)
    seconds = generator.uniform(3, 10)
    nemesis.tell(f"cut {one} from {other} for {seconds:.3f} s")
    cluster.network.cut(one, other)
    nemesis.after(seconds, cluster.network.heal)


async def rebuild(nemesis: Nemesis) -> None:
    """Let an operator rebuild the membership, in half of the cases because it is damaged."""
    damaged = nemesis.generator.random() < 0.5
    if damaged:
        await nemesis.cluster.store.put(KEY, b"{")
        await asyncio.sleep(nemesis.generator.uniform(0, 2))
    nemesis.tell("rebuild the damaged membership" if damaged else "rebuild the membership")
    nemesis.cluster.rebuild()


async def serve(nemesis: Nemesis) -> None:
    """Start a whole server."""
    nemesis.tell(f"start {nemesis.cluster.start_server().process.name}")


async def stop_server(nemesis: Nemesis) -> None:
    """Stop a server by SIGTERM, or kill it at any await."""
    machine = nemesis.server()
    if machine is None:
        return
    machine.ending = True
    if nemesis.generator.random() < 0.5:
        nemesis.tell(f"stop {machine.process.name}")
        nemesis.cluster.stop_server(machine)
    else:
        kill_soon(nemesis, machine)
    if nemesis.generator.random() < 0.5:
        nemesis.after(nemesis.generator.uniform(0, 4), nemesis.cluster.start_server)


async def pause_server(nemesis: Nemesis) -> None:
    """Freeze a server, often for longer than its lease, in half of the cases with its requests to the store."""
    machine = nemesis.server()
    if machine is None:
        return
    seconds = pause_seconds(nemesis)
    if nemesis.generator.random() < 0.5:
        freeze(nemesis, machine, seconds)
    else:
        nemesis.tell(f"cut {machine.process.name} from the store for {seconds:.3f} s")
        nemesis.cluster.network.cut(machine.process.name, STORE)
        nemesis.after(seconds, nemesis.cluster.network.heal)


async def upgrade(nemesis: Nemesis) -> None:
    """Replace all nodes by others, one by one."""
    cluster, generator = nemesis.cluster, nemesis.generator
    machines = [*cluster.living(cluster.data_nodes), *cluster.living(cluster.service_nodes)]
    for machine in generator.sample(machines, len(machines)):
        if machine.process.dead or machine.ending:
            continue
        machine.ending = True
        nemesis.tell(f"replace {machine.process.name}")
        if machine.process.name in cluster.service_nodes:
            cluster.start_service_node()
            cluster.stop_service_node(machine)
        else:
            cluster.start_data_node()
            await asyncio.sleep(generator.choice((0, 0.3)))
            cluster.stop_data_node(machine)
        await asyncio.sleep(generator.expovariate(1 / 0.5))


def _for_a_while(nemesis: Nemesis, what: str, rates: FaultRates) -> None:
    cluster, seconds = nemesis.cluster, nemesis.generator.uniform(0.5, 6)
    nemesis.tell(f"{what} for {seconds:.3f} s")
    cluster.store_rates = rates

    def end() -> None:
        cluster.store_rates = CALM

    nemesis.after(seconds, end)


PROCESSES: tuple[Fault, ...] = (kill, pause, join, leave, jump, rebuild)
"""Faults of data nodes alone: no client's request fails for them."""
ALL: tuple[Fault, ...] = (
    *PROCESSES,
    partition,
    isolate,
    cut,
    restart_service_node,
    bad_network,
    bad_store,
    slow_store,
    slow_puts,
)
UPGRADES: tuple[Fault, ...] = (upgrade, upgrade, kill, pause, join, leave)
"""Upgrades and rollbacks, in which nodes go also for other reasons: no client's request fails for them."""
SERVERS: tuple[Fault, ...] = (
    serve,
    stop_server,
    pause_server,
    rebuild,
    cut,
    bad_store,
    slow_store,
    slow_puts,
    jump,
)
"""Faults where whole servers share a store."""
BESIDE: tuple[Fault, ...] = (serve, serve, stop_server, pause_server, *ALL)
"""Faults where servers come and go beside a cluster."""
CLOCKS: tuple[Fault, ...] = (drift, drift, jump, suspend, drift_far, isolate, kill, join)
"""Faults of clocks, and those for which leases are counted."""
