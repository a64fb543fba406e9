"""Simulation of clusters on virtual time, over a store with latency and the rate limits of a bucket's prefix.

Each data node's CPU is a queue in which a request to the store takes `CPU` seconds; service nodes and clients take no
time. Requests beyond the store's limits wait in the queue; real S3 would answer 503, and its client would wait.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Any, TypeVar

import numpy as np

from hsparse.format.selections.points import Orthogonal
from hsparse.model.ids import new_id, new_root_id
from hsparse.sn.records.dataset import StoredDataset
from hsparse.sn.values.chunk_fanout import ChunkFanout
from hsparse.storage.object_store import Buffer, ObjectStore
from tests.simulation.clients import ServiceOperations, dataset_record
from tests.simulation.simulated_cluster import SimulatedCluster
from tests.simulation.simulated_network import FaultRates
from tests.simulation.virtual_loop import VirtualClock, VirtualLoop
from tests.testing.store_wrapper import StoreWrapper

R = TypeVar("R")

LATENCY = 0.020
"""Mean seconds from a request to the store to its answer."""
CPU = 0.002
"""Seconds of a data node's CPU for a message with one request to the store."""
PUTS, GETS = 3500.0, 5500.0
"""Requests per second and prefix that S3 promises: puts with deletes, and gets with listings."""
NODES = (1, 2, 4, 8, 16)
CLIENTS = 64
"""Concurrent requests for each data node."""
WARM, MEASURED = 0.3, 0.7
"""Seconds of a run before requests are counted, and while they are counted."""
CHUNKS = 1_000_000


class Queue:
    """A queue of work, which is done one piece after another; each piece takes some seconds."""

    def __init__(self) -> None:
        self._free_at = 0.0

    async def work(self, seconds: float) -> None:
        """Queue work of `seconds` seconds; return when the work is done."""
        now = asyncio.get_running_loop().time()
        self._free_at = max(self._free_at, now) + seconds
        await asyncio.sleep(self._free_at - now)


class LimitedStore(StoreWrapper):
    """A node's view of a store with rate limits per prefix, shared by all nodes; the node's CPU is a queue."""

    def __init__(self, store: ObjectStore, prefixes: dict[tuple[str, bool], Queue], cpu: float) -> None:
        super().__init__(store)
        self._prefixes = prefixes
        self._cpu = Queue()
        self._seconds = cpu

    async def around(self, method: str, key: str, data: Buffer, call: Callable[[Buffer], Awaitable[R]]) -> R:
        """Wait for the CPU and for the store's limit, then call the store."""
        await self._cpu.work(self._seconds)
        reads = method in ("get", "get_range", "list")
        prefix = "/".join(key.split("/")[:4])  # db/DOMAIN/d/DATASET
        await self._prefixes.setdefault((prefix, reads), Queue()).work(1 / (GETS if reads else PUTS))
        return await call(data)


def throughput(nodes: int, *, reads: bool, datasets: int = 1, cpu: float = CPU) -> float:
    """Return the requests per second of a cluster: reads or writes of one chunk each, all of different chunks."""
    loop, prefixes, done = VirtualLoop(), dict[tuple[str, bool], Queue](), Counter[bool]()
    cluster = SimulatedCluster(loop, 1, wrap=lambda store: LimitedStore(store, prefixes, cpu))

    async def client(ids: Sequence[str], chunks: count[int], started: float) -> None:
        for number in chunks:
            id = ids[number % len(ids)]
            await cluster.request(lambda node, id=id, number=number: _one(node, id, number, reads))
            done[loop.time() - started >= WARM] += 1

    async def main() -> None:
        ids = await _begin(cluster, loop, nodes, datasets)
        numbers = count()
        clients = [asyncio.ensure_future(client(ids, numbers, loop.time())) for _ in range(CLIENTS * nodes)]
        await asyncio.sleep(WARM + MEASURED)
        for one in clients:
            one.cancel()
        await asyncio.gather(*clients, return_exceptions=True)

    loop.run(main())
    return done[True] / MEASURED


async def _begin(cluster: SimulatedCluster, loop: VirtualLoop, nodes: int, datasets: int) -> list[str]:
    """Start a cluster, create datasets, and write to them by every node, so that caches are warm; return the ids."""
    for _ in range(nodes):
        cluster.start_data_node()
    for _ in range(2):
        cluster.start_service_node()
    await cluster.recover()
    clock = VirtualClock(loop, cluster.network.generator)
    root = new_root_id(clock)
    ids = [new_id("datasets", root, clock) for _ in range(datasets)]
    for id in ids:
        record = dataset_record(id, root, 2 * CHUNKS, sparse=False)
        await cluster.request(lambda node, id=id, record=record: node.create(id, record))
        for number in range(4 * nodes):  # fences and the deletion of HSDS's summary, on every node
            await cluster.request(lambda node, id=id, number=number: _one(node, id, -1 - number, False))
    cluster.store_rates = FaultRates(slow=0.0, patience=600.0, latency=LATENCY / 2)
    return ids


async def _one(node: ServiceOperations, id: str, number: int, reads: bool) -> None:
    """Read or write a whole chunk of two elements; a negative `number` counts chunks from the end."""
    dataset = StoredDataset.of(await node.owners.record(id))
    first = 2 * (number % CHUNKS)
    selection = Orthogonal.box(dataset.extent, (first,), (first + 2,))
    if reads:
        await ChunkFanout(node.owners, dataset).read(selection)
    else:
        await ChunkFanout(node.owners, dataset).write(selection, np.ones(2, "<i8"))


def throughput_rows(nodes: Sequence[int] = NODES) -> list[tuple[str, ...]]:
    """Return a row per number of data nodes: requests per second, as reads and writes of one and of four datasets."""
    return [
        (
            str(one),
            *(
                f"{throughput(one, reads=reads, datasets=datasets):,.0f}"
                for datasets in (1, 4)
                for reads in (True, False)
            ),
        )
        for one in nodes
    ]


def join_rows(nodes: Sequence[int] = NODES) -> list[tuple[str, ...]]:
    """Return a row per number of data nodes: the cost of one more joining, and the requests of an idle cluster."""
    return [(str(one), *_joined(one)) for one in nodes]


def _joined(nodes: int) -> tuple[str, ...]:
    loop, asked, sent = VirtualLoop(), Counter[str](), Counter[str]()
    found: list[str] = []

    class Counted(StoreWrapper):
        async def around(
            self, method: str, key: str, data: Buffer, call: Callable[[Buffer], Awaitable[R]]
        ) -> R:
            asked["store"] += 1
            return await call(data)

    cluster = SimulatedCluster(loop, 1, wrap=Counted)
    call = cluster.network.call

    async def counted(sender: Any, receiver: Any, work: Any, rates: FaultRates) -> Any:
        if not isinstance(receiver, str):
            sent["messages"] += 1
        return await call(sender, receiver, work, rates)

    cluster.network.call = counted

    async def main() -> None:
        for _ in range(nodes):
            cluster.start_data_node()
        cluster.start_service_node()
        await cluster.recover()
        cluster.store_rates = FaultRates(slow=0.0, patience=600.0, latency=LATENCY / 2)
        await asyncio.sleep(10.0)
        idle = asked["store"]
        await asyncio.sleep(10.0)
        idle = asked["store"] - idle
        asked.clear()
        sent.clear()
        started = loop.time()
        cluster.start_data_node()
        while not all(one.node is not None and one.node.in_force for one in cluster.data_nodes.values()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # no event announces it
        seconds = loop.time() - started
        renewals = idle / 10.0 * seconds
        found.extend(
            (
                f"{idle / 10.0:.1f}",
                f"{asked['store'] - renewals:.0f}",
                str(sent["messages"]),
                f"{seconds:.2f}",
            )
        )

    loop.run(main())
    return tuple(found)
