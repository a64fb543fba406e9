"""The memory that chunks and their bytes take is reserved before, and bounded."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from dataclasses import replace

import numpy as np
import pytest

from hsparse.clock import SystemClock
from hsparse.dn.cache import UNRESERVED_BYTES
from hsparse.dn.data_settings import DataSettings
from hsparse.dn.service import DataService
from hsparse.dn.stored_form import SMALL_VALUE
from hsparse.errors import Corrupt, HsparseError, TooLarge
from hsparse.format.chunk_spec import ChunkSpec, chunk_key
from hsparse.format.filters.definition import Filter
from hsparse.format.kinds.registry import kind_of
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.format.reductions.reduction import Reduction
from hsparse.format.selections.points import Orthogonal, Points
from hsparse.model.vlen_array import VlenArray
from hsparse.wire.chunk_info_message import ReadDirect, ReadObjectBytes, WriteDirect
from hsparse.wire.chunk_message import (
    CountDefined,
    FenceDeleted,
    ReadChunks,
    ReadDefined,
    ReduceChunks,
    WriteChunks,
)
from hsparse.wire.message import Message
from tests.testing.faulty_store import FaultyStore
from tests.testing.store_wrapper import CountingStore

DATASET = "d-00000000-00000001-0000-000000-000001"
MIB = 1 << 20
DIMS = (2 * MIB,)
WHOLE = Orthogonal.all(DIMS)
DEFLATE = (Filter(1, (6,)),)
SPECS = {
    "sparse": ChunkSpec(DATASET, "H5T_STD_I8LE", DIMS, True, b"", (DEFLATE, DEFLATE)),
    "dense": ChunkSpec(DATASET, "H5T_STD_I64LE", DIMS, False, b"", (DEFLATE,)),
    "sparse text": ChunkSpec(
        DATASET,
        {"class": "H5T_STRING", "length": "H5T_VARIABLE", "charSet": "H5T_CSET_UTF8"},
        (MIB // 4,),
        True,
        b"\0\0\0\0",
        (DEFLATE, DEFLATE, DEFLATE),
    ),
}
BY_SPEC = pytest.mark.parametrize("name", SPECS)


def node_over(store: CountingStore, chunk_memory: int) -> DataService:
    return DataService(store, SystemClock(), DataSettings(cache_size=MIB, chunk_memory=chunk_memory))


@pytest.fixture
async def large(store: CountingStore) -> AsyncIterator[DataService]:
    """A node with memory for any chunk here."""
    node = node_over(store, 1024 * MIB)
    yield node
    await node.close()


def at(spec: ChunkSpec, scaled: int = 3) -> tuple[ChunkSelection, ...]:
    return (ChunkSelection((scaled,), Orthogonal.all(spec.dims), True),)


async def fill(node: DataService, spec: ChunkSpec, scaled: int = 3) -> None:
    """Write one value to a whole chunk: a few bytes of body, and of object."""
    if spec.datatype.is_vlen:
        await node.send(WriteChunks(spec, at(spec, scaled), (VlenArray.of([b"\x01\0\0\0a"]),)))
    else:
        await node.send(WriteChunks(spec, at(spec, scaled), (np.ones(1, spec.dtype),)))


def reads(spec: ChunkSpec) -> list[Message[object]]:
    one = (ChunkSelection((3,), Orthogonal.box(spec.dims, (5,), (6,))),)
    found: list[Message[object]] = [ReadChunks(spec, one)]
    if spec.sparse:
        found += [ReadDefined(spec, one), CountDefined(spec, one)]
    if not spec.datatype.is_vlen:
        reduction = Reduction(spec.dims, (0,), ("total", "squares"))
        found.append(ReduceChunks(spec, at(spec), np.zeros((1, 1), np.int64), reduction))
    return found


@BY_SPEC
async def test_a_chunk_that_takes_too_much_is_refused_to_whoever_reads_it(
    name: str, large: DataService, store: CountingStore
) -> None:
    spec = SPECS[name]
    await fill(large, spec)
    small = node_over(store, 2 * MIB)
    for message in reads(spec):
        with pytest.raises(TooLarge, match=rf"chunk \[3\] of {DATASET} .*--chunk-memory"):
            await small.send(message)
        assert await large.send(message) is not None
    await small.close()


@BY_SPEC
async def test_a_chunk_that_could_never_be_read_is_not_written(name: str, store: CountingStore) -> None:
    spec, small = SPECS[name], node_over(store, 2 * MIB)
    with pytest.raises(TooLarge, match="--chunk-memory"):
        await fill(small, spec)
    assert chunk_key(DATASET, (3,)) not in [key async for page in store.list("") for key in page.keys]
    await small.close()


async def test_a_chunk_that_a_client_encoded_is_refused_before_it_is_decoded(
    large: DataService, store: CountingStore
) -> None:
    spec = SPECS["sparse"]
    await fill(large, spec)
    given = await large.send(ReadDirect(spec, (3,)))
    assert given is not None
    assert len(given.data) < 8192
    small = node_over(store, 2 * MIB)
    with pytest.raises(TooLarge, match="--chunk-memory"):
        await small.send(WriteDirect(spec, (600 * MIB,), (4,), given.data, given.row.sections[0]))
    await small.close()


@BY_SPEC
async def test_large_chunks_are_read_one_after_the_other_where_there_is_room_for_one(
    name: str, large: DataService, store: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = SPECS[name]
    for scaled in range(4):
        await fill(large, spec, scaled)
    node = node_over(store, 256 * MIB)
    budget = node._chunks._objects._memory
    most, holders = 0, 0
    take, give_back = budget.take, budget.give_back

    async def counted(nbytes: int) -> int:
        nonlocal most, holders
        taken = await take(nbytes)
        holders += 1
        most = max(most, budget.used)
        return taken

    def returned(nbytes: int) -> None:
        nonlocal holders
        holders -= 1
        give_back(nbytes)

    monkeypatch.setattr(budget, "take", counted)
    monkeypatch.setattr(budget, "give_back", returned)
    some = tuple(ChunkSelection((i,), Orthogonal.box(spec.dims, (5,), (6,))) for i in range(4))
    await asyncio.gather(*(node.send(ReadChunks(spec, some)) for _ in range(3)))
    assert 0 < most <= 256 * MIB
    assert (holders, budget.used) == (0, 0)
    await node.close()


async def test_what_was_reserved_is_given_back_when_the_read_fails(
    faulty: FaultyStore, store: CountingStore, large: DataService
) -> None:
    spec = SPECS["sparse"]
    await fill(large, spec)
    node = node_over(store, 256 * MIB)
    budget = node._chunks._objects._memory
    faulty.flip(offset=20)
    with pytest.raises(HsparseError):
        await node.send(ReadChunks(spec, at(spec)))
    assert budget.used == 0
    hang = faulty.hang("get")
    reading = await hang.holding(node.send(ReadChunks(spec, at(spec))))
    reading.cancel()
    await asyncio.wait([reading])
    assert budget.used == 0
    await node.close()


@pytest.mark.parametrize("dims", [(70_000,), (300, 300), (2,) * 31 + (1,)], ids=lambda dims: str(len(dims)))
@pytest.mark.parametrize("name", ["sparse", "sparse text"])
def test_a_small_sparse_chunk_takes_less_than_is_reserved(name: str, dims: tuple[int, ...]) -> None:
    spec = replace(SPECS[name], dims=dims)
    kind = kind_of(spec)
    for count in (1, 10, 100, 800):
        offsets = np.sort(np.random.default_rng(0).choice(min(math.prod(dims), 2**31), count, replace=False))
        coords = np.stack(np.unravel_index(offsets, dims), axis=1).astype(np.uint64)
        text = VlenArray.of([b"\x01\0\0\0a"] * count, (count,))
        values = text if spec.datatype.is_vlen else np.ones(count, np.int8)
        at = ChunkSelection((0,) * len(dims), Points(dims, coords), False)
        chunk, _ = kind.write(at, values, (), False)(None)
        if kind.nbytes(chunk) <= SMALL_VALUE:
            assert kind.decode_bound(kind.encode(chunk)) < UNRESERVED_BYTES
            assert kind.encode_bound(chunk) < UNRESERVED_BYTES


async def test_a_small_chunk_that_could_not_be_loaded_is_refused(store: CountingStore) -> None:
    node = node_over(store, 64 * MIB)
    spec = replace(SPECS["sparse text"], dims=(4,), sparse=False, filters=(DEFLATE,))
    with pytest.raises(TooLarge, match="chunk-memory"):
        await fill(node, spec)
    assert store.puts == 0
    await node.close()


BYTES_DIMS = (6,)
SPARSE = ChunkSpec(DATASET, "H5T_STD_I32LE", BYTES_DIMS, True, b"", ((), (Filter(1, (4,)),)))
DENSE = ChunkSpec(DATASET, "H5T_STD_I32LE", BYTES_DIMS, False, b"", ((Filter(1, (4,)),),))
BOTH = pytest.mark.parametrize("spec", [SPARSE, DENSE], ids=["sparse", "dense"])
KEYS = [chunk_key(DATASET, (number,)) for number in range(3)]


@pytest.fixture
async def node(store: CountingStore) -> AsyncIterator[DataService]:
    service = DataService(store, SystemClock())
    yield service
    await service.close()


async def write(node: DataService, spec: ChunkSpec, *numbers: int, value: int = 1) -> None:
    parts = tuple(ChunkSelection((number,), Orthogonal.all(BYTES_DIMS), True) for number in numbers)
    await node.send(WriteChunks(spec, parts, (np.full(BYTES_DIMS, value, "<i4"),) * len(parts)))


async def asked(store: CountingStore, spec: ChunkSpec) -> ReadObjectBytes:
    """Return the message about the objects of `KEYS` as they are now."""
    objects = [await store.store.get(key) for key in KEYS]
    sizes = [one.size for one in objects]
    etags = tuple(one.etag for one in objects)
    return ReadObjectBytes(spec, np.array([[0], [1], [2]], np.uint64), etags, np.array(sizes, np.uint64))


async def read(node: DataService, message: ReadObjectBytes) -> list[bytes | None]:
    return [None if data is None else data.tobytes() for data in await node.send(message)]


@BOTH
async def test_one_get_for_each_chunk(node: DataService, store: CountingStore, spec: ChunkSpec) -> None:
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
async def test_absent_keys_take_no_memory(node: DataService, store: CountingStore, spec: ChunkSpec) -> None:
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
    parts = tuple(ChunkSelection((number,), Orthogonal.all(BYTES_DIMS), True) for number in range(3))
    await node.send(WriteChunks(DENSE, parts, (data,) * 3))
    message = await asked(store, DENSE)
    short = ReadObjectBytes(DENSE, message.scaled, message.etags, message.sizes - np.uint64(1))
    assert await read(node, short) == [None] * 3


@pytest.mark.parametrize("place", [70, -3], ids=["values", "footer"])
async def test_corruption_is_not_served(node: DataService, store: CountingStore, place: int) -> None:
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
