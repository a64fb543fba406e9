from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from hsparse.attempts import STORE
from hsparse.errors import BadRequest, HsparseError, Misconfigured, NotFound, PreconditionFailed, StoreFailed
from hsparse.storage.s3.s3_store import S3Store
from tests.storage.lossy_line import *  # noqa: F403
from tests.storage.lossy_line import PUTS, Open, Pauses, Put, check_settled
from tests.support.faulty_proxy import FaultyProxy, Loss, error_reply
from tests.support.s3_servers import make_bucket

NUMBERS = itertools.count()
SECRET = "a-secret-that-must-not-be-told"


def s3(
    bucket: str, endpoint: str, pauses: Pauses, *, deadline: float = 30.0, connections: int = 8
) -> S3Store:
    return S3Store(
        bucket,
        endpoint=endpoint,
        region="us-east-1",
        access_key="test",
        secret_key=SECRET,
        deadline=deadline,
        connections=connections,
        clock=pauses.clock,
        sleep=pauses,
    )


@pytest.fixture
async def bucket(moto_endpoint: str) -> str:
    name = f"faulty-{next(NUMBERS)}"
    await asyncio.to_thread(make_bucket, moto_endpoint, name)
    return name


@pytest.fixture
async def proxy(moto_endpoint: str) -> AsyncIterator[FaultyProxy]:
    async with FaultyProxy(moto_endpoint).serving() as proxy:
        yield proxy


@pytest.fixture
async def open_store(bucket: str, proxy: FaultyProxy, pauses: Pauses) -> AsyncIterator[Open]:
    async with AsyncExitStack() as stack:

        async def open_one(endpoint: str = proxy.url, **settings: Any) -> S3Store:
            return await stack.enter_async_context(s3(bucket, endpoint, pauses, **settings))

        yield open_one


@pytest.fixture
async def store(bucket: str, proxy: FaultyProxy, pauses: Pauses) -> AsyncIterator[S3Store]:
    """A store whose every request goes through `proxy`."""
    async with s3(bucket, proxy.url, pauses) as store:
        yield store


@pytest.fixture
async def other(bucket: str, moto_endpoint: str, pauses: Pauses) -> AsyncIterator[S3Store]:
    """Another writer of the same bucket, with a good line."""
    async with s3(bucket, moto_endpoint, pauses) as store:
        yield store


@PUTS
async def test_a_conflict_is_repeated(store: S3Store, other: S3Store, proxy: FaultyProxy, call: Put) -> None:
    for _ in range(3):
        proxy.lose(Loss("PUT", forward=False, answer=error_reply(409, "ConditionalRequestConflict")))
    await check_settled(store, other, proxy, call)


async def test_a_server_that_drops_metadata(store: S3Store, proxy: FaultyProxy) -> None:
    head = b'HTTP/1.1 200 OK\r\netag: "e"\r\ncontent-length: 4\r\nconnection: close\r\n\r\n'
    proxy.lose(Loss("PUT", answer=error_reply(500, "InternalError")))
    proxy.lose(Loss("HEAD", answer=head))
    await store.put_if_absent("a", b"data")
    proxy.lose(Loss("HEAD", answer=head))
    with pytest.raises(PreconditionFailed):  # no reply was lost: the refusal is believed
        await store.put_if_absent("a", b"data")
    proxy.lose(Loss("HEAD", answer=error_reply(500, "InternalError")))
    proxy.lose(Loss("HEAD", answer=head))
    with pytest.raises(PreconditionFailed):  # nor was the put's reply here
        await store.put_if_absent("a", b"data")
    proxy.lose(Loss("PUT", forward=False, answer=error_reply(500, "InternalError")))
    proxy.lose(Loss("HEAD", answer=head))
    with pytest.raises(PreconditionFailed):
        await store.put_if_absent("a", b"else")


async def test_no_object_while_reading_back(store: S3Store, other: S3Store, proxy: FaultyProxy) -> None:
    proxy.lose(Loss("PUT", keep=0))
    proxy.lose(Loss("PUT", after=lambda: other.delete("a")))
    with pytest.raises(PreconditionFailed, match="'a'"):
        await store.put_if_absent("a", b"ours")


async def test_pauses_grow_until_the_deadline(store: S3Store, proxy: FaultyProxy, pauses: Pauses) -> None:
    for _ in range(100):
        proxy.lose(Loss("GET", answer=error_reply(503, "SlowDown")))
    with pytest.raises(StoreFailed, match="'a' in 30 s"):
        await store.get("a")
    longest = [STORE.pause(number) for number in range(len(pauses.taken))]
    assert all(most / 2 <= pause <= most for pause, most in zip(pauses.taken, longest, strict=True))
    assert pauses.taken[-1] >= STORE.longest / 2
    assert 30 - STORE.longest <= sum(pauses.taken) < 30
    assert len(proxy.requests) == len(pauses.taken) + 1


async def test_a_wait_for_a_connection_counts_not(bucket: str, proxy: FaultyProxy, pauses: Pauses) -> None:
    async with s3(bucket, proxy.url, pauses, connections=1) as store:
        held = proxy.lose(Loss("PUT", hang=True))
        proxy.lose(Loss("DELETE", answer=error_reply(503, "SlowDown")))
        put = asyncio.create_task(store.put("a", b"data"))
        await held.met.wait()
        delete = asyncio.create_task(store.delete("b"))
        await asyncio.sleep(0)
        pauses.clock.time += 1000
        held.released.set()
        await asyncio.gather(put, delete)
    assert proxy.methods() == ["PUT", "DELETE", "DELETE"]


async def test_tls_to_an_endpoint_without(moto_endpoint: str, pauses: Pauses) -> None:
    async with s3("bucket", moto_endpoint.replace("http:", "https:"), pauses) as store:
        with pytest.raises(StoreFailed, match="begins with http://"):
            await store.get("a")


async def told(call: Awaitable[object]) -> HsparseError:
    """Return the error of a call that must fail; nothing that led to it may tell the secret."""
    with pytest.raises(HsparseError) as caught:
        await call
    error: BaseException | None = caught.value
    while error is not None:
        assert SECRET not in str(error)
        error = error.__cause__
    return caught.value


async def test_no_such_bucket(moto_endpoint: str, pauses: Pauses) -> None:
    async with s3("no-such-bucket", moto_endpoint, pauses) as store:
        for call in (store.get("a"), store.put("a", b""), store.put_if_match("a", b"", "0")):
            error = await told(call)
            assert isinstance(error, Misconfigured)
            assert "'no-such-bucket'" in error.message
        with pytest.raises(Misconfigured, match="create it"):
            await anext(aiter(store.list("")))
    assert pauses.taken == []


async def test_no_bucket_by_that_name_can_be(moto_endpoint: str, pauses: Pauses) -> None:
    async with s3("not/a bucket", moto_endpoint, pauses) as store:
        assert "bucket's name" in (await told(store.get("a"))).message


@pytest.mark.parametrize(
    ("status", "code", "remedy"),
    [(403, "AccessDenied", "denies s3:PutObject"), (403, "SignatureDoesNotMatch", "configure valid ones")],
)
async def test_access_denied(store: S3Store, proxy: FaultyProxy, status: int, code: str, remedy: str) -> None:
    proxy.lose(Loss("PUT", answer=error_reply(status, code)))
    error = await told(store.put("a", b"data"))
    assert isinstance(error, Misconfigured)
    assert remedy in error.message
    assert proxy.methods() == ["PUT"]


async def test_no_credentials(monkeypatch: pytest.MonkeyPatch, moto_endpoint: str) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    async with S3Store("bucket", endpoint=moto_endpoint, region="us-east-1") as store:
        error = await told(store.get("a"))
        assert isinstance(error, Misconfigured)
        assert "no usable credentials" in error.message


async def test_credentials_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, moto_endpoint: str, bucket: str
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    async with S3Store(bucket, endpoint=moto_endpoint, region="us-east-1") as store:
        await store.put("a", b"data")
        assert (await store.get("a")).data == b"data"


async def test_half_a_credential(moto_endpoint: str) -> None:
    store = S3Store("bucket", endpoint=moto_endpoint, region="us-east-1", access_key="test")
    assert isinstance(await told(store.open()), Misconfigured)


async def test_an_endpoint_that_is_no_url() -> None:
    store = S3Store("bucket", endpoint="no url", access_key="test", secret_key=SECRET)
    assert isinstance(await told(store.open()), Misconfigured)


async def test_a_server_that_ignores_ranges(store: S3Store, proxy: FaultyProxy) -> None:
    whole = b'HTTP/1.1 200 OK\r\netag: "e"\r\ncontent-length: 10\r\nconnection: close\r\n\r\n0123456789'
    for start, length, expected in [(2, 3, b"234"), (-4, None, b"6789"), (8, 9, b"89")]:
        proxy.lose(Loss("GET", answer=whole))
        stored = await store.get_range("a", start, length)
        assert (stored.data, stored.etag) == (expected, "e")
    proxy.lose(Loss("GET", answer=whole))
    with pytest.raises(BadRequest):
        await store.get_range("a", 10)


async def test_a_server_that_refuses_long_suffixes(store: S3Store, proxy: FaultyProxy) -> None:
    await store.put("a", b"data")
    proxy.lose(Loss("GET", answer=error_reply(416, "InvalidRange")))
    assert (await store.get_range("a", -10)).data == b"data"


async def test_folder_markers_are_no_objects(store: S3Store, bucket: str, moto_endpoint: str) -> None:
    await store.put("a/b", b"data")
    await store._client.put_object(Bucket=bucket, Key="a/", Body=b"")
    await store._client.put_object(Bucket=bucket, Key="c//d", Body=b"")
    assert [entry.key async for page in store.list("") for entry in page.entries] == ["a/b"]


async def test_cancellation_ends_the_request(store: S3Store, proxy: FaultyProxy) -> None:
    loss = proxy.lose(Loss("GET", hang=True))
    get = asyncio.create_task(store.get("a"))
    await loss.met.wait()
    get.cancel()
    with pytest.raises(asyncio.CancelledError):
        await get
    await store.put("a", b"data")
    assert (await store.get("a")).data == b"data"


DELETE_LOSSES = {
    "sent twice": lambda: Loss("DELETE", twice=True),
    "request": lambda: Loss("DELETE", forward=False, keep=0),
    "reply": lambda: Loss("DELETE", keep=0),
    "error after applying": lambda: Loss("DELETE", answer=error_reply(500, "InternalError")),
    "conflict": lambda: Loss("DELETE", forward=False, answer=error_reply(409, "ConditionalRequestConflict")),
}


@pytest.mark.parametrize("loss", DELETE_LOSSES)
async def test_lost_deletes_are_settled(
    store: S3Store, other: S3Store, proxy: FaultyProxy, loss: str
) -> None:
    etag = await other.put("a/b", b"before")
    proxy.lose(DELETE_LOSSES[loss]())
    await store.delete_if_match("a/b", etag)
    with pytest.raises(NotFound):
        await other.get("a/b")
    assert proxy.script == []


async def test_a_refused_delete_removes_nothing(store: S3Store, other: S3Store, proxy: FaultyProxy) -> None:
    old = await other.put("a", b"before")
    await other.put("a", b"after")
    with pytest.raises(PreconditionFailed):
        await store.delete_if_match("a", old)
    assert (await other.get("a")).data == b"after"
    assert proxy.methods() == ["DELETE", "HEAD"]


async def test_a_delete_whose_reply_was_lost_does_not_claim_to_have_removed_nothing(
    store: S3Store, other: S3Store, proxy: FaultyProxy
) -> None:
    """Otherwise the caller would read again, and delete what was created after its own delete."""
    etag = await other.put("a", b"before")
    proxy.lose(Loss("DELETE", keep=0, after=lambda: other.put_if_absent("a", b"created since")))
    proxy.lose(Loss("DELETE", forward=False, keep=0))  # aiohttp repeats a lost request once by itself
    with pytest.raises(StoreFailed, match="reply to its deletion was lost"):
        await store.delete_if_match("a", etag)
    assert (await other.get("a")).data == b"created since"


async def test_credentials_that_are_rotated_are_read_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, bucket: str, proxy: FaultyProxy, pauses: Pauses
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))

    def rotate(key: str) -> None:
        lines = f"[default]\naws_access_key_id = {key}\naws_secret_access_key = {SECRET}\n"
        (tmp_path / "credentials").write_text(lines)

    rotate("first")
    store = S3Store(bucket, endpoint=proxy.url, region="us-east-1", clock=pauses.clock, sleep=pauses)
    async with store:
        await store.put("a", b"data")
        for code, key in (
            ("ExpiredToken", "second"),
            ("InvalidAccessKeyId", "third"),
            ("AccessDenied", "last"),
        ):
            pauses.clock.time += 60
            proxy.lose(Loss("GET", forward=False, answer=error_reply(403, code)))
            rotate(key)
            assert (await store.get("a")).data == b"data"
            proxy.lose(Loss("GET", forward=False, answer=error_reply(403, code)))
            error = await told(store.get("a"))  # they are not others yet
            assert isinstance(error, Misconfigured)
            assert store.trouble == error.message
        await store.get("a")
        assert store.trouble is None


@pytest.mark.parametrize("nbytes", [0, 1000, 2 * 2**20])
async def test_no_put_waits_for_a_continue(store: S3Store, nbytes: int) -> None:
    expected = []
    store._client.meta.events.register(
        "before-send.s3", lambda request, **_: expected.append(request.headers.get("Expect"))
    )
    await store.put("a", bytes(nbytes))
    assert expected == [None]
