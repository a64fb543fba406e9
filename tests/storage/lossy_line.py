"""What each store in a bucket does over a line that loses, repeats and delays, by `store`, `other` and `proxy`."""

from __future__ import annotations

import random
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from hsparse.errors import PreconditionFailed, StoreFailed
from hsparse.storage.condition_probe import probe
from hsparse.storage.conditional_put import LookBeforeDelete, with_conditional_delete
from hsparse.storage.object_store import ObjectStore
from hsparse.storage.s3.s3_store import S3Store
from tests.support.faulty_proxy import FaultyProxy, Loss, Weather, error_reply
from tests.testing.manual_clock import ManualClock

Put = Callable[[ObjectStore, str, bytes], Awaitable[str]]
Open = Callable[..., Awaitable[ObjectStore]]


class Pauses:
    """A sleep that passes at once, on a clock of its own."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.taken: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.taken.append(seconds)
        self.clock.time += seconds


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()


async def put(store: ObjectStore, key: str, data: bytes) -> str:
    return await store.put(key, data)


async def put_if_absent(store: ObjectStore, key: str, data: bytes) -> str:
    await store.delete(key)
    return await store.put_if_absent(key, data)


async def put_if_match(store: ObjectStore, key: str, data: bytes) -> str:
    return await store.put_if_match(key, data, (await store.get(key)).etag)


PUTS = pytest.mark.parametrize("call", [put, put_if_absent, put_if_match])


async def keys(store: ObjectStore) -> list[str]:
    return [entry.key async for page in store.list("") for entry in page.entries]


LOSSES: dict[str, Callable[[], Loss]] = {
    "request": lambda: Loss("PUT", forward=False, keep=0),
    "reply": lambda: Loss("PUT", keep=0),
    "half the reply": lambda: Loss("PUT", keep=30),
    "error after applying": lambda: Loss("PUT", answer=error_reply(500, "InternalError")),
    "error before applying": lambda: Loss("PUT", forward=False, answer=error_reply(500, "InternalError")),
    "slow down": lambda: Loss("PUT", forward=False, answer=error_reply(503, "SlowDown")),
}


async def check_settled(store: ObjectStore, other: ObjectStore, proxy: FaultyProxy, call: Put) -> None:
    await other.put("a/b", b"before")
    etag = await call(store, "a/b", b"after")
    stored = await other.get("a/b")
    assert (stored.data, stored.etag, proxy.script) == (b"after", etag, [])


@pytest.mark.parametrize("loss", LOSSES)
@PUTS
async def test_a_lossy_put_is_settled(
    store: ObjectStore, other: ObjectStore, proxy: FaultyProxy, call: Put, loss: str
) -> None:
    for _ in range(3):
        proxy.lose(LOSSES[loss]())
    await check_settled(store, other, proxy, call)
    assert proxy.methods().count("PUT") >= 3


@PUTS
async def test_a_put_that_a_proxy_sends_twice_is_settled(
    store: ObjectStore, other: ObjectStore, proxy: FaultyProxy, call: Put
) -> None:
    proxy.lose(Loss("PUT", twice=True))
    await check_settled(store, other, proxy, call)


async def test_a_lost_reply_is_settled_by_reading_back(store: ObjectStore, proxy: FaultyProxy) -> None:
    etag = await store.put("a", b"before")
    proxy.requests.clear()
    proxy.lose(Loss("PUT", keep=0))
    for _ in range(3):
        proxy.lose(Loss("HEAD", keep=0))
    await store.put_if_match("a", b"after", etag)
    assert proxy.methods() == ["PUT", "PUT", *["HEAD"] * 4]


async def test_a_refusal_costs_one_look(store: ObjectStore, proxy: FaultyProxy) -> None:
    await store.put_if_absent("a", b"data")
    proxy.requests.clear()
    with pytest.raises(PreconditionFailed):
        await store.put_if_absent("a", b"data")
    assert proxy.methods() == ["PUT", "HEAD"]


async def test_the_same_bytes_by_another_are_not_ours(
    store: ObjectStore, other: ObjectStore, proxy: FaultyProxy
) -> None:
    """Two nodes count from 0 to 1 and the request of the first is lost: it must count again, to 2."""
    etag = await other.put("counter", b"0")
    await store.get("counter")
    proxy.lose(Loss("PUT", forward=False, keep=0, after=lambda: other.put_if_match("counter", b"1", etag)))
    with pytest.raises(PreconditionFailed):
        await store.put_if_match("counter", b"1", etag)


@pytest.mark.parametrize("change", ["put", "delete"])
async def test_another_state_after_a_lost_reply(
    store: ObjectStore, other: ObjectStore, proxy: FaultyProxy, change: str
) -> None:
    etag = await store.put("a", b"before")
    changes = {"put": lambda: other.put("a", b"another's"), "delete": lambda: other.delete("a")}
    proxy.lose(Loss("PUT", keep=0, after=changes[change]))
    with pytest.raises(PreconditionFailed, match="'a'"):
        await store.put_if_match("a", b"ours", etag)
    assert await keys(other) == (["a"] if change == "put" else [])
    assert change == "delete" or (await other.get("a")).data == b"another's"


async def test_a_put_that_arrives_late_overwrites_nothing(
    store: ObjectStore, other: ObjectStore, proxy: FaultyProxy
) -> None:
    etag = await other.put("a", b"before")
    late = proxy.lose(Loss("PUT", late=True))
    etag = await store.put_if_match("a", b"ours", etag)
    await other.put_if_match("a", b"another's", etag)
    await late.release()
    assert (await other.get("a")).data == b"another's"


async def test_no_update_is_lost_in_bad_weather(store: ObjectStore, proxy: FaultyProxy) -> None:
    proxy.draw = Weather(random.Random(0), delayed=0.0, lost=0.1, unanswered=0.1, twice=0.1)
    etag = await store.put_if_absent("counter", b"0")
    for number in range(1, 41):
        stored = await store.get("counter")
        assert (stored.data, stored.etag) == (str(number - 1).encode(), etag)
        etag = await store.put_if_match("counter", str(number).encode(), etag)
    await (store.delete_if_match("counter", etag) if isinstance(store, S3Store) else store.delete("counter"))
    assert await keys(store) == []


IN_PLACE: dict[str, Callable[[str], Loss]] = {
    "requests": lambda method: Loss(method, forward=False, keep=0),
    "replies": lambda method: Loss(method, keep=0),
    "first replies": lambda method: Loss(method, twice=True),
}


@pytest.mark.parametrize("lost", IN_PLACE)
async def test_what_a_store_honours_is_found_out_whichever_is_lost(
    store: ObjectStore, proxy: FaultyProxy, lost: str
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
        assert isinstance(await with_conditional_delete(store), S3Store | LookBeforeDelete)


READ_LOSSES: dict[str, dict[str, Any]] = {
    "reply": {"keep": 0},
    "head": {"keep": 40},
    "body": {"keep": -5},
    "slow down": {"answer": error_reply(503, "SlowDown")},
    "error": {"answer": error_reply(500, "InternalError")},
}


@pytest.mark.parametrize("loss", READ_LOSSES)
async def test_a_lossy_read_is_repeated(
    store: ObjectStore, other: ObjectStore, proxy: FaultyProxy, loss: str
) -> None:
    data = bytes(range(256)) * 1000
    etag = await other.put("a", data)
    calls: list[tuple[Callable[[], Awaitable[Any]], bytes]] = [
        (lambda: store.get("a"), data),
        (lambda: store.get_range("a", 1000, len(data)), data[1000:]),
        (lambda: store.get_range("a", -1000), data[-1000:]),
    ]
    for call, expected in calls:
        for _ in range(2):
            proxy.lose(Loss("GET", **READ_LOSSES[loss]))
        found = await call()
        assert (found.data, found.etag, found.size) == (expected, etag, len(data))
    proxy.lose(Loss("GET", **READ_LOSSES[loss]))
    assert await keys(store) == ["a"]
    assert proxy.script == []


@pytest.mark.parametrize(
    "loss", [{"keep": 0}, {"forward": False, "keep": 0}, {"answer": error_reply(500, "InternalError")}]
)
async def test_a_lossy_delete_is_repeated(
    store: ObjectStore, other: ObjectStore, proxy: FaultyProxy, loss: dict[str, Any]
) -> None:
    await other.put("a", b"data")
    for method in ("DELETE", "POST"):  # Azure's is a batch of one
        proxy.lose(Loss(method, **loss))
    await store.delete("a")
    assert await keys(other) == []
    assert len(proxy.script) == 1


async def test_a_silent_server_is_given_up(open_store: Open, proxy: FaultyProxy) -> None:
    for _ in range(100):
        proxy.lose(Loss("GET", hang=True))
    store = await open_store(deadline=0.6)
    with pytest.raises(StoreFailed, match="no answer"):
        await store.get("a")
    assert len(proxy.requests) > 1


async def test_nobody_at_the_endpoint(open_store: Open, pauses: Pauses) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    store = await open_store(f"http://127.0.0.1:{port}")
    with pytest.raises(StoreFailed, match="check the endpoint"):
        await store.get("a")
    assert len(pauses.taken) > 3
