"""Containers of Azure and buckets of Google: lost requests and replies, refusals, and what each does otherwise."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from hsparse.errors import BadRequest, HsparseError, Misconfigured, PreconditionFailed
from hsparse.storage.clouds.obstore_store import ObstoreStore
from hsparse.storage.conditional_put import LookBeforeDelete
from tests.storage.lossy_line import *  # noqa: F403
from tests.storage.lossy_line import Open, Pauses, keys
from tests.support.azurite import KEY, PROGRAMS, azure_config, make_container
from tests.support.faulty_proxy import FaultyProxy, Loss, error_reply
from tests.support.google_storage import GoogleServer, google_config
from tests.testing import store_conformance
from tests.testing.store_model import Move, check_moves, moves

NUMBERS = itertools.count()
AZURE = pytest.param("az", marks=pytest.mark.needs(*PROGRAMS))
CONFIGS = {"az": azure_config, "gs": google_config}
SECRET = "a-secret-that-must-not-be-told"


@dataclass(slots=True)
class Bucket:
    """A bucket at `endpoint`, by way of a proxy, as stores that are closed with the test."""

    scheme: str
    name: str
    endpoint: str
    proxy: FaultyProxy
    stack: AsyncExitStack
    settings: dict[str, Any]

    async def open(self, endpoint: str = "", **settings: Any) -> ObstoreStore:
        config = CONFIGS[self.scheme](endpoint or self.endpoint)
        store = ObstoreStore(f"{self.scheme}://{self.name}", config=config, **{**self.settings, **settings})
        return await self.stack.enter_async_context(store)

    async def through_proxy(self, **settings: Any) -> ObstoreStore:
        path = self.endpoint.partition("://")[2].partition("/")[2]
        return await self.open(f"{self.proxy.url}/{path}".rstrip("/"), **settings)


def make_bucket(request: pytest.FixtureRequest, scheme: str) -> tuple[str, str]:
    """Make a fresh empty bucket of a cloud; return its name, and the endpoint."""
    name = f"faulty-{next(NUMBERS)}"
    if scheme == "az":
        endpoint: str = request.getfixturevalue("azurite_endpoint")
        make_container(endpoint, name)
        return name, endpoint
    google: GoogleServer = request.getfixturevalue("google")
    google.make_bucket(name)
    return name, google.url


@pytest.fixture(params=[AZURE, "gs"])
async def bucket(request: pytest.FixtureRequest, pauses: Pauses) -> AsyncIterator[Bucket]:
    """A fresh empty bucket of each cloud."""
    name, endpoint = make_bucket(request, request.param)
    settings = {"connections": 8, "clock": pauses.clock, "sleep": pauses}
    async with AsyncExitStack() as stack, FaultyProxy(endpoint).serving() as proxy:
        yield Bucket(request.param, name, endpoint, proxy, stack, settings)
        await stack.aclose()


@pytest.fixture
def proxy(bucket: Bucket) -> FaultyProxy:
    return bucket.proxy


@pytest.fixture
async def store(bucket: Bucket) -> ObstoreStore:
    """A store whose every request goes through `proxy`."""
    return await bucket.through_proxy()


@pytest.fixture
def open_store(bucket: Bucket) -> Open:
    return lambda endpoint="", **more: (
        bucket.open(endpoint, **more) if endpoint else bucket.through_proxy(**more)
    )


@pytest.fixture
async def other(bucket: Bucket) -> ObstoreStore:
    """Another writer of the same bucket, with a good line."""
    return await bucket.open()


@pytest.mark.parametrize("scheme", [AZURE, "gs"])
@given(moves=moves())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_agrees_with_a_dict(request: pytest.FixtureRequest, scheme: str, moves: list[Move]) -> None:
    """No two states have the same bytes, which on Google would have one etag, as on S3."""
    name, endpoint = make_bucket(request, scheme)
    config = CONFIGS[scheme](endpoint)
    async with ObstoreStore(f"{scheme}://{name}", config=config, page_size=2) as store:
        each = [replace(move, data=b"%d %b" % (number, move.data)) for number, move in enumerate(moves)]
        await check_moves(LookBeforeDelete(store), each)


async def test_a_lossy_listing_goes_on_where_it_was(bucket: Bucket, proxy: FaultyProxy) -> None:
    store = await bucket.through_proxy(page_size=4)
    names = [f"d/{number:02}" for number in range(11)]
    for name in names:
        await store.put(name, b"")
    found = []
    async for page in store.list("d/"):
        proxy.lose(Loss("GET", keep=0))
        found += [entry.key for entry in page.entries]
    assert found == names


async def told(call: Awaitable[object]) -> HsparseError:
    """Return the error of a call that must fail; nothing that led to it may have a secret or a signature."""
    with pytest.raises(HsparseError) as caught:
        await call
    error: BaseException | None = caught.value
    while error is not None:
        assert not any(secret in str(error) for secret in (SECRET, KEY, "sig=", "http://"))
        error = error.__cause__ or error.__context__
    return caught.value


async def test_no_such_bucket(bucket: Bucket, pauses: Pauses) -> None:
    bucket.name = "no-such-bucket"
    store = await bucket.open()
    for call in (lambda: store.get("a"), lambda: store.put("a", b""), lambda: keys(store)):
        error = await told(call())
        assert isinstance(error, Misconfigured)
        assert f"{bucket.scheme}://no-such-bucket" in error.message
        assert "create it" in error.message
    assert pauses.taken == []


@pytest.mark.parametrize(
    ("status", "remedy"),
    [(403, "grant 'Storage"), (401, "set AZURE|set GOOGLE"), (507, "free space there|see the store's log")],
)
async def test_refused(store: ObstoreStore, proxy: FaultyProxy, status: int, remedy: str) -> None:
    for _ in range(2):
        proxy.lose(Loss("PUT", answer=error_reply(status, "Refused")))
    error = await told(store.put("a", b"data"))
    assert any(text in error.message for text in remedy.split("|"))
    # Other credentials may be configured by now, so they are read again, once.
    assert proxy.methods() == ["PUT"] * (1 if status == 507 else 2)


async def test_a_signature_is_not_told() -> None:
    endpoint = "http://127.0.0.1:1/account"
    config = {"account_name": "account", "sas_key": f"sv=1&sig={SECRET}", "endpoint": endpoint}
    async with ObstoreStore("az://bucket", config=config, deadline=0.1) as store:
        await told(store.get("a"))


async def test_no_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    error = await told(ObstoreStore("az://bucket").open())
    assert isinstance(error, Misconfigured)
    assert "AZURE_STORAGE_ACCOUNT_NAME" in error.message


async def test_an_update_of_a_known_state_is_one_request(
    store: ObstoreStore, other: ObstoreStore, proxy: FaultyProxy, bucket: Bucket
) -> None:
    """Google's generation of a state that was not read or put here is asked for."""
    etag = await store.put("a", b"0")
    for number in range(1, 4):
        etag = await store.put_if_match("a", str(number).encode(), etag)
    assert proxy.methods() == ["PUT"] * 4
    etag = await other.put("a", b"other's")
    proxy.requests.clear()
    await store.put_if_match("a", b"ours", etag)
    assert proxy.methods() == (["HEAD", "PUT"] if bucket.scheme == "gs" else ["PUT"])


async def test_a_state_that_came_back_may_be_replaced(store: ObstoreStore, other: ObstoreStore) -> None:
    """Equal bytes have one etag on Google, as on S3, and another generation: a refusal is no dead end."""
    etag = await store.put("a", b"A")
    await other.put("a", b"B")
    again = await other.put("a", b"A")
    with pytest.raises(PreconditionFailed):
        await store.put_if_match("a", b"C", etag)
    await store.put_if_match("a", b"C", again if again != etag else (await store.get("a")).etag)
    assert (await other.get("a")).data == b"C"


@pytest.mark.parametrize("data", [b"longer than that", b"short", b"", b"9876543210"])
async def test_the_end_of_an_object_that_changes(bucket: Bucket, other: ObstoreStore, data: bytes) -> None:
    """Azure's size is looked up first; Google answers in one request."""
    store = await bucket.through_proxy()
    await other.put("a", b"0123456789")
    bucket.proxy.lose(Loss("HEAD", after=lambda: other.put("a", data)))
    if bucket.scheme == "gs":
        await other.put("a", data)
    if not data:
        with pytest.raises(BadRequest):
            await store.get_range("a", -6)
        return
    found = await store.get_range("a", -6)
    assert (found.data, found.size) == (data[-6:], len(data))


async def test_lists_in_order_but_rare_characters(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Azurite lists by UTF-16."""
    monkeypatch.setattr(store_conformance, "KEYS", [key for key in store_conformance.KEYS if key != "b/😀"])
    store = await bucket.open(page_size=store_conformance.PAGE_SIZE)
    await store_conformance.test_list_order(store)
    await store_conformance.test_list_prefix_and_start(store)


async def test_a_name_that_is_not_there_is_not_looked_for_in_the_whole_folder(
    google: GoogleServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(google.buckets, "page", 4)
    google.make_bucket("folder")
    async with FaultyProxy(google.url).serving() as proxy:
        config = google_config(proxy.url)
        async with ObstoreStore("gs://folder", config=config, page_size=4) as store:
            for number in range(30):
                await store.put(f"db/{number:02}", b"")
            proxy.requests.clear()
            assert [page async for page in store.list("db/.schema")] == []
            assert len(proxy.requests) <= 2  # obstore reads one page ahead
            found = [entry.key async for page in store.list("db/1") for entry in page.entries]
            assert found == [f"db/{number}" for number in range(10, 20)]


async def test_reads_without_credentials(bucket: Bucket, other: ObstoreStore, proxy: FaultyProxy) -> None:
    """Azurite refuses that, as its containers are private."""
    await other.put("a", b"data")
    store = await bucket.through_proxy(unsigned=True)
    if bucket.scheme == "az":
        assert "denies access" in (await told(store.get("a"))).message
        return
    assert (await store.get("a")).data == b"data"
    assert await keys(store) == ["a"]
