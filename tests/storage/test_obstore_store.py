"""Containers of Azure and buckets of Google: lost requests and replies, refusals, and what each does otherwise."""

from __future__ import annotations

import itertools
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from hsparse.errors import BadRequest, HsparseError, Misconfigured, PreconditionFailed, StoreFailed
from hsparse.storage.clouds.obstore_store import ObstoreStore
from hsparse.storage.condition_probe import probe
from hsparse.storage.conditional_put import LookBeforeDelete, with_conditional_delete
from tests.storage.s3.test_s3_store import (
    IN_PLACE,
    LOSSES,
    Pauses,
    Put,
    pauses,  # noqa: F401 - a fixture
    put,
    put_if_absent,
    put_if_match,
)
from tests.support.azurite import KEY, PROGRAMS, azure_config, make_container
from tests.support.faulty_proxy import FaultyProxy, Loss, Weather, error_reply
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
async def bucket(request: pytest.FixtureRequest, pauses: Pauses) -> AsyncIterator[Bucket]:  # noqa: F811
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


async def keys(store: ObstoreStore) -> list[str]:
    return [entry.key async for page in store.list("") for entry in page.entries]


@pytest.mark.parametrize("loss", [name for name in LOSSES if name != "conflict"])
@pytest.mark.parametrize("call", [put, put_if_absent, put_if_match])
async def test_a_lossy_put_is_settled(
    store: ObstoreStore, other: ObstoreStore, proxy: FaultyProxy, call: Put, loss: str
) -> None:
    await other.put("a/b", b"before")
    for _ in range(3):
        proxy.lose(LOSSES[loss]())
    etag = await call(store, "a/b", b"after")  # type: ignore[arg-type]
    stored = await other.get("a/b")
    assert (stored.data, stored.etag) == (b"after", etag)
    assert proxy.methods().count("PUT") >= 3
    assert proxy.script == []


async def test_a_lost_reply_is_settled_by_reading_back(store: ObstoreStore, proxy: FaultyProxy) -> None:
    etag = await store.put("a", b"before")
    proxy.requests.clear()
    proxy.lose(Loss("PUT", keep=0))
    proxy.lose(Loss("HEAD", keep=0))
    await store.put_if_match("a", b"after", etag)
    assert proxy.methods() == ["PUT", "PUT", "HEAD", "HEAD"]


async def test_a_refusal_costs_one_look(store: ObstoreStore, proxy: FaultyProxy) -> None:
    await store.put_if_absent("a", b"data")
    proxy.requests.clear()
    with pytest.raises(PreconditionFailed):
        await store.put_if_absent("a", b"data")
    assert proxy.methods() == ["PUT", "HEAD"]


async def test_the_same_bytes_by_another_are_not_ours(
    store: ObstoreStore, other: ObstoreStore, proxy: FaultyProxy
) -> None:
    """Two nodes count from 0 to 1 and the request of the first is lost: it must count again, to 2."""
    etag = await other.put("counter", b"0")
    await store.get("counter")
    proxy.lose(Loss("PUT", forward=False, keep=0, after=lambda: other.put_if_match("counter", b"1", etag)))
    with pytest.raises(PreconditionFailed):
        await store.put_if_match("counter", b"1", etag)


@pytest.mark.parametrize("change", ["put", "delete"])
async def test_another_state_after_a_lost_reply(
    store: ObstoreStore, other: ObstoreStore, proxy: FaultyProxy, change: str
) -> None:
    etag = await store.put("a", b"before")
    changes = {"put": lambda: other.put("a", b"another's"), "delete": lambda: other.delete("a")}
    proxy.lose(Loss("PUT", keep=0, after=changes[change]))
    with pytest.raises(PreconditionFailed, match="'a'"):
        await store.put_if_match("a", b"ours", etag)
    assert await keys(other) == (["a"] if change == "put" else [])


async def test_a_put_that_arrives_late_overwrites_nothing(
    store: ObstoreStore, other: ObstoreStore, proxy: FaultyProxy
) -> None:
    etag = await other.put("a", b"before")
    late = proxy.lose(Loss("PUT", late=True))
    etag = await store.put_if_match("a", b"ours", etag)
    await other.put_if_match("a", b"another's", etag)
    await late.release()
    assert (await other.get("a")).data == b"another's"


async def test_a_put_that_a_proxy_sends_twice_is_settled(store: ObstoreStore, proxy: FaultyProxy) -> None:
    proxy.lose(Loss("PUT", twice=True))
    etag = await store.put_if_absent("a", b"once")
    proxy.lose(Loss("PUT", twice=True))
    etag = await store.put_if_match("a", b"twice", etag)
    stored = await store.get("a")
    assert (stored.data, stored.etag) == (b"twice", etag)


async def test_no_update_is_lost_in_bad_weather(store: ObstoreStore, proxy: FaultyProxy) -> None:
    proxy.draw = Weather(random.Random(0), delayed=0.0, lost=0.1, unanswered=0.1, twice=0.1)
    etag = await store.put_if_absent("counter", b"0")
    for number in range(1, 41):
        stored = await store.get("counter")
        assert (stored.data, stored.etag) == (str(number - 1).encode(), etag)
        etag = await store.put_if_match("counter", str(number).encode(), etag)
    await store.delete("counter")
    assert await keys(store) == []


@pytest.mark.parametrize("lost", IN_PLACE)
async def test_what_a_store_honours_is_found_out_whichever_is_lost(
    store: ObstoreStore, proxy: FaultyProxy, lost: str
) -> None:
    place, sent = 0, 0

    def draw(method: str) -> Loss:
        nonlocal sent
        sent += 1
        return IN_PLACE[lost](method) if sent == place else Loss(method)

    proxy.draw = draw
    while sent >= place:
        place, sent = place + 1, 0
        await probe(store)
        assert isinstance(await with_conditional_delete(store), LookBeforeDelete)


async def test_lossy_reads_are_repeated(store: ObstoreStore, other: ObstoreStore, proxy: FaultyProxy) -> None:
    data = bytes(range(256)) * 1000
    etag = await other.put("a", data)
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: store.get("a"),
        lambda: store.get_range("a", 1000, len(data)),
        lambda: store.get_range("a", -1000),
        lambda: keys(store),
    ]
    expected = [data, data[1000:], data[-1000:], ["a"]]
    for loss in ({"keep": 0}, {"keep": 40}, {"keep": -5}, {"answer": error_reply(503, "SlowDown")}):
        for call, value in zip(calls, expected, strict=True):
            proxy.lose(Loss("GET", **loss))
            found = await call()
            assert (found if isinstance(found, list) else found.data) == value, loss
            assert isinstance(found, list) or (found.etag, found.size) == (etag, len(data))
    assert proxy.script == []


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


async def test_lossy_deletes_are_repeated(
    store: ObstoreStore, other: ObstoreStore, proxy: FaultyProxy
) -> None:
    for loss in ({"keep": 0}, {"forward": False, "keep": 0}, {"answer": error_reply(500, "InternalError")}):
        await other.put("a", b"data")
        for method in ("DELETE", "POST"):  # Azure's is a batch of one
            proxy.lose(Loss(method, **loss))
        await store.delete("a")
        assert await keys(other) == []
        proxy.script.clear()


async def test_a_silent_server_is_given_up(bucket: Bucket, proxy: FaultyProxy) -> None:
    for _ in range(100):
        proxy.lose(Loss("GET", hang=True))
    store = await bucket.through_proxy(deadline=0.6)
    with pytest.raises(StoreFailed, match="no answer"):
        await store.get("a")
    assert len(proxy.requests) > 1


async def test_nobody_at_the_endpoint(bucket: Bucket, pauses: Pauses) -> None:  # noqa: F811
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    store = await bucket.open(f"http://127.0.0.1:{port}")
    with pytest.raises(StoreFailed, match="check the endpoint"):
        await store.get("a")
    assert len(pauses.taken) > 3


async def told(call: Awaitable[object]) -> HsparseError:
    """Return the error of a call that must fail; nothing that led to it may have a secret or a signature."""
    with pytest.raises(HsparseError) as caught:
        await call
    error: BaseException | None = caught.value
    while error is not None:
        assert not any(secret in str(error) for secret in (SECRET, KEY, "sig=", "http://"))
        error = error.__cause__ or error.__context__
    return caught.value


async def test_no_such_bucket(bucket: Bucket, pauses: Pauses) -> None:  # noqa: F811
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


@pytest.mark.parametrize(("url", "variable"), [("az://bucket", "AZURE_STORAGE_ACCOUNT_NAME")])
async def test_no_account(monkeypatch: pytest.MonkeyPatch, url: str, variable: str) -> None:
    monkeypatch.delenv(variable, raising=False)
    error = await told(ObstoreStore(url).open())
    assert isinstance(error, Misconfigured)
    assert variable in error.message


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


async def test_lists_in_order_without_the_rarest_characters(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
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
