"""Chunks of files that datasets are linked to: values, requests, bounds, and files that were changed."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import numpy as np
import pytest

from hsparse.clock import SystemClock
from hsparse.dn.data_settings import DataSettings
from hsparse.dn.file_backed_chunks import HEAD_BYTES, BackingFiles
from hsparse.dn.service import DataService
from hsparse.errors import BadRequest, Conflict, Gone, Moved, NotFound
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.file_backed import MAX_GAP, MAX_RANGE, ChunkPieces
from hsparse.format.filters.definition import Filter
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.format.selections.points import Orthogonal
from hsparse.model.file_backed import BackingFile
from hsparse.storage.object_store import Buffer
from hsparse.wire.chunk_info_message import InspectFile, ReadFileBacked
from hsparse.wire.chunk_message import FenceDeleted
from hsparse.wire.codec import decode_frame, encode_frame
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore

R = TypeVar("R")
DATASET = "d-00000000-00000001-0000-000000-000001"
FILE = "data/a.h5"
DEFLATE = (Filter(1, (4,)),)


class Gate(CountingStore):
    """Counts, and holds range reads of the file back until it is opened."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.open = asyncio.Event()
        self.open.set()
        self.reached = asyncio.Event()

    async def around(self, method: str, key: str, data: Buffer, call: Callable[[Buffer], Awaitable[R]]) -> R:
        if method == "get_range":
            self.reached.set()
            await self.open.wait()
        return await super().around(method, key, data, call)


@pytest.fixture
def store() -> Gate:
    return Gate()


@pytest.fixture
async def node(store: Gate) -> AsyncIterator[DataService]:
    service = DataService(store, SystemClock())
    yield service
    store.open.set()
    await service.close()


def spec(dims: tuple[int, ...], filters: tuple[Filter, ...] = (), fill: bytes = b"") -> ChunkSpec:
    return ChunkSpec(DATASET, "H5T_STD_I32LE", dims, False, fill, (filters,))


def pieces(rows: list[tuple[int, tuple[int, ...], int, int]], rank: int = 1, mask: int = 0) -> ChunkPieces:
    """Return pieces of rows of chunk, place, offset and size."""
    return ChunkPieces(
        np.array([row[0] for row in rows], np.uint32),
        np.array([row[1] for row in rows], np.uint32).reshape(-1, rank),
        np.zeros(len(rows), np.uint32),
        np.array([row[2] for row in rows], np.uint64),
        np.array([row[3] for row in rows], np.uint64),
        np.full(len(rows), mask, np.uint32),
    )


def whole(dims: tuple[int, ...], *scaled: int) -> ChunkSelection:
    return ChunkSelection(scaled, Orthogonal.all(dims), full=True)


def message(
    dims: tuple[int, ...], count: int, found: ChunkPieces, piece: tuple[int, ...], **options: Any
) -> ReadFileBacked:
    parts = tuple(whole(dims, i, *(0,) * (len(dims) - 1)) for i in range(count))
    sent = ReadFileBacked(spec(dims, **options), parts, found, (BackingFile(FILE),), piece)
    received: ReadFileBacked = decode_frame(b"".join(encode_frame(sent)))
    return received


async def test_close_pieces_are_read_by_one_request_and_kept(store: Gate, node: DataService) -> None:
    values = np.arange(400, dtype="<i4")
    await store.put(FILE, b"head" + values.tobytes())
    asked = message((100,), 4, pieces([(i, (0,), 4 + 400 * i, 400) for i in range(4)]), (100,))
    store.reset()
    for _ in range(2):
        found = await node.send(asked)
        np.testing.assert_array_equal(np.concatenate(found), values)
    assert (store.calls, store.bytes_out) == ({"get_range": 1}, 1600)


async def test_what_lies_apart_is_read_apart(store: Gate, node: DataService) -> None:
    apart = MAX_GAP + 401
    data = bytearray(3 * apart)
    for i in range(3):
        data[i * apart : i * apart + 400] = np.full(100, i, "<i4").tobytes()
    await store.put(FILE, bytes(data))
    store.reset()
    found = await node.send(message((100,), 3, pieces([(i, (0,), i * apart, 400) for i in range(3)]), (100,)))
    assert ([value[0] for value in found], store.calls) == ([0, 1, 2], {"get_range": 3})
    assert store.bytes_out == 1200


async def test_a_range_does_not_get_too_long(store: Gate, node: DataService) -> None:
    dims = (MAX_RANGE // 16,)  # a quarter of the longest range
    await store.put(FILE, np.arange(dims[0] * 6, dtype="<i4").tobytes())
    store.reset()
    found = await node.send(
        message(dims, 6, pieces([(i, (0,), i * dims[0] * 4, dims[0] * 4) for i in range(6)]), dims)
    )
    np.testing.assert_array_equal(np.concatenate(found), np.arange(dims[0] * 6))
    assert store.calls == {"get_range": 2}


async def test_a_chunk_of_several_pieces_with_holes(store: Gate, node: DataService) -> None:
    model = np.full((2, 6, 4), -1, "<i4")
    data, rows = b"", []
    for chunk in range(2):
        for row, column in ((0, 0), (2, 1), (1, 0)):
            block = np.random.default_rng(row).integers(0, 9, (2, 2)).astype("<i4")
            model[chunk, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2] = block
            packed = zlib.compress(block.tobytes())
            rows.append((chunk, (row, column), len(data), len(packed)))
            data += packed
    await store.put(FILE, data)
    fill = np.array(-1, "<i4").tobytes()
    asked = message((6, 4), 3, pieces(rows, 2), (2, 2), filters=DEFLATE, fill=fill)
    first, second, nothing = await node.send(asked)
    np.testing.assert_array_equal(np.stack([first, second]), model)
    assert nothing is None, "a chunk without pieces"


async def test_a_slab_may_be_cut_short(store: Gate, node: DataService) -> None:
    await store.put(FILE, np.arange(6, dtype="<i4").tobytes())
    asked = message((2, 4), 1, pieces([(0, (0, 0), 0, 24)], 2), (), fill=np.array(9, "<i4").tobytes())
    (found,) = await node.send(asked)
    assert found.tolist() == [[0, 1, 2, 3], [4, 5, 9, 9]]


async def test_waiters_share_one_load_and_survive_who_asked_first(store: Gate, node: DataService) -> None:
    await store.put(FILE, np.arange(100, dtype="<i4").tobytes())
    asked = message((100,), 1, pieces([(0, (0,), 0, 400)]), (100,))
    store.reset()
    store.open.clear()
    first = asyncio.create_task(node.send(asked))
    others = [asyncio.create_task(node.send(asked)) for _ in range(3)]
    await store.reached.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    store.open.set()
    for task in others:
        assert (await task)[0][99] == 99
    assert store.calls == {"get_range": 1}


async def test_a_failure_is_not_kept_and_not_passed_on(store: Gate, node: DataService) -> None:
    good, bad = np.arange(100, dtype="<i4").tobytes(), b"\0" * 50
    packed = zlib.compress(good)
    await store.put(FILE, packed + bad)
    both = pieces([(0, (0,), 0, len(packed)), (1, (0,), len(packed), 50)])
    one = pieces([(0, (0,), 0, len(packed))])
    store.open.clear()
    failing = asyncio.create_task(node.send(message((100,), 2, both, (100,), filters=DEFLATE)))
    await store.reached.wait()
    waiting = asyncio.create_task(node.send(message((100,), 1, one, (100,), filters=DEFLATE)))
    await asyncio.sleep(0)
    store.open.set()
    with pytest.raises(Conflict, match=rf"{FILE}.*{DATASET}.*byte {len(packed)}, 50 bytes"):
        await failing
    assert (await waiting)[0].tobytes() == good


async def test_a_file_that_came_back_is_read(store: Gate, node: DataService) -> None:
    asked = message((100,), 1, pieces([(0, (0,), 0, 400)]), (100,))
    with pytest.raises(NotFound, match=FILE):
        await node.send(asked)
    await store.put(FILE, bytes(400))
    assert not (await node.send(asked))[0].any()


async def test_other_pieces_are_another_chunk(store: Gate, node: DataService) -> None:
    await store.put(FILE, np.arange(200, dtype="<i4").tobytes())
    for offset in (0, 400, 0):
        (found,) = await node.send(message((100,), 1, pieces([(0, (0,), offset, 400)]), (100,)))
        assert found[0] == offset // 4


async def test_a_piece_cannot_be_longer_than_filters_make_it(store: Gate, node: DataService) -> None:
    await store.put(FILE, bytes(1000))
    for filters, size in (((), 405), (DEFLATE, 10_000), (DEFLATE, 2**60)):
        with pytest.raises(Conflict, match="at most"):
            await node.send(message((100,), 1, pieces([(0, (0,), 0, size)]), (100,), filters=filters))


async def test_a_deleted_dataset_is_gone_and_takes_no_memory(store: Gate, node: DataService) -> None:
    await store.put(FILE, bytes(400))
    asked = message((100,), 1, pieces([(0, (0,), 0, 400)]), (100,))
    await node.send(asked)
    assert node._cache.nbytes >= 400
    await node.send(FenceDeleted(DATASET))
    assert node._cache.nbytes == 0
    with pytest.raises(Gone):
        await node.send(asked)


async def test_chunks_stay_within_the_cache(store: Gate) -> None:
    await store.put(FILE, bytes(400_000))
    service = DataService(store, SystemClock(), DataSettings(cache_size=100_000))
    found = await service.send(
        message((1000,), 100, pieces([(i, (0,), 4000 * i, 4000) for i in range(100)]), (1000,))
    )
    assert len(found) == 100
    assert 50_000 < service._cache.nbytes <= 100_000
    await service.close()


async def test_a_file_is_looked_at(store: Gate, node: DataService) -> None:
    await store.put(FILE, b"abc")
    file = await node.send(InspectFile(FILE))
    assert (file.uri, file.etag, file.head) == (FILE, (await store.get(FILE)).etag, zlib.crc32(b"abc"))


DATA = bytes(range(256)) * 40
KEY = "data/a.h5"


@pytest.fixture
async def file_store() -> CountingStore:
    file_store = CountingStore(MemoryStore())
    await file_store.put(KEY, DATA)
    return file_store


@pytest.fixture
def files(file_store: CountingStore) -> BackingFiles:
    return BackingFiles(file_store)


async def test_a_range_is_one_request(file_store: CountingStore, files: BackingFiles) -> None:
    file = await files.inspect(f"s3://{file_store.name}/{KEY}")
    file_store.reset()
    assert await files.read(file, 100, 300) == DATA[100:300]
    assert file_store.calls == {"get_range": 1}


async def test_looks_at_once_share_one_request(file_store: CountingStore, files: BackingFiles) -> None:
    file_store.reset()
    found = await asyncio.gather(*(files.inspect(KEY) for _ in range(50)))
    assert (file_store.calls, len(set(found))) == ({"get_range": 1}, 1)
    outcomes = await asyncio.gather(*(files.inspect("data/b.h5") for _ in range(5)), return_exceptions=True)
    assert all(isinstance(outcome, NotFound) for outcome in outcomes)


async def test_a_file_that_is_not_there_cannot_be_linked_to(files: BackingFiles) -> None:
    with pytest.raises(NotFound, match=r"data/b\.h5"):
        await files.inspect("data/b.h5")
    with pytest.raises(BadRequest, match="absolute"):
        await files.inspect("/etc/passwd")


async def test_a_file_that_is_gone_is_named(file_store: CountingStore, files: BackingFiles) -> None:
    file = await files.inspect(KEY)
    await file_store.delete(KEY)
    with pytest.raises(Conflict, match=r"data/a\.h5.* put it back"):
        await files.read(file, 0, 10)


@pytest.mark.parametrize("end", [10, 5000, 10239])
async def test_a_short_file_is_named(file_store: CountingStore, files: BackingFiles, end: int) -> None:
    await file_store.put(KEY, DATA[:end])
    for known in (BackingFile(KEY), await files.inspect(KEY)):
        with pytest.raises(Conflict, match=r"data/a\.h5"):
            await files.read(known, end - 5, end + 5)
        with pytest.raises(Conflict, match=r"data/a\.h5"):
            await files.read(known, end + 100, end + 105)


async def test_a_copy_is_the_same_file_looked_at(file_store: CountingStore, files: BackingFiles) -> None:
    file = await files.inspect(KEY)
    await file_store.put(KEY, DATA)
    file_store.reset()
    for _ in range(3):
        assert await files.read(file, 5000, 6000) == DATA[5000:6000]
    assert (file_store.calls, file_store.bytes_out) == ({"get_range": 4}, 3000 + HEAD_BYTES)


async def test_a_file_that_was_changed_is_refused(file_store: CountingStore, files: BackingFiles) -> None:
    file = await files.inspect(KEY)
    await file_store.put(KEY, b"\1" + DATA[1:])
    for _ in range(2):
        with pytest.raises(Conflict, match=r"data/a\.h5.* was changed"):
            await files.read(file, 5000, 6000)
    assert await files.read(BackingFile(KEY), 5000, 6000) == DATA[5000:6000], "nobody knows what it was"
    await file_store.put(KEY, DATA)
    assert await files.read(file, 5000, 6000) == DATA[5000:6000]


async def test_one_state_of_a_file_is_read_or_none(file_store: CountingStore, files: BackingFiles) -> None:
    file = (await files.inspect(KEY)).unchanged()
    assert await files.read(file, 5000, 6000) == DATA[5000:6000]
    await file_store.put(KEY, DATA)
    file_store.reset()
    for _ in range(3):
        with pytest.raises(Conflict, match=r"data/a\.h5.* was changed"):
            await files.read(file, 5000, 6000)
    assert file_store.bytes_out < 1100, "the etag alone was asked for again"
    other = await files.inspect(KEY)
    assert await files.read(other.unchanged(), 5000, 6000) == DATA[5000:6000]


async def test_one_state_alone_where_it_is_asked_for(file_store: CountingStore, files: BackingFiles) -> None:
    file = await files.inspect(KEY)
    assert await files.read(file, 5000, 6000, exact=True) == DATA[5000:6000]
    await file_store.put(KEY, DATA)
    with pytest.raises(Moved, match=r"data/a\.h5.* was changed"):
        await files.read(file, 5000, 6000, exact=True)
    assert await files.read(file, 5000, 6000) == DATA[5000:6000]
