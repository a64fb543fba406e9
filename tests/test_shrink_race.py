"""Requests at once around a shrink: what was acknowledged after the dataset grew again must stay."""

from __future__ import annotations

import asyncio
import itertools
import random
from dataclasses import replace

import numpy as np
import pytest

from hsparse.clock import SystemClock
from hsparse.dn.service import DataService
from hsparse.errors import BadRequest, Conflict, Moved
from hsparse.sn.data_nodes.owners import FixedNodes, Owners
from hsparse.sn.records import dataset
from tests.support.direct_driver import DirectDriver
from tests.support.driver import DatasetSpec, Place
from tests.support.write_history import WriteHistory
from tests.testing.faulty_store import FaultyStore
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import SlowStore

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
    shrinking = asyncio.create_task(driver.resize(id, ((0, 15),)))
    await listing.entered.wait()
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
