"""Snapshots beside writes by two owners: each is what was there at one moment, chunk by chunk, and stays so."""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from hsparse.cluster.membership_object import KEY
from hsparse.errors import StoreFailed
from hsparse.model.ids import chunk_of_key, new_id, new_root_id
from hsparse.storage.object_store import ObjectStore
from hsparse.versions.wrapping import with_versions
from tests.simulation.clients import dataset_record, group_record
from tests.simulation.simulated_cluster import CALM, SimulatedCluster
from tests.simulation.simulated_store import STORE, SimulatedStore
from tests.simulation.simulation import Shared
from tests.simulation.version_operations import PATH
from tests.simulation.virtual_clock import VirtualClock
from tests.simulation.virtual_loop import Process, VirtualLoop
from tests.support.endurance import repeats
from tests.testing.store_wrapper import StoreWrapper
from tests.versions.conftest import DENSE, DOMAIN, SPARSE, Versioned

WRITERS, WRITES, SNAPSHOTS = 6, 25, 4
UNDER_WAY = 10.5
"""Seconds that a change is under way to the store: others have taken over from its sender a moment before."""


class Race:
    """Writers of one element each, some in the same chunk, whose values go up; and who takes snapshots beside them."""

    def __init__(self, server: Versioned, generator: random.Random) -> None:
        self.server, self.random = server, generator
        self.begun = [0] * WRITERS
        self.done = [0] * WRITERS
        self.seen: dict[int, list[int]] = {}
        self.bounds: dict[int, tuple[list[int], list[int]]] = {}

    async def around(self, method: str, key: str, data: Any, call: Any) -> Any:
        await self.pause(method)
        answer = await call(data)
        await self.pause(method)
        return answer

    async def pause(self, method: str) -> None:
        longest = 2000 if method == "put_if_match" and self.random.random() < 0.1 else 20
        for _ in range(self.random.choice((0, 0, 1, 3, longest))):
            await asyncio.sleep(0)

    async def write(self, writer: int, id: str) -> None:
        for value in range(1, WRITES + 1):
            self.begun[writer] = value
            door = self.random.choice(self.server.doors)
            await self.server.write(id, self.place(writer), [value], door=door)
            self.done[writer] = value

    @staticmethod
    def place(writer: int) -> int:
        return writer * 7

    async def take(self, id: str) -> None:
        for _ in range(SNAPSHOTS):
            for _ in range(self.random.randrange(200)):
                await asyncio.sleep(0)
            least = list(self.done)
            number = await self.server.snapshot(door=self.random.choice(self.server.doors))
            self.bounds[number] = least, list(self.begun)
            self.seen[number] = await self.read(number)

    async def read(self, number: int) -> list[int]:
        door = self.random.choice(self.server.doors)
        there = await self.server.links(domain=f"{DOMAIN}@{number}", door=door)
        values = await self.server.read(there["kept"], domain=f"{DOMAIN}@{number}", door=door)
        return [values[self.place(writer)] for writer in range(WRITERS)]

    def check(self, number: int, found: list[int]) -> None:
        least, most = self.bounds[number]
        assert found == self.seen[number], (number, found, self.seen[number])
        for low, value, high in zip(least, found, most, strict=True):
            assert low <= value <= high, (number, least, found, most)


@pytest.mark.endurance
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("nodes", [1, 2])
async def test_a_snapshot_beside_writes_is_what_was_there(nodes: int) -> None:
    for seed in range(repeats(60, short=1)):
        await race(seed, nodes)


async def race(seed: int, nodes: int) -> None:
    """Run the race of a seed."""
    server = Versioned(nodes)
    await server.open()
    await server.done("PUT", "/")
    generator = random.Random(seed)
    one = Race(server, generator)
    layout = generator.choice((DENSE, SPARSE))
    id = await server.create("kept", 60, layout)
    server.store.around = one.around  # type: ignore[assignment, method-assign]
    try:
        await asyncio.gather(*(one.write(writer, id) for writer in range(WRITERS)), one.take(id))
        for number in one.seen:
            one.check(number, await one.read(number))
        assert (await server.read(id))[one.place(1)] == WRITES
    except BaseException as error:
        error.add_note(f"seed {seed}, {nodes} nodes")
        raise
    finally:
        await server.close()


class Persistent(StoreWrapper):
    """A process's view of a store, whose client goes on sending the put of a chunk that is not answered."""

    def __init__(self, store: ObjectStore, sent: list[tuple[Process, str]]) -> None:
        super().__init__(store)
        self.sent = sent

    async def around(self, method: str, key: str, data: Any, call: Any) -> Any:
        if not method.startswith("put") or chunk_of_key(key) is None:
            return await call(data)
        assert isinstance(self.store, SimulatedStore)
        self.sent.append((self.store._process, key))
        for _ in range(30):
            with suppress(StoreFailed):
                return await call(data)
            await asyncio.sleep(1)
        raise StoreFailed("The store does not answer.")


@pytest.mark.parametrize("under_way", [False, True])
def test_a_write_of_a_node_that_was_evicted_is_in_no_snapshot_later(
    under_way: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reaches the store late, or is sent again; its node was told of no snapshot."""
    monkeypatch.setattr(logging.root.manager, "disable", logging.CRITICAL)
    loop, sent = VirtualLoop(), list[tuple[Process, str]]()
    cluster = SimulatedCluster(loop, 1, wrap=lambda store: Persistent(store, sent), versions=True)
    clock = VirtualClock(loop, random.Random(1))
    root = new_root_id(clock)
    id = new_id("datasets", root, clock)

    async def shown(key: str) -> bytes:
        """Return an object as a node reads it that knows nothing."""
        return (await with_versions(cluster.store, Shared(), clock)[0].get(key)).data

    async def main() -> None:
        for _ in range(2):
            cluster.start_data_node()
        first, second = cluster.start_service_node(), cluster.start_service_node()
        await cluster.recover()
        node = second.node
        await node.create(root, group_record(root, 1) | {"root": root})
        await node.create(id, dataset_record(id, root, 4, sparse=False))
        await node.create(PATH, {"owner": "ann", "acls": {}, "created": 1, "lastModified": 1, "root": root})
        await node.write(id, [0], 1)
        owner, key = sent[-1]
        landed = clock.now() + UNDER_WAY
        if under_way:
            cluster.put_rates = replace(CALM, late=1.0, patience=UNDER_WAY, lateness=0.0)
        else:
            cluster.network.cut(owner.name, STORE)
        loop.spawn(first.process, first.node.write(id, [0], 2))
        await asyncio.sleep(0.1)
        first.process.kill()  # so that nobody sends the write to the next owner
        cluster.put_rates = None
        if under_way:
            owner.freeze()
        taken = await node.take("")
        [evicted] = [entry.modified async for page in cluster.store.list(KEY) for entry in page.entries]
        assert landed - 5 < evicted < landed
        there = key.replace(root[2:19], taken["root"][2:19])
        before = await shown(there)
        cluster.network.heal()
        await asyncio.sleep(30)
        assert await shown(there) == before
        assert (await node.read(id, [0]))[0] == 1 + under_way

    loop.run(main(), seconds=600)
