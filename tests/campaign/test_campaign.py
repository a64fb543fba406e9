"""A cluster of processes under faults for minutes: nothing lost, nothing wrong, no request failed after two retries.

`make campaign` runs it; `--campaign` is how many seconds each kind of fault takes.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.campaign.clients import DATASET, Client, Tally
from tests.campaign.node_processes import NodeProcesses
from tests.support.rest_client import RemoteRest
from tests.support.s3_servers import make_bucket, moto_server

pytestmark = pytest.mark.campaign

CLIENTS, QUIET = 8, 0.25
"""Clients, and the part of the time before the first fault."""
EVERY = 10.0
"""Seconds from one fault to the next."""
MOST_GAP = {"kill": 3.0, "terminate": 3.0, "scale": 3.0, "pause": 20.0}
LEAST_RATE = {"kill": 0.7, "terminate": 0.7, "scale": 0.7, "pause": 0.5}


async def kill(nodes: NodeProcesses, generator: random.Random) -> None:
    await nodes.kill(generator.choice(nodes.data_nodes))


async def terminate(nodes: NodeProcesses, generator: random.Random) -> None:
    await nodes.terminate(generator.choice(nodes.data_nodes))


async def pause(nodes: NodeProcesses, generator: random.Random) -> None:
    await nodes.pause(generator.choice(nodes.data_nodes), generator.uniform(1, 15))


async def scale(nodes: NodeProcesses, generator: random.Random) -> None:
    await nodes.scale({3: 6, 6: 2, 2: 3}.get(len(nodes.data_nodes), 3))


FAULTS: dict[str, Callable[[NodeProcesses, random.Random], Awaitable[None]]] = {
    "kill": kill,
    "terminate": terminate,
    "pause": pause,
    "scale": scale,
}


@asynccontextmanager
async def cluster(store: str, path: Path) -> AsyncIterator[NodeProcesses]:
    """Run two service nodes and three data nodes over a store while the context lasts."""
    if store == "directory":
        nodes = NodeProcesses(("--root", str(path)))
        yield nodes
        await nodes.close()
        return
    with moto_server() as url:
        make_bucket(url, "campaign")
        nodes = NodeProcesses(("--bucket", "campaign", "--s3-endpoint", url))
        yield nodes
        await nodes.close()


async def create(url: str) -> str:
    rest = RemoteRest(url)
    rest.domain = "/home/admin/campaign.h5"
    assert (await rest("PUT", "/", {})).status == 201
    reply = await rest("POST", "/datasets", DATASET)
    assert reply.status == 201
    await rest.close()
    return str(reply["id"])


@pytest.mark.parametrize("store", ["directory", "s3"])
@pytest.mark.parametrize("fault", FAULTS)
async def test_campaign(fault: str, store: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    seconds: float = request.config.getoption("--campaign")
    generator, loop, tally = random.Random(0), asyncio.get_running_loop(), Tally()
    async with cluster(store, tmp_path) as nodes:
        for _ in range(2):
            await nodes.start_service_node()
        await nodes.scale(3)
        dataset = await create(nodes.urls[0])
        clients = [Client(number, CLIENTS, nodes.urls, dataset, tally) for number in range(CLIENTS)]
        stop = asyncio.Event()
        running = [asyncio.create_task(client.run(stop)) for client in clients]
        begun = loop.time()
        await asyncio.sleep(QUIET * seconds)
        faulty = loop.time()
        while loop.time() < begun + seconds:
            next_fault = loop.time() + EVERY
            await FAULTS[fault](nodes, generator)
            await asyncio.sleep(max(0.0, next_fault - loop.time()))
        ended = loop.time()
        stop.set()
        await asyncio.gather(*running)
        for client in clients:
            await client.check()
            await client.close()
    before, under = tally.rate(begun, faulty), tally.rate(faulty, ended)
    gap = tally.longest_gap(faulty, ended)
    print(
        f"{fault}, {store}: {len(tally.done)} requests, {before:.0f}/s then {under:.0f}/s ({under / before:.2f}), "
        f"longest gap {gap:.2f} s, {tally.retried} retried, {len(tally.failed)} failed, {len(tally.wrong)} wrong"
    )
    assert tally.wrong == []
    assert tally.failed == []
    assert nodes.stopped.count(0) == len(nodes.stopped)
    assert gap <= MOST_GAP[fault]
    assert under >= LEAST_RATE[fault] * before
