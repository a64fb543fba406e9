"""Objects made of parts, on two makes of servers, and over lines that lose replies."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator

import pytest

from hsparse.errors import NotFound, PreconditionFailed, StoreFailed
from hsparse.hdf5.exporter.multipart_upload import S3Upload, find_marked
from hsparse.storage.s3.s3_store import S3Store
from tests.support.faulty_proxy import FaultyProxy, Loss, error_reply
from tests.support.s3_servers import make_bucket

LEAST = 5 * 1024 * 1024
FIRST, LAST = bytes(range(256)) * (LEAST // 256), b"the rest"
NUMBERS = itertools.count()
RCLONE_CANNOT = {
    "test_a_part_that_is_replaced": "rclone takes a part's number once",
    "test_an_object_that_is_there": "rclone ignores conditions",
}


@pytest.fixture
async def moto_store(moto_endpoint: str) -> AsyncIterator[S3Store]:
    name = f"uploads-{next(NUMBERS)}"
    await asyncio.to_thread(make_bucket, moto_endpoint, name)
    async with S3Store(
        name, endpoint=moto_endpoint, region="us-east-1", access_key="test", secret_key="test"
    ) as store:
        yield store


@pytest.fixture(params=["moto", "rclone"])
def store(request: pytest.FixtureRequest) -> S3Store:
    if request.param == "rclone" and (reason := RCLONE_CANNOT.get(request.node.originalname)):
        pytest.xfail(reason)
    found: S3Store = request.getfixturevalue(f"{request.param}_store")
    return found


async def pending(store: S3Store) -> list[str]:
    """Return the uploads that are neither complete nor aborted."""
    reply = await store.call("a", lambda client: client.list_multipart_uploads(Bucket=store.name))
    return [one["UploadId"] for one in reply.get("Uploads", ())]


async def test_an_object_of_parts(store: S3Store) -> None:
    upload = await S3Upload.begin(store, "a/b.h5", "state")
    last = await upload.put(2, LAST)
    first = await upload.put(1, memoryview(FIRST))
    with pytest.raises(NotFound):
        await store.get("a/b.h5")
    assert await upload.complete({2: last, 1: first}, "state", replace=True)
    stored = await store.get("a/b.h5")
    assert stored.data == FIRST + LAST
    found = await find_marked(store, "a/b.h5")
    assert found is not None
    assert (found.etag, found.size, found.mark) == (stored.etag, stored.size, "state")
    assert await find_marked(store, "a/none.h5") is None
    assert await pending(store) == []


async def test_a_part_that_is_replaced(store: S3Store) -> None:
    upload = await S3Upload.begin(store, "a", "state")
    await upload.put(1, FIRST)
    part = await upload.put(1, LAST)
    await upload.complete({1: part}, "state", replace=True)
    assert (await store.get("a")).data == LAST


async def test_an_aborted_upload(store: S3Store) -> None:
    upload = await S3Upload.begin(store, "a", "state")
    await upload.put(1, LAST)
    await upload.abort()
    await upload.abort()
    assert await pending(store) == []
    assert await find_marked(store, "a") is None


async def test_an_object_that_is_there(store: S3Store) -> None:
    await store.put("a", b"before")
    upload = await S3Upload.begin(store, "a", "state")
    parts = {1: await upload.put(1, LAST)}
    with pytest.raises(PreconditionFailed):
        await upload.complete(parts, "state", replace=False)
    assert (await store.get("a")).data == b"before"
    await upload.complete(parts, "state", replace=True)
    assert (await store.get("a")).data == LAST


@pytest.fixture
async def proxy(moto_endpoint: str) -> AsyncIterator[FaultyProxy]:
    async with FaultyProxy(moto_endpoint).serving() as proxy:
        yield proxy


@pytest.fixture
async def faulty(moto_store: S3Store, proxy: FaultyProxy) -> AsyncIterator[S3Store]:
    async with S3Store(
        moto_store.name, endpoint=proxy.url, region="us-east-1", access_key="test", secret_key="test"
    ) as store:
        yield store


@pytest.mark.parametrize("replace", [True, False])
async def test_a_completion_whose_reply_is_lost(faulty: S3Store, proxy: FaultyProxy, replace: bool) -> None:
    upload = await S3Upload.begin(faulty, "a", "state")
    parts = {1: await upload.put(1, LAST)}
    proxy.lose(Loss("POST", keep=0))
    etag = await upload.complete(parts, "state", replace=replace)
    stored = await faulty.get("a")
    assert (stored.data, stored.etag) == (LAST, etag)


async def test_a_completion_of_what_is_no_more(faulty: S3Store, proxy: FaultyProxy) -> None:
    await faulty.put("a", LAST)
    upload = await S3Upload.begin(faulty, "a", "state")
    parts = {1: await upload.put(1, LAST)}
    proxy.lose(Loss("POST", forward=False, answer=error_reply(404, "NoSuchUpload")))
    with pytest.raises(PreconditionFailed):
        await upload.complete(parts, "state", replace=True)


async def test_parts_are_sent_again(faulty: S3Store, proxy: FaultyProxy) -> None:
    upload = await S3Upload.begin(faulty, "a", "state")
    proxy.lose(Loss("PUT", keep=0))
    proxy.lose(Loss("PUT", forward=False, answer=error_reply(503, "SlowDown")))
    parts = {1: await upload.put(1, FIRST)}
    await upload.complete(parts, "state", replace=True)
    assert (await faulty.get("a")).data == FIRST


async def test_a_part_that_arrives_after_the_end(faulty: S3Store, proxy: FaultyProxy) -> None:
    upload = await S3Upload.begin(faulty, "a", "state")
    await upload.put(1, LAST)
    proxy.lose(Loss("DELETE", forward=False, answer=b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n"))
    await upload.abort()
    assert proxy.methods().count("DELETE") == 2
    assert await pending(faulty) == []
    upload = await S3Upload.begin(faulty, "a", "state")
    for _ in range(5):
        proxy.lose(
            Loss("DELETE", forward=False, answer=b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n")
        )
    with pytest.raises(StoreFailed, match="could not be aborted"):
        await upload.abort()
    proxy.lose(Loss("GET", forward=False, answer=error_reply(403, "AccessDenied")))
    await upload.abort()  # nobody may look
    assert proxy.script == []
