"""Requests to S3 servers: the client's own, and objects made of parts over lines that lose replies."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest
from botocore.utils import parse_timestamp

from hsparse.attempts import MAX_READ_ATTEMPTS
from hsparse.errors import (
    BadRequest,
    Misconfigured,
    NotFound,
    PreconditionFailed,
    StoreFailed,
    StoreFull,
    Unsupported,
)
from hsparse.hdf5.exporter.multipart_upload import S3Upload, find_marked
from hsparse.storage.bucket_client import AccessRefused, RetryReason
from hsparse.storage.s3.s3_client import parse_time, translate_error_reply
from hsparse.storage.s3.s3_store import S3Store
from tests.support.faulty_proxy import FaultyProxy, Loss, error_reply
from tests.support.s3_servers import make_bucket


@pytest.mark.parametrize(
    ("code", "status", "expected"),
    [
        ("NoSuchKey", 404, NotFound),
        ("NoSuchUpload", 404, NotFound),
        ("NoSuchBucket", 404, Misconfigured),
        ("PreconditionFailed", 412, PreconditionFailed),
        ("InvalidRange", 416, BadRequest),
        ("AccessDenied", 403, AccessRefused),
        ("InvalidAccessKeyId", 403, AccessRefused),
        ("SignatureDoesNotMatch", 403, AccessRefused),
        ("ExpiredToken", 400, AccessRefused),
        ("RequestTimeTooSkewed", 403, Misconfigured),
        ("PermanentRedirect", 301, Misconfigured),
        ("NotImplemented", 501, Unsupported),
        ("MethodNotAllowed", 405, Unsupported),
        ("EntityTooLarge", 400, StoreFailed),
        ("XMinioStorageFull", 507, StoreFull),
        ("XMinioAdminBucketQuotaExceeded", 400, StoreFull),
        ("QuotaExceeded", 403, StoreFull),
        ("InsufficientStorage", 507, StoreFull),
    ],
)
def test_errors_name_the_key_or_the_bucket_and_a_remedy(code: str, status: int, expected: type) -> None:
    error = translate_error_reply(code, status, "some/key", "bucket")
    assert type(error) is expected
    assert "'some/key'" in error.message or "'bucket'" in error.message
    assert error.message.endswith(".")


@pytest.mark.parametrize(
    ("code", "status", "expected"),
    [
        ("ConditionalRequestConflict", 409, RetryReason.REFUSED),
        ("SlowDown", 503, RetryReason.REFUSED),
        ("RequestTimeout", 400, RetryReason.REFUSED),
        ("ServiceUnavailable", 503, RetryReason.UNCERTAIN),
        ("InternalError", 500, RetryReason.UNCERTAIN),
        ("502", 502, RetryReason.UNCERTAIN),
        ("", 504, RetryReason.UNCERTAIN),
        ("520", 520, RetryReason.UNCERTAIN),
    ],
)
def test_what_is_sent_again(code: str, status: int, expected: RetryReason) -> None:
    assert translate_error_reply(code, status, "key", "bucket") is expected


@pytest.mark.parametrize(
    "text",
    [
        "Sun, 22 Nov 2026 09:05:07 GMT",
        "2026-11-22T09:05:07.000Z",
        "2026-11-22T09:05:07Z",
        "2026-11-22T09:05:07.123456+02:00",
        "Sunday, 22-Nov-26 09:05:07 GMT",
        "1795338307",
        1795338307,
    ],
)
def test_times_are_those_of_botocore(text: str | int) -> None:
    assert parse_time(text) == parse_timestamp(text)
    assert parse_time(text).timestamp() == parse_timestamp(text).timestamp()


@pytest.mark.parametrize("text", ["", "Sun, 99 Nov 2026 09:05:07 GMT", "2026-11-22T99:05:07Z", "never"])
def test_a_text_that_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"Invalid|day|hour"):
        parse_time(text)


@pytest.mark.parametrize(
    ("operation", "unsigned", "right", "remedy"),
    [
        ("GetObject", False, "s3:GetObject", "--requester-pays"),
        ("HeadObject", True, "s3:GetObject", "leave out --unsigned"),
        ("ListObjectsV2", False, "s3:ListBucket", "--unsigned"),
        ("ListObjectsV2", True, "s3:ListBucket", "leave out --unsigned"),
        ("PutObject", False, "s3:PutObject", "--read-only"),
        ("UploadPart", False, "s3:PutObject", "--read-only"),
        ("DeleteObject", False, "s3:DeleteObject", "--read-only"),
    ],
)
def test_a_denial_names_right_and_remedy(operation: str, unsigned: bool, right: str, remedy: str) -> None:
    error = translate_error_reply("AccessDenied", 403, "key", "bucket", operation, unsigned=unsigned)
    assert isinstance(error, Misconfigured)
    assert f"denies {right} " in error.message
    assert remedy in error.message


LEAST = 5 * 1024 * 1024
FIRST, LAST = bytes(range(256)) * (LEAST // 256), b"the rest"
NO_CONTENT = b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n"
KEYS: dict[str, Any] = {"region": "us-east-1", "access_key": "test", "secret_key": "test"}
NUMBERS = itertools.count()
RCLONE_CANNOT = {
    "test_a_part_that_is_replaced": "rclone takes a part's number once",
    "test_an_object_that_is_there": "rclone ignores conditions",
}


@pytest.fixture
async def moto_store(moto_endpoint: str) -> AsyncIterator[S3Store]:
    name = f"uploads-{next(NUMBERS)}"
    await asyncio.to_thread(make_bucket, moto_endpoint, name)
    async with S3Store(name, endpoint=moto_endpoint, **KEYS) as store:
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
    async with S3Store(moto_store.name, endpoint=proxy.url, **KEYS) as store:
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
    proxy.lose(Loss("DELETE", forward=False, answer=NO_CONTENT))
    await upload.abort()
    assert proxy.methods().count("DELETE") == 2
    assert await pending(faulty) == []
    upload = await S3Upload.begin(faulty, "a", "state")
    for _ in range(MAX_READ_ATTEMPTS):
        proxy.lose(Loss("DELETE", forward=False, answer=NO_CONTENT))
    with pytest.raises(StoreFailed, match="could not be aborted"):
        await upload.abort()
    proxy.lose(Loss("GET", forward=False, answer=error_reply(403, "AccessDenied")))
    await upload.abort()  # nobody may look
    assert proxy.script == []
