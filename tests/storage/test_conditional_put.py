"""The conformance suite over a store that ignores conditions, and what only `SingleWriter` does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from hsparse.errors import Misconfigured, PreconditionFailed, StoreFailed, Unsupported
from hsparse.storage.condition_probe import probe
from hsparse.storage.conditional_put import SingleWriter
from hsparse.storage.object_store import Buffer, ObjectStore, Page
from hsparse.storage.s3.s3_store import S3Store
from tests.testing.faulty_store import FaultyStore
from tests.testing.memory_store import MemoryStore
from tests.testing.store_conformance import *  # noqa: F403


class IgnoresAbsent(MemoryStore):
    async def put_if_absent(self, key: str, data: Buffer) -> str:
        return await self.put(key, data)


class IgnoresMatch(MemoryStore):
    """Compares nothing, but knows when there is no object."""

    async def put_if_match(self, key: str, data: Buffer, etag: str) -> str:
        return await super().put_if_match(
            key, data, (await self.get(key)).etag if key in self._keys else etag
        )


class CreatesOnMatch(MemoryStore):
    async def put_if_match(self, key: str, data: Buffer, etag: str) -> str:
        return await (super().put_if_match(key, data, etag) if key in self._keys else self.put(key, data))


class RefusesMatch(MemoryStore):
    async def put_if_match(self, key: str, data: Buffer, etag: str) -> str:
        return await super().put_if_match(key, data, "other")


class OtherEtagOnGet(MemoryStore):
    async def put_if_match(self, key: str, data: Buffer, etag: str) -> str:
        return await super().put_if_match(key, data, etag) + "-weak"


class HasNoConditions(MemoryStore):
    async def put_if_match(self, key: str, data: Buffer, etag: str) -> str:
        raise Unsupported("not implemented")


class ListsOutOfOrder(MemoryStore):
    async def list(
        self, prefix: str, *, delimiter: bool = False, start_after: str = ""
    ) -> AsyncIterator[Page]:
        async for page in super().list(prefix, delimiter=delimiter, start_after=start_after):
            yield Page(page.entries[::-1])


class ListsFolderByFolder(ListsOutOfOrder):
    """Has `a/b` before `a-b`, as a walk of directories does."""

    async def list(
        self, prefix: str, *, delimiter: bool = False, start_after: str = ""
    ) -> AsyncIterator[Page]:
        async for page in MemoryStore.list(self, prefix, delimiter=delimiter, start_after=start_after):
            yield Page(tuple(sorted(page.entries, key=lambda entry: entry.key.split("/"))))


async def keys(store: ObjectStore) -> list[str]:
    return [entry.key async for page in store.list("") for entry in page.entries]


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        (IgnoresAbsent, "ignores If-None-Match"),
        (IgnoresMatch, "ignores If-Match with a stale etag"),
        (CreatesOnMatch, "ignores If-Match on an absent object"),
        (RefusesMatch, "refuses If-Match with the current etag"),
        (OtherEtagOnGet, "does not return"),
        (HasNoConditions, "has no conditional put"),
    ],
)
async def test_finds_what_a_store_ignores(kind: type[MemoryStore], complaint: str) -> None:
    store = kind("weak")
    with pytest.raises(Misconfigured, match=complaint) as caught:
        await probe(store)
    assert "'weak'" in caught.value.message
    assert "--single-writer" in caught.value.message
    assert await keys(store) == []


@pytest.mark.parametrize("kind", [ListsOutOfOrder, ListsFolderByFolder])
async def test_finds_a_store_that_lists_out_of_order(kind: type[MemoryStore]) -> None:
    store = kind("strange")
    with pytest.raises(Misconfigured, match="'strange' lists its keys out of order"):
        await probe(store)
    assert await keys(store) == []


async def test_probe_leaves_a_good_store_as_it_was() -> None:
    store = MemoryStore()
    await store.put("db/0", b"data")
    await probe(store)
    assert await keys(store) == ["db/0"]


async def test_removes_its_key_when_the_store_fails() -> None:
    store = FaultyStore(MemoryStore())
    store.fail_after("put_if_absent", times=2)
    with pytest.raises(StoreFailed):
        await probe(store)
    assert await keys(store) == []


async def test_finds_rclone_out(rclone_store: S3Store) -> None:
    with pytest.raises(Misconfigured, match="ignores If-Match"):
        await probe(rclone_store)
    assert await keys(rclone_store) == []
    await probe(SingleWriter(rclone_store))


RCLONE_CANNOT = {
    "test_delete_above_and_below_an_object_removes_nothing": "rclone takes its file system's path for the key",
    "test_create_and_delete_race": "rclone can hang on a put whose directory a delete has just left empty",
}


@pytest.fixture
def store(request: pytest.FixtureRequest, rclone_store: S3Store) -> ObjectStore:
    if (reason := RCLONE_CANNOT.get(request.node.originalname)) is not None:
        pytest.xfail(reason)
    return SingleWriter(rclone_store)


async def test_a_cancelled_put_still_excludes_the_next() -> None:
    memory = MemoryStore()
    faulty = FaultyStore(memory)
    store = SingleWriter(faulty)
    etag = await store.put("a", b"first")
    fault = faulty.hang("put", "a")
    cancelled = asyncio.create_task(store.put_if_match("a", b"second", etag))
    await fault.entered.wait()
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    following = asyncio.create_task(store.put_if_match("a", b"third", etag))
    fault.release()
    with pytest.raises(PreconditionFailed):
        await following
    assert (await memory.get("a")).data == b"second"


async def test_close_lets_a_write_end() -> None:
    memory = MemoryStore()
    faulty = FaultyStore(memory)
    store = SingleWriter(faulty)
    fault = faulty.hang("put")
    write = asyncio.create_task(store.put("a", b"data"))
    await fault.entered.wait()
    closing = asyncio.create_task(store.close())
    fault.release()
    await closing
    await write
    assert (await memory.get("a")).data == b"data"


async def test_keys_do_not_wait_for_each_other() -> None:
    faulty = FaultyStore(MemoryStore())
    store = SingleWriter(faulty)
    fault = faulty.hang("put", "a")
    waiting = asyncio.create_task(store.put("a", b"data"))
    await fault.entered.wait()
    await store.put_if_absent("b", b"data")
    assert not waiting.done()
    fault.release()
    await waiting
