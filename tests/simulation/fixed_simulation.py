"""One run of a `FixedCluster`: clients, kills and restarts, lost requests and replies; then what is wrong with it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hsparse.model.ids import new_id, new_root_id
from hsparse.storage.object_store import ObjectStore
from tests.simulation.clients import ELEMENTS, Clients, Names, dataset_record
from tests.simulation.fixed_cluster import CALM, FixedCluster
from tests.simulation.history import History
from tests.simulation.linearizability import wrong_appends, wrong_registers
from tests.simulation.simulated_network import FaultRates
from tests.simulation.virtual_clock import VirtualClock
from tests.simulation.virtual_loop import VirtualLoop

WEATHER = FaultRates(lost_request=0.01, lost_reply=0.01, late=0.01, refused=0.01)


@dataclass(slots=True)
class Run:
    """What came of a run: the faults that there were, and what is wrong."""

    seed: int
    wrong: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    history: History = field(default_factory=History)
    seconds: float = 0.0
    steps: int = 0

    def report(self) -> str:
        """Return what to print of a run that failed."""
        return "\n".join([f"seed {self.seed}", "faults:", *self.faults, "wrong:", *self.wrong])


def run_fixed(
    seed: int,
    lists: Sequence[tuple[str, ...]],
    *,
    kills: int = 0,
    rates: FaultRates = CALM,
    wrap: Callable[[ObjectStore], ObjectStore] = lambda store: store,
) -> Run:
    """Run a cluster whose service nodes have these lists of data nodes; `kills` of them are killed meanwhile."""
    run = Run(seed)
    generator = random.Random(seed)
    loop = VirtualLoop()
    started = loop.time()

    async def main() -> None:
        cluster = FixedCluster(loop, generator, lists, wrap=wrap)
        clients = await begin(cluster, run.history, generator)
        cluster.rates = rates
        work = asyncio.ensure_future(clients.run(3, 8, 0.02))
        for _ in range(kills):
            await asyncio.sleep(generator.uniform(0, 0.3))
            id = generator.choice(list(cluster.data_nodes))
            cluster.data_nodes[id].process.kill_after(generator.randrange(50))
            await asyncio.sleep(generator.uniform(0, 0.1))
            cluster.data_nodes[id].process.kill()
            run.faults.append(f"{loop.time():.3f}: {id} killed and restarted")
            cluster.start_data_node(id)
        await work
        cluster.rates = CALM
        await asyncio.sleep(10)
        await finish(clients, cluster, run)

    loop.run(main())
    run.seconds, run.steps = loop.time() - started, loop.steps
    return run


async def begin(cluster: FixedCluster, history: History, generator: random.Random) -> Clients:
    """Create the datasets, and return clients for them."""
    clock = VirtualClock(cluster.loop, generator)
    root = new_root_id(clock)
    ids = [new_id("datasets", root, clock) for _ in range(2)]
    groups = tuple(new_id("groups", root, clock) for _ in range(2))
    sparse = generator.random() < 0.5
    for id, extent in zip(ids, (ELEMENTS, 0), strict=True):
        record = dataset_record(id, root, extent, sparse=sparse)
        await cluster.request(lambda node, id=id, record=record: node.create(id, record))
    return Clients(Names(ids[0], ids[1], groups), cluster.request, history, generator, sparse)


async def finish(clients: Clients, cluster: FixedCluster, run: Run) -> None:
    """Read everything, and note what is wrong."""
    await clients.read("end", range(ELEMENTS))
    for id in clients.names.groups:
        await clients.read_group("end", id)
    await clients.read_attribute("end")
    values = await cluster.request(lambda node: node.read_all(clients.names.appended))
    await clients.extent("end")
    run.wrong += [f"no client may get: {text}" for text in clients.defects]
    run.wrong += [f"a defect: {error!r}" for error in cluster.network.defects]
    run.wrong += wrong_registers(run.history)
    run.wrong += wrong_appends([value or None for value in values], run.history.appends, run.history.extents)
    run.faults += [f"answered to a client: {text}" for text in clients.errors]
