"""Data nodes killed during writes: what was acknowledged is there, and everything that is there decodes."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import signal
from pathlib import Path

import numpy as np
import pytest

from hsparse.format.chunk_spec import chunk_spec
from hsparse.format.kinds.registry import kind_of
from hsparse.model.ids import chunk_of_key, chunk_prefix
from hsparse.storage.filesystem.object_file import TEMPORARY
from hsparse.storage.object_store import PROBE_PREFIX
from hsparse.storage.posix import PosixStore
from tests.support.driver import DatasetSpec, Driver, NotDone, Place
from tests.support.endurance import repeats
from tests.support.rest_client import RemoteRest
from tests.support.rest_driver import RestDriver
from tests.support.server_process import ServerProcess, children_of, server_process
from tests.support.write_history import WriteHistory
from tests.testing.sparse_model import Coord

SIDE, WRITERS = 48, 6
DEFLATE = {"class": "H5Z_FILTER_DEFLATE", "level": 1}
KINDS = (
    DatasetSpec("H5T_STD_I64LE", (SIDE, SIDE), (12, 12), SIDE, filters=[DEFLATE]),
    # Dense chunks are enlarged to a size worth storing, so these are large to be several.
    DatasetSpec("H5T_STD_I64LE", (SIDE, SIDE * 1024), (12, 12 * 1024), SIDE, filters=[DEFLATE], sparse=False),
)


class Writers:
    """Tasks that each write and erase elements of their own; `ledgers` and `progress` tell of it."""

    def __init__(self, driver: Driver, datasets: dict[str, DatasetSpec], seed: int) -> None:
        self._driver = driver
        self._datasets = datasets
        self._numbers = itertools.count(1)
        self._generators = [random.Random(seed * 1000 + number) for number in range(WRITERS)]
        self.ledgers = {id: WriteHistory() for id in datasets}
        self.progress = asyncio.Condition()
        self.done = [0] * WRITERS
        self.refused = 0
        self.stop = False

    async def run(self, number: int) -> None:
        while not self.stop:
            await self._write(number, self._generators[number])

    async def advance(self, steps: int) -> None:
        """Wait until every writer was acknowledged `steps` times more."""
        goal = [done + steps for done in self.done]
        async with self.progress:
            await self.progress.wait_for(lambda: all(map(int.__ge__, self.done, goal)))

    async def _write(self, number: int, generator: random.Random) -> None:
        id, kind = generator.choice(list(self._datasets.items()))
        scale = kind.extent[1] // SIDE
        rows = range(number, SIDE, WRITERS)
        points = [(generator.choice(rows), generator.randrange(SIDE) * scale) for _ in range(8)]
        place = Place(points=tuple(points))
        value = None if kind.sparse and generator.random() < 0.2 else next(self._numbers)
        history = self.ledgers[id]
        entry = history.begin(place.coords, value)
        try:
            if value is None:
                await self._driver.erase(id, place)
            else:
                await self._driver.write(id, place, np.full(len(points), value, "<i8"), False)
        except NotDone:
            history.give_up(entry)
            self.refused += 1
            return
        history.acknowledge(entry)
        async with self.progress:
            self.done[number] += 1
            self.progress.notify_all()


async def kill_one(server: ServerProcess, writers: Writers, generator: random.Random) -> None:
    """Kill a data node, and see another take its place while the writers go on.

    One time in two the process that puts for it goes with it, in the middle of a put; else that ends by itself,
    while the new data node works.
    """
    victim = generator.choice(server.data_nodes)
    for process in children_of(victim) if generator.random() < 0.5 else []:
        os.kill(process, signal.SIGKILL)
    os.kill(victim, signal.SIGKILL)
    while victim in (nodes := server.data_nodes) or len(nodes) < 2:
        await writers.advance(1)


async def found(driver: Driver, id: str, kind: DatasetSpec) -> dict[Coord, int]:
    if kind.sparse:
        values = await driver.read_sparse(id)
        return {coord: int.from_bytes(value, "little") for coord, value in values.items()}
    array = np.frombuffer(await driver.read_dense(id), "<i8").reshape(kind.extent)
    return {(int(i), int(j)): int(array[i, j]) for i, j in np.argwhere(array)}


def temporary_files(root: Path) -> list[Path]:
    return list(root.rglob(f"{TEMPORARY}*"))


async def check_objects(root: Path, ids: list[str]) -> int:
    """Decode every stored object; nothing else is visible, and the rest is swept. Returns the number of chunks."""
    store = PosixStore(root)
    keys = [entry.key async for page in store.list("") for entry in page.entries]
    count = 0
    for key in keys:
        if key.startswith(PROBE_PREFIX):
            continue  # a node was killed while it started; a sweep removes it
        data = (await store.get(key)).data
        if key.endswith(".json"):
            assert isinstance(json.loads(data), dict)
            continue
        assert chunk_of_key(key) is not None, f"{key} is visible"
        id = next(id for id in ids if key.startswith(chunk_prefix(id)))
        record = json.loads((await store.get(f"{chunk_prefix(id)}.dataset.json")).data)
        spec = chunk_spec(record)
        kind_of(spec).decode(data)
        count += 1
    left = temporary_files(root)
    for path in left:  # as they would be when an hour has passed, and no put can be using them
        os.utime(path, (0, 0))
    assert await store.sweep() == len(left)
    assert temporary_files(root) == []
    await store.close()
    return count


@pytest.mark.endurance
async def test_what_was_acknowledged_survives_kills(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    kills = request.config.getoption("--kills") or repeats(25, short=2)
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    generator = random.Random(seed)
    with server_process("--root", str(tmp_path), "--dn", "2", "--lease", "0.15") as server:
        driver = await RestDriver(RemoteRest(server.url), "/chaos").open()
        datasets = {await driver.create(kind): kind for kind in KINDS}
        writers = Writers(driver, datasets, seed)
        tasks = [asyncio.create_task(writers.run(number)) for number in range(WRITERS)]
        for _ in range(kills):
            await writers.advance(1 + generator.randrange(4))
            await kill_one(server, writers, generator)
        await writers.advance(1)
        writers.stop = True
        await asyncio.gather(*tasks)
        await driver.close()
        assert server.stop() == 0
    with server_process("--root", str(tmp_path)) as server:
        driver = await RestDriver(RemoteRest(server.url), "/chaos").open()
        driver.know(datasets)
        for id, history in writers.ledgers.items():
            assert history.acknowledged
            assert history.wrong(await found(driver, id, datasets[id])) == []
        await driver.close()
        assert server.stop() == 0
    assert await check_objects(tmp_path, list(datasets)) >= 17
    print(f"{kills} kills, {sum(writers.done)} writes acknowledged, {writers.refused} not")
