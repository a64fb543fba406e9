"""Processes under load: data nodes killed during writes, and 1,200 requests of which none fails."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import signal
from pathlib import Path
from typing import Any

import aiohttp
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


AT_ONCE = 120
EACH = 10
ROWS, WIDTH = 10 * AT_ONCE, 1024
"""Ten chunks of 1 MiB, which are not enlarged: both data nodes have some."""
BINARY = "application/octet-stream"
DOMAIN = "/home/admin/many.h5"
KIND = {
    "class": "H5T_COMPOUND",
    "fields": [{"name": "who", "type": "H5T_STD_I32LE"}, {"name": "x", "type": "H5T_IEEE_F64LE"}],
}
TABLE = np.dtype([("who", "<i4"), ("x", "<f8")])


class Asker:
    """Sends requests about the domain, counts them, and lets none fail."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self.count = 0

    async def __call__(self, method: str, path: str, body: Any = None, **params: Any) -> Any:
        self.count += 1
        headers = {"Content-Type": BINARY if isinstance(body, bytes) else "application/json"}
        if params.pop("binary", False):
            headers["Accept"] = BINARY
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        asked = {"domain": DOMAIN} | {key: str(value) for key, value in params.items()}
        async with self._session.request(method, path, data=data, params=asked, headers=headers) as reply:
            answer = await reply.read()
            assert reply.status in (200, 201), f"{method} {path} {params}: {reply.status} {answer[:300]!r}"
            return answer if reply.content_type == BINARY else json.loads(answer)


async def work(ask: Asker, number: int, grid: str, table: str) -> None:
    """Ten requests of one client: everything it writes is its own, and every answer is known."""
    own = slice(10 * number, 10 * number + 10)
    rng = np.random.default_rng(number)
    values = rng.integers(0, 1000, (10, WIDTH)).astype("<i8")
    rows = np.zeros(10, TABLE)
    rows["who"], rows["x"] = number, np.arange(10)
    made = await ask("POST", "/groups", {"h5path": f"/clients/{number}"}, implicit=1)
    path = f"/groups/{made['id']}/attributes/number"
    await ask("PUT", path, {"type": "H5T_STD_I32LE", "value": number})
    await ask("PUT", f"/datasets/{grid}/value", values.tobytes(), select=f"[{own.start}:{own.stop},:]")
    await ask("PUT", f"/datasets/{table}/value", rows.tobytes(), select=f"[{own.start}:{own.stop}]")
    got = await ask("GET", f"/datasets/{grid}/value", select=f"[{own.start}:{own.stop}:3,::5]")
    assert got["value"] == values[::3, ::5].tolist()
    points = np.stack([own.start + rng.integers(0, 10, 50), rng.integers(0, WIDTH, 50)], 1).astype("<u8")
    got = await ask("POST", f"/datasets/{grid}/value", points.tobytes(), binary=True)
    expected = values[points[:, 0].astype(int) - own.start, points[:, 1].astype(int)]
    np.testing.assert_array_equal(np.frombuffer(got, "<i8"), expected)
    changed = await ask("PUT", f"/datasets/{table}/value", {"x": -1}, query=f"who == {number} & x >= 7")
    assert changed["indices"] == [[own.start + i] for i in (7, 8, 9)]
    found = await ask("GET", f"/datasets/{table}/value", query=f"who == {number} & x > 4")
    assert found["value"] == [[number, 5.0], [number, 6.0]]
    assert (await ask("GET", path))["value"] == number
    assert (await ask("GET", "/groups/", h5path=f"/clients/{number}"))["id"] == made["id"]


async def run(url: str) -> None:
    connector = aiohttp.TCPConnector(limit=AT_ONCE)
    async with aiohttp.ClientSession(url, connector=connector, timeout=aiohttp.ClientTimeout(120)) as session:
        ask = Asker(session)
        root = (await ask("PUT", "/"))["root"]
        clients = await ask("POST", "/groups", {"link": {"id": root, "name": "clients"}})
        layout = {"layout": {"class": "H5D_CHUNKED", "dims": [128, WIDTH]}}
        body = {"type": "H5T_STD_I64LE", "shape": [ROWS, WIDTH], "creationProperties": layout}
        grid = (await ask("POST", "/datasets", body))["id"]
        layout = {"layout": {"class": "H5D_CHUNKED", "dims": [128]}}
        table = (
            await ask("POST", "/datasets", {"type": KIND, "shape": [ROWS], "creationProperties": layout})
        )["id"]

        ask.count = 0
        await asyncio.gather(*(work(ask, number, grid, table) for number in range(AT_ONCE)))
        assert ask.count == AT_ONCE * EACH

        links = await ask("GET", f"/groups/{clients['id']}/links")
        assert {link["title"] for link in links["links"]} == {str(number) for number in range(AT_ONCE)}
        whole = np.frombuffer(await ask("GET", f"/datasets/{grid}/value", binary=True), "<i8")
        model = [np.random.default_rng(n).integers(0, 1000, (10, WIDTH)) for n in range(AT_ONCE)]
        np.testing.assert_array_equal(whole.reshape(ROWS, WIDTH), np.concatenate(model))
        rows = np.frombuffer(await ask("GET", f"/datasets/{table}/value", binary=True), TABLE)
        assert rows["who"].tolist() == [n // 10 for n in range(ROWS)]
        assert rows["x"].tolist() == [0.0, 1, 2, 3, 4, 5, 6, -1, -1, -1] * AT_ONCE


def test_1200_requests_120_at_a_time(tmp_path: Path) -> None:
    with server_process("--root", str(tmp_path), "--dn", "2") as server:
        asyncio.run(run(server.url))
        assert server.stop() == 0
