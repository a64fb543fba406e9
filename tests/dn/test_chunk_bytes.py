"""Objects of chunks by their etags: one get each, then the cache; never other bytes, nor corrupt ones.

Both forms of data nodes run `tests/dn/test_service.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import numpy as np
import pytest

from hsparse.clock import SystemClock
from hsparse.dn.service import DataService
from hsparse.errors import Corrupt
from hsparse.format.chunk_spec import ChunkSpec, chunk_key
from hsparse.format.filters.definition import Filter
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.format.selections.points import Orthogonal
from hsparse.wire.chunk_info_message import ReadObjectBytes
from hsparse.wire.chunk_message import FenceDeleted, WriteChunks
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore

DATASET = "d-00000000-00000001-0000-000000-000001"
DIMS = (6,)
SPARSE = ChunkSpec(DATASET, "H5T_STD_I32LE", DIMS, True, b"", ((), (Filter(1, (4,)),)))
DENSE = ChunkSpec(DATASET, "H5T_STD_I32LE", DIMS, False, b"", ((Filter(1, (4,)),),))
BOTH = pytest.mark.parametrize("spec", [SPARSE, DENSE], ids=["sparse", "dense"])
KEYS = [chunk_key(DATASET, (number,)) for number in range(3)]


@pytest.fixture
def store() -> CountingStore:
    return CountingStore(MemoryStore())


@pytest.fixture
async def node(store: CountingStore) -> AsyncIterator[DataService]:
    service = DataService(store, SystemClock())
    yield service
    await service.close()


async def write(node: DataService, spec: ChunkSpec, *numbers: int, value: int = 1) -> None:
    parts = tuple(ChunkSelection((number,), Orthogonal.all(DIMS), True) for number in numbers)
    await node.send(WriteChunks(spec, parts, (np.full(DIMS, value, "<i4"),) * len(parts)))


async def asked(store: CountingStore, spec: ChunkSpec) -> ReadObjectBytes:
    """Return the message about the objects of `KEYS` as they are now."""
    objects = [await store.store.get(key) for key in KEYS]
    sizes = [one.size for one in objects]
    etags = tuple(one.etag for one in objects)
    return ReadObjectBytes(spec, np.array([[0], [1], [2]], np.uint64), etags, np.array(sizes, np.uint64))


async def read(node: DataService, message: ReadObjectBytes) -> list[bytes | None]:
    return [None if data is None else data.tobytes() for data in await node.send(message)]


@BOTH
async def test_one_get_a_chunk_and_none_again(
    node: DataService, store: CountingStore, spec: ChunkSpec
) -> None:
    await write(node, spec, 0, 1, 2)
    message = await asked(store, spec)
    objects = [(await store.store.get(key)).data for key in KEYS]
    store.reset()
    assert await read(node, message) == objects
    assert store.calls == {"get_range": 3}
    assert await read(node, message) == objects
    assert store.calls == {"get_range": 3}
    await write(node, spec, 1, value=2)
    changed = await asked(store, spec)
    store.reset()
    assert await read(node, changed) == [objects[0], (await store.store.get(KEYS[1])).data, objects[2]]
    assert store.calls == {"get_range": 3}  # the node has changed the dataset
    assert await read(node, message) == [objects[0], None, objects[2]]
    assert store.calls == {"get_range": 4}


@BOTH
async def test_what_is_not_there_takes_no_memory(
    node: DataService, store: CountingStore, spec: ChunkSpec
) -> None:
    await write(node, spec, 0, 1)
    await store.put(KEYS[2], b"")
    message = await asked(store, spec)
    before = node.counters()
    wrong = ReadObjectBytes(spec, message.scaled, ("", "x", message.etags[2]), message.sizes + np.uint64(1))
    assert await read(node, wrong) == [None] * 3
    absent = ReadObjectBytes(spec, message.scaled + np.uint64(9), message.etags, message.sizes)
    assert await read(node, absent) == [None] * 3
    assert node.counters() == before


async def test_no_more_is_read_than_was_said(node: DataService, store: CountingStore) -> None:
    data = np.random.default_rng(1).integers(0, 2**31, 6).astype("<i4")
    parts = tuple(ChunkSelection((number,), Orthogonal.all(DIMS), True) for number in range(3))
    await node.send(WriteChunks(DENSE, parts, (data,) * 3))
    message = await asked(store, DENSE)
    short = ReadObjectBytes(DENSE, message.scaled, message.etags, message.sizes - np.uint64(1))
    assert await read(node, short) == [None] * 3


@pytest.mark.parametrize("place", [70, -3], ids=["values", "footer"])
async def test_corrupt_bytes_are_not_served(node: DataService, store: CountingStore, place: int) -> None:
    await write(node, SPARSE, 0, 1, 2)
    data = bytearray((await store.get(KEYS[1])).data)
    data[place] ^= 1
    await store.put(KEYS[1], data)
    with pytest.raises(Corrupt, match=KEYS[1]):
        await read(node, await asked(store, SPARSE))


@BOTH
async def test_a_deleted_dataset_leaves_nothing_in_the_cache(
    node: DataService, store: CountingStore, spec: ChunkSpec
) -> None:
    await write(node, spec, 0, 1, 2)
    await read(node, await asked(store, spec))
    assert node.counters()["cached_bytes"] > 0
    await node.send(FenceDeleted(DATASET))
    assert node.counters() == {"cached_objects": 0, "cached_bytes": 0}
