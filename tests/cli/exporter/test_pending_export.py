from __future__ import annotations

import pytest

from hsparse.errors import NotFound
from hsparse.hdf5.exporter.multipart_upload import S3Upload
from hsparse.hdf5.exporter.part_plan import FilePart
from hsparse.hdf5.exporter.pending_export import PendingExport, forget, plan_digest
from hsparse.storage.s3.s3_store import S3Store
from tests.conftest import MakeStore

KEY = "some/a.h5"


@pytest.fixture
async def store(make_store: MakeStore) -> S3Store:
    store = await make_store("s3")
    assert isinstance(store, S3Store)
    return store


async def keys(store: S3Store) -> list[str]:
    return [entry.key async for page in store.list("") for entry in page.entries]


async def test_what_is_saved_is_found_until_it_is_forgotten(store: S3Store) -> None:
    assert await PendingExport.load(store, KEY, "2-stock-1") is None
    pending = PendingExport("an-id", "digest", copied=True)
    await pending.save(store, KEY, "2-stock-1")
    assert await PendingExport.load(store, KEY, "2-stock-1") == pending
    assert await keys(store) == [f"{KEY}.2-stock-1.part"]
    await forget(store, KEY, "2-stock-1")
    assert await PendingExport.load(store, KEY, "2-stock-1") is None


async def test_other_states_are_given_up(store: S3Store) -> None:
    upload = await S3Upload.begin(store, KEY, "2-stock-1")
    await PendingExport(upload.id, "digest", copied=True).save(store, KEY, "2-stock-1")
    await PendingExport("gone", "digest", copied=False).save(store, KEY, "2-stock-2")
    assert await PendingExport.load(store, KEY, "2-stock-3") is None
    with pytest.raises(NotFound):
        await upload.parts()
    assert await keys(store) == []


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"{}", b"[]", b'{"kind": "other", "id": "a"}', b'{"kind": "hsparse-export"}']
)
async def test_what_is_somebody_elses_stays(store: S3Store, data: bytes) -> None:
    others = [f"{KEY}.1.part", f"{KEY}.2-stock-1.part", f"{KEY}.a/b.part", f"{KEY}x.1.part"]
    for name in others:
        await store.put(name, data)
    assert await PendingExport.load(store, KEY, "2-stock-1") is None
    assert await keys(store) == sorted(others)


def test_the_digest_is_of_the_parts_bounds() -> None:
    parts = (FilePart(0, 10), FilePart(10, 20))
    assert plan_digest(parts) == plan_digest(parts)
    assert plan_digest(parts) != plan_digest((FilePart(0, 11), FilePart(11, 20)))
