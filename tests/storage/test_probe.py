from __future__ import annotations

import pytest

from hsparse.errors import Misconfigured, StoreFailed, Unsupported
from hsparse.storage.memory import MemoryStore
from hsparse.storage.object_store import Buffer, ObjectStore
from hsparse.storage.probe import probe
from hsparse.storage.s3 import S3Store
from hsparse.storage.single_writer import SingleWriter
from hsparse.testing.faulty_store import FaultyStore


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
