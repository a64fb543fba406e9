"""Requests at once around a shrink: what was acknowledged after the dataset grew again must stay."""

from __future__ import annotations

import asyncio

import numpy as np

from hsparse.clock import SystemClock
from hsparse.cluster.membership import Membership
from hsparse.dn.service import DataService
from hsparse.sn.owners import Owners
from hsparse.storage.memory import MemoryStore
from hsparse.testing.direct_door import DirectDoor
from hsparse.testing.door import Kind, Place
from hsparse.testing.faulty_store import FaultyStore

LINE = Kind("H5T_STD_I32LE", (40,), (10,), 40)


async def test_a_late_shrink_erases_nothing_that_was_written_after_the_dataset_grew_again() -> None:
    """The first request sets the extent, then is held up; the second finishes its work, grows, writes."""
    store = FaultyStore(MemoryStore())
    node = DataService(store, SystemClock())
    door = DirectDoor(Owners(Membership(1, (node.id,)), {node.id: node}))
    id = await door.create(LINE)
    place = Place(points=((35,), (12,)))
    await door.write(id, place, np.array([1, 1], "<i4"), False)

    listing = store.hang("list")
    shrinking = asyncio.create_task(door.resize(id, (15,)))
    await listing.entered.wait()
    await door.resize(id, (40,))
    assert sorted(await door.read_sparse(id)) == [(12,)]
    await door.write(id, place, np.array([2, 2], "<i4"), False)
    listing.release()
    await shrinking

    assert await door.extent(id) == (40,)
    assert sorted(await door.read_sparse(id)) == [(12,), (35,)]
    await node.close()
