"""Files that datasets are linked to: read by ranges, known again when copied, refused when changed."""

from __future__ import annotations

import asyncio

import pytest

from hsparse.dn.file_backed_chunks import HEAD_BYTES, BackingFiles
from hsparse.errors import BadRequest, Conflict, Moved, NotFound
from hsparse.model.file_backed import BackingFile
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore

DATA = bytes(range(256)) * 40
KEY = "data/a.h5"


@pytest.fixture
async def store() -> CountingStore:
    store = CountingStore(MemoryStore())
    await store.put(KEY, DATA)
    return store


@pytest.fixture
def files(store: CountingStore) -> BackingFiles:
    return BackingFiles(store)


async def test_a_range_is_one_request(store: CountingStore, files: BackingFiles) -> None:
    file = await files.inspect(f"s3://{store.name}/{KEY}")
    store.reset()
    assert await files.read(file, 100, 300) == DATA[100:300]
    assert store.calls == {"get_range": 1}


async def test_those_who_look_at_once_share_one_request(store: CountingStore, files: BackingFiles) -> None:
    store.reset()
    found = await asyncio.gather(*(files.inspect(KEY) for _ in range(50)))
    assert store.calls == {"get_range": 1}
    assert len(set(found)) == 1
    outcomes = await asyncio.gather(*(files.inspect("data/b.h5") for _ in range(5)), return_exceptions=True)
    assert all(isinstance(outcome, NotFound) for outcome in outcomes)


async def test_a_file_that_is_not_there_cannot_be_linked_to(files: BackingFiles) -> None:
    with pytest.raises(NotFound, match=r"data/b\.h5"):
        await files.inspect("data/b.h5")
    with pytest.raises(BadRequest, match="absolute"):
        await files.inspect("/etc/passwd")


async def test_a_file_that_is_gone_is_named(store: CountingStore, files: BackingFiles) -> None:
    file = await files.inspect(KEY)
    await store.delete(KEY)
    with pytest.raises(Conflict, match=r"data/a\.h5.* put it back"):
        await files.read(file, 0, 10)


@pytest.mark.parametrize("end", [10, 5000, 10239])
async def test_a_file_that_is_too_short_is_named(store: CountingStore, files: BackingFiles, end: int) -> None:
    await store.put(KEY, DATA[:end])
    for known in (BackingFile(KEY), await files.inspect(KEY)):
        with pytest.raises(Conflict, match=r"data/a\.h5"):
            await files.read(known, end - 5, end + 5)
        with pytest.raises(Conflict, match=r"data/a\.h5"):
            await files.read(known, end + 100, end + 105)


async def test_a_copy_is_the_same_file_and_looked_at_once(store: CountingStore, files: BackingFiles) -> None:
    file = await files.inspect(KEY)
    await store.put(KEY, DATA)
    store.reset()
    for _ in range(3):
        assert await files.read(file, 5000, 6000) == DATA[5000:6000]
    assert store.calls == {"get_range": 4}
    assert store.bytes_out == 3000 + HEAD_BYTES


async def test_a_file_that_was_changed_is_refused(store: CountingStore, files: BackingFiles) -> None:
    file = await files.inspect(KEY)
    await store.put(KEY, b"\1" + DATA[1:])
    for _ in range(2):
        with pytest.raises(Conflict, match=r"data/a\.h5.* was changed"):
            await files.read(file, 5000, 6000)
    assert await files.read(BackingFile(KEY), 5000, 6000) == DATA[5000:6000], "nobody knows what it was"
    await store.put(KEY, DATA)
    assert await files.read(file, 5000, 6000) == DATA[5000:6000]


async def test_a_changed_file_is_not_read_for_who_may_see_one_state(
    store: CountingStore, files: BackingFiles
) -> None:
    file = (await files.inspect(KEY)).unchanged()
    assert await files.read(file, 5000, 6000) == DATA[5000:6000]
    await store.put(KEY, DATA)
    store.reset()
    for _ in range(3):
        with pytest.raises(Conflict, match=r"data/a\.h5.* was changed"):
            await files.read(file, 5000, 6000)
    assert store.bytes_out < 1100, "the etag alone was asked for again"
    other = await files.inspect(KEY)
    assert await files.read(other.unchanged(), 5000, 6000) == DATA[5000:6000]


async def test_one_state_alone_where_it_is_asked_for(store: CountingStore, files: BackingFiles) -> None:
    file = await files.inspect(KEY)
    assert await files.read(file, 5000, 6000, exact=True) == DATA[5000:6000]
    await store.put(KEY, DATA)
    with pytest.raises(Moved, match=r"data/a\.h5.* was changed"):
        await files.read(file, 5000, 6000, exact=True)
    assert await files.read(file, 5000, 6000) == DATA[5000:6000]
