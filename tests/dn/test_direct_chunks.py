"""Direct writes go the way of all writes: conditional, in groups, fenced; what is cached is what was written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import numpy as np
import pytest

from hsparse.clock import SystemClock
from hsparse.dn.service import DataService
from hsparse.errors import BadRequest, Corrupt, Gone
from hsparse.format.chunk_spec import ChunkSpec, chunk_key
from hsparse.format.filters.definition import Filter
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.format.selections.points import Orthogonal
from hsparse.wire.chunk_info_message import ReadDirect, WriteDirect
from hsparse.wire.chunk_message import FenceDeleted, ReadChunks, WriteChunks
from tests.testing.faulty_store import FaultyStore
from tests.testing.store_wrapper import CountingStore

DATASET = "d-00000000-00000001-0000-000000-000001"
DIMS, EXTENT = (6,), (600,)
SPARSE = ChunkSpec(DATASET, "H5T_STD_I32LE", DIMS, True, b"", ((), (Filter(1, (4,)),)))
DENSE = ChunkSpec(DATASET, "H5T_STD_I32LE", DIMS, False, b"", ((Filter(1, (4,)),),))
WHOLE = Orthogonal.all(DIMS)
KEY = chunk_key(DATASET, (3,))


@pytest.fixture
async def node(store: CountingStore) -> AsyncIterator[DataService]:
    service = DataService(store, SystemClock())
    yield service
    await service.close()


async def write(node: DataService, spec: ChunkSpec, value: int, scaled: int = 3) -> None:
    await node.send(
        WriteChunks(spec, (ChunkSelection((scaled,), WHOLE, True),), (np.full(DIMS, value, "<i4"),))
    )


async def read(node: DataService, spec: ChunkSpec) -> list[int]:
    (values,) = await node.send(ReadChunks(spec, (ChunkSelection((3,), WHOLE),)))
    assert values is not None
    found: list[int] = values.tolist()
    return found


async def given(node: DataService, spec: ChunkSpec, value: int) -> WriteDirect:
    """Return the message that stores a chunk of `value`, as this node would have stored it."""
    await write(node, spec, value, scaled=50)
    found = await node.send(ReadDirect(spec, (50,)))
    assert found is not None
    table = found.row.sections[0] if spec.sparse else np.array([[len(found.data), 0, 0]], np.uint64)
    return WriteDirect(spec, EXTENT, (3,), found.data, table)


BOTH = pytest.mark.parametrize("spec", [SPARSE, DENSE], ids=["sparse", "dense"])


@BOTH
async def test_reads_see_what_was_written_and_later_writes_build_on_it(
    node: DataService, store: CountingStore, spec: ChunkSpec
) -> None:
    await write(node, spec, 1)
    message = await given(node, spec, 8)
    store.reset()
    await node.send(message)
    assert store.calls == {"put_if_match": 1}
    assert (await store.store.get(KEY)).data.startswith(message.data.tobytes())
    store.reset()
    assert await read(node, spec) == [8] * 6
    assert store.calls == {}
    part = ChunkSelection((3,), Orthogonal.box(DIMS, (2,), (4,)))
    await node.send(WriteChunks(spec, (part,), (np.array([5, 6], "<i4"),)))
    assert await read(node, spec) == [8, 8, 5, 6, 8, 8]
    again = DataService(store, SystemClock())
    assert await read(again, spec) == [8, 8, 5, 6, 8, 8]
    await again.close()


@BOTH
async def test_two_nodes_that_write_one_chunk(
    node: DataService, store: CountingStore, spec: ChunkSpec
) -> None:
    """The second's etag is an old one: its put is refused, and made again over what is there."""
    other = DataService(store, SystemClock())
    message = await given(node, spec, 8)
    await write(other, spec, 1)
    await node.send(message)
    await other.send(message)
    assert (await store.store.get(KEY)).data.startswith(message.data.tobytes())
    await write(node, spec, 2)
    assert await read(node, spec) == [2] * 6
    await other.send(message)
    again = DataService(store, SystemClock())
    assert await read(again, spec) == [8] * 6
    await again.close()
    await other.close()


@BOTH
async def test_direct_and_other_writes_share_a_put(
    node: DataService, store: CountingStore, faulty: FaultyStore, spec: ChunkSpec
) -> None:
    message = await given(node, spec, 8)
    store.reset()
    hang = faulty.hang("puts", KEY)
    first = asyncio.create_task(write(node, spec, 1))
    await hang.entered.wait()
    part = ChunkSelection((3,), Orthogonal.box(DIMS, (0,), (1,)))
    direct = asyncio.create_task(node.send(message))
    await asyncio.sleep(0)
    later = asyncio.create_task(node.send(WriteChunks(spec, (part,), (np.array([7], "<i4"),))))
    await asyncio.sleep(0)
    hang.release()
    await asyncio.gather(first, direct, later)
    assert store.puts == 2
    assert await read(node, spec) == [7, 8, 8, 8, 8, 8]


@BOTH
async def test_a_refused_chunk_changes_nothing(
    node: DataService, store: CountingStore, spec: ChunkSpec
) -> None:
    message = await given(node, spec, 8)
    await write(node, spec, 1)
    store.reset()
    bad = [message.data[:-1], message.data ^ np.uint8(1)]
    if spec.sparse:  # what follows a deflate stream is nothing to deflate, nor to HDF5
        bad.append(np.append(message.data, np.uint8(0)))
    for data in bad:
        with pytest.raises(BadRequest):
            await node.send(WriteDirect(spec, EXTENT, (3,), data, message.sections))
    assert store.calls == {}
    assert await read(node, spec) == [1] * 6


async def test_a_structured_chunk_that_is_corrupt_is_not_served(
    node: DataService, store: CountingStore
) -> None:
    await write(node, SPARSE, 1)
    data = bytearray((await store.get(KEY)).data)
    data[70] ^= 1
    await store.put(KEY, data)
    with pytest.raises(Corrupt, match=KEY):
        await node.send(ReadDirect(SPARSE, (3,)))


@BOTH
async def test_a_deleted_dataset_takes_none(node: DataService, store: CountingStore, spec: ChunkSpec) -> None:
    message = await given(node, spec, 8)
    await node.send(FenceDeleted(DATASET))
    store.reset()
    with pytest.raises(Gone):
        await node.send(message)
    assert store.puts == 0
