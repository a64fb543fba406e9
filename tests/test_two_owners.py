"""Two data nodes that both believe they own a chunk, and requests at once around a shrink: slow, never wrong."""

from __future__ import annotations

import asyncio
import itertools
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hsparse.clock import SystemClock
from hsparse.dn.service import DataService
from hsparse.errors import BadRequest, Conflict, Moved
from hsparse.sn.data_nodes.owners import FixedNodes, Owners
from hsparse.sn.records import dataset
from hsparse.storage.object_store import ObjectStore
from hsparse.wire.record_message import PutAttributes, SetExtent
from tests.conftest import MakeStore
from tests.support.driver import DatasetSpec, DirectDriver, Driver, NotDone, Place
from tests.support.endurance import repeats
from tests.support.rest_client import RemoteRest
from tests.support.rest_driver import RestDriver
from tests.support.write_history import WriteHistory
from tests.testing.faulty_store import CrashingStore, FaultyStore
from tests.testing.memory_store import MemoryStore
from tests.testing.sparse_model import Coord
from tests.testing.store_wrapper import SlowStore

SIDE, TASKS = 24, 12
SPARSE = DatasetSpec("H5T_STD_I64LE", (SIDE, SIDE), (12, 12), SIDE)
DENSE = DatasetSpec("H5T_STD_I64BE", (SIDE, SIDE), (12, 12), SIDE, sparse=False)
KINDS = pytest.mark.parametrize("kind", [SPARSE, DENSE], ids=["sparse", "dense"])
STORES = pytest.mark.parametrize("store", ["memory", "posix", "s3"])
OpenNode = Callable[[], Awaitable[Driver]]


@pytest.fixture
async def open_nodes(
    make_store: MakeStore, request: pytest.FixtureRequest
) -> AsyncIterator[tuple[OpenNode, ObjectStore]]:
    """A function that opens one more data node over the store the test is about, and that store."""
    store = await make_store(request.getfixturevalue("store"))
    nodes: list[DataService] = []

    async def open_node() -> Driver:
        nodes.append(DataService(CrashingStore(store), SystemClock()))
        return DirectDriver(Owners(FixedNodes({"dn-001": nodes[-1]})))

    yield open_node, store
    for node in nodes:
        await node.close()


def some_place(generator: random.Random, rows: range) -> Place:
    if generator.random() < 0.3:
        row = generator.choice(rows)
        start = generator.randrange(SIDE)
        return Place(box=((row, row + 1, 1), (start, SIDE, generator.choice((1, 2, 5)))))
    count = generator.randint(1, 6)
    return Place(points=tuple((generator.choice(rows), generator.randrange(SIDE)) for _ in range(count)))


async def write_at_once(
    drivers: list[Driver], id: str, kind: DatasetSpec, *, disjoint: bool, count: int, seed: int
) -> WriteHistory:
    """Let tasks write and erase `count` times each, every time through any of the drivers."""
    history = WriteHistory()
    numbers = itertools.count(1)

    async def task(number: int) -> None:
        generator = random.Random(seed * 1000 + number)
        rows = range(number, SIDE, TASKS) if disjoint else range(SIDE)
        for _ in range(count):
            place, driver = some_place(generator, rows), generator.choice(drivers)
            erase = kind.sparse and generator.random() < 0.2
            value = None if erase else next(numbers)
            entry = history.begin(place.coords, value)
            try:
                if value is None:
                    await driver.erase(id, place)
                else:
                    dtype = ">i8" if not kind.sparse else "<i8"
                    await driver.write(id, place, np.full(len(place.coords), value, dtype), False)
            except NotDone:
                continue
            history.acknowledge(entry)

    await asyncio.gather(*map(task, range(TASKS)))
    return history


async def found(driver: Driver, id: str, kind: DatasetSpec) -> dict[Coord, int]:
    if kind.sparse:
        values = await driver.read_sparse(id)
        return {coord: int.from_bytes(value, "little") for coord, value in values.items()}
    array = np.frombuffer(await driver.read_dense(id), ">i8").reshape(SIDE, SIDE)
    return {(int(i), int(j)): int(array[i, j]) for i, j in np.argwhere(array)}


@pytest.mark.endurance
@KINDS
@STORES
@pytest.mark.parametrize("disjoint", [True, False], ids=["disjoint", "overlapping"])
async def test_no_update_is_lost(
    open_nodes: tuple[OpenNode, ObjectStore], kind: DatasetSpec, store: str, disjoint: bool
) -> None:
    open_node, _ = open_nodes
    count = repeats(10, short=2) if store == "s3" else repeats(40, short=8)
    seed = random.randrange(10**6)
    drivers = [await open_node(), await open_node()]
    id = await drivers[0].create(kind)
    history = await write_at_once(drivers, id, kind, disjoint=disjoint, count=count, seed=seed)
    assert history.acknowledged == TASKS * count, f"seed {seed}"
    assert history.wrong(await found(await open_node(), id, kind)) == [], f"seed {seed}"


@STORES
async def test_an_erasure_through_a_node_that_has_not_seen_the_write(
    open_nodes: tuple[OpenNode, ObjectStore], store: str
) -> None:
    open_node, _ = open_nodes
    one, two = await open_node(), await open_node()
    id = await one.create(SPARSE)
    place = Place(points=((1, 1),))
    assert await two.read_sparse(id) == {}
    await one.write(id, place, np.ones(1, "<i8"), False)
    await two.erase(id, place)
    assert await (await open_node()).read_sparse(id) == {}


@STORES
async def test_records_changed_at_once(make_store: MakeStore, store: str) -> None:
    """Attributes and growth: each change is a read and a conditional put of one and the same object."""
    shared = await make_store(store)
    nodes = [DataService(CrashingStore(shared), SystemClock()) for _ in range(3)]
    *writers, reader = [Owners(FixedNodes({node.id: node})) for node in nodes]
    id = await DirectDriver(writers[0]).create(SPARSE)
    count = 10 if store == "s3" else 40
    value = {"type": "H5T_STD_I32LE", "shape": {"class": "H5S_SCALAR"}, "value": 1}
    await asyncio.gather(
        *(
            writers[number % 2].apply(change)
            for number in range(count)
            for change in (PutAttributes(id, {f"a{number}": value}), SetExtent(id, (1,), extend_dim=0))
        )
    )
    record = await reader.record(id)
    assert set(record["attributes"]) == {f"a{number}" for number in range(count)}
    assert record["shape"]["dims"] == [SIDE + count, SIDE]
    for node in nodes:
        await node.close()


@contextmanager
def command(module: str, *arguments: str) -> Iterator[str]:
    """Run a node while the context lasts; gives the URL in its first line."""
    process = subprocess.Popen([sys.executable, "-m", module, *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert " on http" in line, f"{module} {arguments[0]} printed {line!r}"
        yield line.rpartition(" on ")[2].split()[0]
    finally:
        process.terminate()
        try:
            assert process.wait(20) == 0
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


def start_owner(stack: ExitStack, root: Path) -> str:
    """Run a server that believes it is the only one; return its URL."""
    flags = ("--root", str(root), "--port", "0", "--no-fsync")
    return stack.enter_context(command("tests.support.unlocked_server", *flags))


@pytest.mark.endurance
async def test_two_processes_on_one_directory(tmp_path: Path) -> None:
    seed, count = random.randrange(10**6), repeats(15, short=4)
    cases = [(kind, disjoint) for kind in (SPARSE, DENSE) for disjoint in (True, False)]
    with ExitStack() as one, ExitStack() as two, ExitStack() as three:
        starts = (asyncio.to_thread(start_owner, stack, tmp_path) for stack in (one, two, three))
        drivers = [
            await RestDriver(RemoteRest(url), "/shared").open() for url in await asyncio.gather(*starts)
        ]
        *writers, reader = drivers
        ids = [await writers[0].create(kind) for kind, _ in cases]
        for driver in drivers:
            driver.know({id: kind for id, (kind, _) in zip(ids, cases, strict=True)})
        ledgers = await asyncio.gather(
            *(
                write_at_once(list(writers), id, kind, disjoint=disjoint, count=count, seed=seed)
                for id, (kind, disjoint) in zip(ids, cases, strict=True)
            )
        )
        for id, history, (kind, _) in zip(ids, ledgers, cases, strict=True):
            assert history.acknowledged == TASKS * count, f"seed {seed}"
            assert history.wrong(await found(reader, id, kind)) == [], f"seed {seed}"
        for driver in drivers:
            await driver.close()


LINE = DatasetSpec("H5T_STD_I32LE", (40,), (10,), 40)
SIGNED = replace(LINE, lower=(-20,))


async def test_a_late_shrink_erases_nothing_that_was_written_after_the_dataset_grew_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first request sets the extent, then is held up; the second finishes its work, grows, writes."""
    monkeypatch.setattr(dataset, "MOST_ASKED", 0)
    store = FaultyStore(MemoryStore())
    node = DataService(store, SystemClock())
    driver = DirectDriver(Owners(FixedNodes({node.id: node})))
    id = await driver.create(LINE)
    place = Place(points=((35,), (12,)))
    await driver.write(id, place, np.array([1, 1], "<i4"), False)

    listing = store.hang("list")
    shrinking = await listing.holding(driver.resize(id, ((0, 15),)))
    await driver.resize(id, ((0, 40),))
    assert sorted(await driver.read_sparse(id)) == [(12,)]
    await driver.write(id, place, np.array([2, 2], "<i4"), False)
    listing.release()
    await shrinking

    assert await driver.bounds(id) == ((0, 40),)
    assert sorted(await driver.read_sparse(id)) == [(12,), (35,)]
    await node.close()


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("kind", [LINE, SIGNED], ids=["line", "signed"])
async def test_shrinking_growing_and_writing_at_once(
    monkeypatch: pytest.MonkeyPatch, kind: DatasetSpec, seed: int
) -> None:
    """A shrink is an erasure of all that lies outside, whatever else goes on: of either end, if both move."""
    monkeypatch.setattr(dataset, "MOST_ASKED", seed % 2)  # more are listed
    monkeypatch.setattr(dataset, "FIRST_KEYS", 1 + seed % 3)
    generator = random.Random(seed)

    async def wait(method: str, key: str) -> None:
        for _ in range(generator.randrange(6)):
            await asyncio.sleep(0)

    nodes = {
        f"dn-{number:03}": DataService(SlowStore(store, wait), SystemClock(), id=f"dn-{number:03}")
        for store in [MemoryStore()]
        for number in (1, 2)
    }
    driver = DirectDriver(Owners(FixedNodes(dict(nodes))))
    id = await driver.create(kind)
    history, numbers = WriteHistory(), itertools.count(1)
    first = kind.lower[0] if kind.lower else 0
    end = first + 40

    async def write() -> None:
        place = Place(points=tuple((generator.randrange(first, end),) for _ in range(6)))
        value = next(numbers)
        entry = history.begin(place.coords, value)
        try:
            await driver.write(id, place, np.full(6, value, "<i4"), False)
        except (BadRequest, Moved):  # outside the extent as it was just then
            history.give_up(entry)
        else:
            history.acknowledge(entry)

    async def resize() -> None:
        low = generator.randrange(first, end) if kind.lower else 0
        high = generator.randint(low + 1, end)
        outside = [(place,) for place in range(first, end) if not low <= place < high]
        entry = history.begin(outside, None)
        try:
            await driver.resize(id, ((low, high),))
        except Conflict:  # another shrink is not done yet
            history.give_up(entry)
        else:
            history.acknowledge(entry)

    async def task() -> None:
        for _ in range(6):
            await generator.choice((write, write, resize))()

    await asyncio.gather(*(task() for _ in range(5)))
    await driver.resize(id, ((first, end),))
    values = {
        coord: int.from_bytes(value, "little") for coord, value in (await driver.read_sparse(id)).items()
    }
    assert history.wrong(values) == []
    for node in nodes.values():
        await node.close()
