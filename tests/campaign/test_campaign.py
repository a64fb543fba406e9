"""A cluster of processes under faults for minutes: nothing lost, nothing wrong, no request failed after two retries.

`make campaign` runs it; `--campaign` is how many seconds each kind of fault takes over each store. At the end it prints
a table. Partitions need root and iproute2, and Ceph's S3 server its packages (`tests/support/radosgw.py`).
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.campaign.clients import DOMAIN, Client, Tally
from tests.campaign.load_balancer import load_balancer
from tests.campaign.node_network import NODES, STORE, node_network
from tests.campaign.node_processes import NodeProcesses
from tests.campaign.shared_objects import create_shared
from tests.campaign.stores import LOOPBACK, CampaignStore, campaign_store
from tests.support import azurite, radosgw
from tests.support.server_process import STARTS

pytestmark = pytest.mark.campaign

CLIENTS, QUIET = 8, 0.25
"""Clients, and the part of the time without faults: half of it before, half after, as other programs may slow both."""
WARM_UP = 3.0
"""Seconds in which clients run before anything is measured."""
EVERY = 10.0
"""Seconds from one fault to the next."""
HUNG_GAP = 4.0
"""The most seconds without a success around a node that hangs: one until that is noticed, then its lease."""


async def kill(nodes: NodeProcesses, generator: random.Random) -> None:
    await nodes.kill(generator.choice(nodes.data_nodes))


async def terminate(nodes: NodeProcesses, generator: random.Random) -> None:
    await nodes.terminate(generator.choice(nodes.data_nodes))


async def pause(nodes: NodeProcesses, generator: random.Random) -> None:
    await nodes.pause(generator.choice(nodes.data_nodes), generator.uniform(1, 15))


async def scale(nodes: NodeProcesses, generator: random.Random) -> None:
    await nodes.scale({3: 6, 6: 2, 2: 3}.get(len(nodes.data_nodes), 3))


async def partition(nodes: NodeProcesses, generator: random.Random) -> None:
    """Cut a data node off from all other nodes; it goes on renewing its lease."""
    await nodes.cut(generator.choice(nodes.data_nodes), NODES, generator.uniform(1, 15))


async def store_cut(nodes: NodeProcesses, generator: random.Random) -> None:
    """Cut a data node off from the store; it goes on answering other nodes."""
    await nodes.cut(generator.choice(nodes.data_nodes), STORE, generator.uniform(1, 15))


async def upgrade(nodes: NodeProcesses, generator: random.Random) -> None:
    """Replace every node, service nodes too."""
    await nodes.upgrade()


async def losses(nodes: NodeProcesses, generator: random.Random) -> None:
    """Nothing but what the proxy before the store does."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What is done `every` so many seconds, over which stores, and the most that clients may notice of it."""

    act: Callable[[NodeProcesses, random.Random], Awaitable[None]]
    stores: tuple[str, ...]
    most_gap: float = 3.0
    least_rate: float = 0.7
    every: float = EVERY
    cuts: bool = False
    """Whether data nodes are in a network that can be cut."""


# A node that starts takes CPU of clients' on one machine: an upgrade starts all of them.
FAULTS = {
    "kill": Fault(kill, ("directory", "moto", "proxied", "radosgw", "azurite")),
    "terminate": Fault(terminate, ("directory", "moto", "proxied"), most_gap=1.0),
    "scale": Fault(scale, ("directory", "moto", "proxied", "radosgw"), most_gap=1.0),
    "upgrade": Fault(
        upgrade, ("directory", "moto", "proxied"), most_gap=1.0, least_rate=0.5, every=3 * EVERY
    ),
    "pause": Fault(pause, ("directory", "moto", "proxied"), most_gap=HUNG_GAP),
    "partition": Fault(partition, ("directory", "moto"), most_gap=HUNG_GAP, cuts=True),
    "store cut": Fault(store_cut, ("moto",), most_gap=HUNG_GAP, cuts=True),
    "losses": Fault(losses, ("proxied",)),
}


PROGRAMS = {"azurite": azurite.PROGRAMS, "radosgw": radosgw.PROGRAMS}


def cases() -> Iterator[object]:
    """Give each fault and store, with what is needed for them."""
    for name, fault in FAULTS.items():
        for store in fault.stores:
            marks = []
            if fault.cuts:
                marks += [
                    pytest.mark.needs("ip"),
                    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
                ]
            if store in PROGRAMS:
                marks.append(pytest.mark.needs(*PROGRAMS[store]))
            yield pytest.param(name, store, marks=marks, id=f"{name}, {store}")


@dataclass(frozen=True, slots=True)
class Row:
    """What one case has measured: rates in requests a second, the longest gap in seconds."""

    fault: str
    store: str
    requests: int
    without: float
    under: float
    gap: float
    tally: Tally

    def __str__(self) -> str:
        failed, wrong = len(self.tally.failed), len(self.tally.wrong)
        return (
            f"| {self.fault} | {self.store} | {self.requests} | {self.without:.0f} | {self.under:.0f} | "
            f"{self.under / self.without:.2f} | {self.gap:.1f} s | {self.tally.retried} | {failed} | {wrong} |"
        )


@pytest.fixture(scope="module")
def rows() -> Iterator[list[Row]]:
    """Rows of the table that is printed at the end."""
    # A node that starts would else take seconds of a core for its imports, which clients would have to do without.
    STARTS.set_forkserver_preload(
        ["tests.support.server_process", "hsparse.cli.serve", "hsparse.storage.s3.s3_store"]
    )
    found: list[Row] = []
    yield found
    print(
        "\n| fault | store | requests | a second without | with | ratio | longest gap | retried | failed | wrong |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    print(*found, sep="\n")


@asynccontextmanager
async def cluster(fault: Fault, kind: str, path: Path) -> AsyncIterator[tuple[NodeProcesses, CampaignStore]]:
    """Run two service nodes and three data nodes over a store while the context lasts."""
    async with AsyncExitStack() as stack:
        network = stack.enter_context(node_network()) if fault.cuts else None
        host = LOOPBACK if network is None else network.store_address
        store = await stack.enter_async_context(campaign_store(kind, path, host))
        nodes = NodeProcesses(store.flags, path / "nodes.log", network, store.variables)
        stack.push_async_callback(nodes.close)
        for _ in range(2):
            await nodes.start_service_node()
        await nodes.scale(3)
        yield nodes, store


@pytest.mark.parametrize(("name", "kind"), list(cases()))
async def test_campaign(
    name: str, kind: str, rows: list[Row], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    seconds: float = request.config.getoption("--campaign")
    fault = FAULTS[name]
    generator, loop, tally = random.Random(0), asyncio.get_running_loop(), Tally()
    async with AsyncExitStack() as stack:
        nodes, store = await stack.enter_async_context(cluster(fault, kind, tmp_path))
        balancer = await stack.enter_async_context(load_balancer(lambda: nodes.urls, DOMAIN))
        shared = await create_shared(balancer, CLIENTS)
        clients = [Client(number, CLIENTS, balancer, shared, tally) for number in range(CLIENTS)]
        stop = asyncio.Event()
        running = [asyncio.create_task(client.run(stop)) for client in clients]
        fair = fault.act is losses
        store.set_weather(fair=fair)
        await asyncio.sleep(WARM_UP)
        begun = loop.time()
        await asyncio.sleep(QUIET / 2 * seconds)
        faulty = loop.time()
        store.set_weather(fair=False)
        end = begun + (1 - QUIET / 2) * seconds
        while loop.time() < end:
            next_fault = min(end, loop.time() + fault.every)
            await fault.act(nodes, generator)
            await asyncio.sleep(max(0.0, next_fault - loop.time()))
        mended = loop.time()
        store.set_weather(fair=fair)
        await asyncio.sleep(QUIET / 2 * seconds)
        ended = loop.time()
        stop.set()
        await asyncio.gather(*running)
        for client in clients:
            await client.check()
        await clients[0].check_shared()
    without = (tally.rate(begun, faulty) + tally.rate(mended, ended)) / 2
    under = tally.rate(faulty, mended)
    row = Row(name, kind, len(tally.done), without, under, tally.longest_gap(faulty, mended), tally)
    rows.append(row)
    print(row)
    assert tally.wrong == []
    assert tally.failed == []
    assert nodes.stopped.count(0) == len(nodes.stopped)
    assert row.gap <= fault.most_gap
    assert under >= fault.least_rate * without
