"""A data node over HTTP: senders, versions, turns by user, buckets, and what one that hangs up costs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from hsparse.clock import SystemClock
from hsparse.concurrency.admission import Admission
from hsparse.concurrency.request_trace import RequestTrace, begin_trace, end_trace
from hsparse.dn.buckets import BucketRouter
from hsparse.dn.cache import BucketCache
from hsparse.dn.data_settings import DataSettings
from hsparse.dn.metrics import NodeMetrics, NodeState
from hsparse.dn.server import create_node_app
from hsparse.dn.service import DataService, NodeResources
from hsparse.dn.traced_store import TracedStore
from hsparse.errors import Busy, NotFound, Outdated, Unanswered, Unauthenticated
from hsparse.model.ids import new_root_id
from hsparse.storage.object_store import Stored
from hsparse.wire.codec import MESSAGE_VERSION, decode_frame, encode_frame
from hsparse.wire.message import GetInfo, InBucket, Message
from hsparse.wire.record_message import ChangeObjects, CreateObject, Forget, ReadObjects
from hsparse.wire.remote_node import PATH, TOKEN_HEADER, VERSION_HEADER, RemoteNode
from tests.testing.memory_store import MemoryStore

FRAME = b"".join(bytes(piece) for piece in encode_frame(GetInfo()))
OURS, NEWER = str(MESSAGE_VERSION), str(MESSAGE_VERSION + 1)


@pytest.mark.parametrize(
    ("token", "version", "status"),
    [
        ("secret", OURS, 200),
        *((token, OURS, 401) for token in ("", "other", "\udcff\udcfe", "\u00e9")),
        *(("secret", version, 501) for version in (NEWER, "0")),
        *(("secret", version, 400) for version in ("", "x", "\u0661")),
    ],
)
async def test_only_those_with_the_token_and_the_version(token: str, version: str, status: int) -> None:
    node = DataService(MemoryStore(), SystemClock())
    async with TestClient(TestServer(create_node_app(node, "secret"))) as client:
        headers = {TOKEN_HEADER: token, VERSION_HEADER: version}
        async with client.post(PATH, data=FRAME, headers=headers) as response:
            assert response.status == status
            if status == 501:
                failure = decode_frame(await response.read())
                assert f"version {version}, but this node uses version {MESSAGE_VERSION}:" in failure.message
    await node.close()


@pytest.mark.parametrize(
    ("token", "version", "kind", "said"),
    [
        ("", MESSAGE_VERSION, Unauthenticated, "HSPARSE_NODE_TOKEN"),
        ("secret", MESSAGE_VERSION + 1, Outdated, f"version {OURS}, but this node uses version {NEWER}"),
    ],
)
async def test_a_node_without_a_token_or_of_another_version_answers_nobody(
    token: str, version: int, kind: type[Exception], said: str
) -> None:
    node = DataService(MemoryStore(), SystemClock())
    async with TestServer(create_node_app(node, token, version=version)) as server:
        remote = RemoteNode(str(server.make_url("/")), token)
        with pytest.raises(kind, match=said):
            await remote.send(GetInfo())
        await remote.close()
    await node.close()


async def test_a_redirect_is_not_followed() -> None:
    """Where it leads would be sent the message and the token."""
    asked: list[str] = []

    async def note(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(status=500)

    async def redirect(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(status=status, headers={"Location": str(there.make_url("/there"))})

    elsewhere, node = web.Application(), web.Application()
    elsewhere.router.add_route("*", "/there", note)
    node.router.add_post(PATH, redirect)
    async with TestServer(elsewhere) as there, TestServer(node) as server:
        remote = RemoteNode(str(server.make_url("/")), "secret")
        for status in (301, 302, 303, 307, 308):
            with pytest.raises(Unanswered, match=f"redirect \\({status}\\)"):
                await remote.send(GetInfo())
        await remote.close()
    assert not asked


class LargeReplies:
    """A node that answers any message with more than a connection takes at once."""

    async def send(self, message: Any) -> Any:
        return [bytes(1 << 20)] * 64

    async def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize("sent", ["half of the message", "all of it"])
async def test_a_sender_that_hangs_up_is_no_defect(sent: str, caplog: pytest.LogCaptureFixture) -> None:
    """As each service node does to the messages for a client that gives up."""
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: node\r\nContent-Length: {len(FRAME)}\r\nExpect: 100-continue\r\n"
        f"{TOKEN_HEADER}: secret\r\n{VERSION_HEADER}: {MESSAGE_VERSION}\r\n\r\n"
    )
    ended: asyncio.Future[web.StreamResponse] = asyncio.get_running_loop().create_future()

    @web.middleware
    async def note(request: web.Request, handler: Any) -> web.StreamResponse:
        try:
            ended.set_result(await handler(request))
        except Exception as error:  # noqa: BLE001 - raised below
            ended.set_exception(error)
        return await ended

    app = create_node_app(LargeReplies(), "secret")
    app.middlewares.append(note)
    runner = web.AppRunner(app, access_log=None)  # a test server cancels its handlers
    await runner.setup()
    with caplog.at_level(logging.INFO):
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        reader, writer = await asyncio.open_connection(*runner.addresses[0])
        writer.write(head.encode())
        await reader.readuntil(b"100 Continue\r\n\r\n")  # it is being carried out
        writer.write(FRAME if sent == "all of it" else FRAME[: len(FRAME) // 2])
        if sent == "all of it":
            await reader.readuntil(b"200 OK\r\n")
        writer.transport.abort()
        await ended  # and it raises nothing, which aiohttp would log
    await runner.cleanup()
    assert not caplog.records


READ = ReadObjects(("g-1",))


class HeldStore(MemoryStore):
    """Reads wait for `gate`; `begun` and `most` are how many are under way, and were at most."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.reached = asyncio.Event(), asyncio.Event()
        self.begun = self.most = 0

    async def get(self, key: str) -> Stored:
        self.begun += 1
        self.most = max(self.most, self.begun)
        self.reached.set()
        try:
            await self.gate.wait()
            return await super().get(key)
        finally:
            self.begun -= 1


class Node:
    """A data node of one place behind HTTP, over a store whose reads wait."""

    def __init__(
        self, remote: RemoteNode, store: HeldStore, admission: Admission, metrics: NodeMetrics
    ) -> None:
        self.remote = remote
        self.store = store
        self.admission = admission
        self.metrics = metrics

    async def send(self, message: Message[object], user: str, seconds: float | None = None) -> object:
        """Send a message for a request of a user that has so many seconds left."""
        deadline = None if seconds is None else asyncio.get_running_loop().time() + seconds
        token = begin_trace(RequestTrace("a", queue_user=user, deadline=deadline))
        try:
            return await self.remote.send(message)
        finally:
            end_trace(token)


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    store = HeldStore()
    admission = Admission(1)
    resources = NodeResources.of(DataSettings(), admission=admission)
    service = DataService(store, SystemClock(), resources=resources)
    metrics = NodeMetrics(lambda: NodeState(service.counters(), 0.0, 1))
    metrics.show(admission)
    async with TestServer(create_node_app(service, "secret", metrics=metrics)) as server:
        remote = RemoteNode(str(server.make_url("/")), "secret")
        yield Node(remote, store, admission, metrics)
        store.gate.set()
        await remote.close()
    await service.close()


async def test_messages_have_turns_by_user(node: Node) -> None:
    order: list[str] = []

    async def read(user: str) -> None:
        await node.send(READ, user)
        order.append(user)

    tasks = [asyncio.create_task(read("first"))]
    await node.store.reached.wait()
    for number, user in enumerate("aaaaab", 1):
        tasks.append(asyncio.create_task(read(user)))
        while node.admission.waiting < number:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)
    assert (await node.remote.send(GetInfo())).id  # never waits
    assert b"hsparse_node_messages_waiting 6.0" in node.metrics.text()
    node.store.gate.set()
    await asyncio.gather(*tasks)
    assert order.index("b") <= 2


async def test_a_message_whose_time_is_over_is_refused(node: Node) -> None:
    with pytest.raises(Busy):
        await node.send(READ, "a", 0.0)
    assert not node.store.begun
    assert b'hsparse_node_messages_refused_total{reason="deadline"} 1.0' in node.metrics.text()


async def test_a_read_is_given_up_at_its_deadline_and_the_load_goes_on() -> None:
    store = HeldStore()
    service = DataService(store, SystemClock())

    async def read(deadline: float | None) -> object:
        begin_trace(RequestTrace("a", deadline=deadline))
        return await service.send(READ)

    patient = asyncio.create_task(read(None))
    await store.reached.wait()
    with pytest.raises(Busy, match="time limit"):
        await read(asyncio.get_running_loop().time())
    with pytest.raises(Busy, match="time limit"):
        await asyncio.create_task(read(asyncio.get_running_loop().time() + 0.01))
    store.gate.set()
    await patient
    assert store.most == 1
    await service.close()


async def test_the_store_is_not_asked_for_longer_than_anybody_waits() -> None:
    store = HeldStore()
    service = DataService(store, SystemClock())

    async def read(seconds: float) -> object:
        begin_trace(RequestTrace("a", deadline=asyncio.get_running_loop().time() + seconds))
        return await service.send(READ)

    outcomes = await asyncio.gather(*(read(0.01 * number) for number in (1, 2, 3)), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [Busy] * 3
    await asyncio.sleep(0)
    assert (store.begun, store.most) == (0, 1)
    store.gate.set()
    await read(60.0)  # asks again
    await service.close()


async def test_changes_wait_where_reads_are_refused(node: Node) -> None:
    node.admission._mean = 10.0
    held = asyncio.create_task(node.send(READ, "a"))
    await node.store.reached.wait()
    other = asyncio.create_task(node.send(READ, "a"))
    while not node.admission.waiting:  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0)
    node.admission._waiting_since -= 1.0
    for _ in range(3):
        node.admission._queue.push("c", node.admission._queue.peek().item)
    with pytest.raises(Busy) as refused:
        await node.send(READ, "c")
    assert refused.value.retry_after > 10
    waiting = node.admission.waiting
    change = asyncio.create_task(node.send(ChangeObjects((CreateObject("g-2", {"id": "g-2"}),)), "c"))
    while node.admission.waiting == waiting and not change.done():  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0)
    node.store.gate.set()
    await asyncio.gather(held, other, change)


async def test_a_store_is_sent_so_many_requests_at_a_time() -> None:
    store = HeldStore()
    places = Admission(4)
    traced = TracedStore(store, places=places)
    await store.put("a", b"x")
    reads = [asyncio.create_task(traced.get("a")) for _ in range(20)]
    await store.reached.wait()
    for _ in range(10):
        await asyncio.sleep(0)
    reads[-1].cancel()
    store.gate.set()
    await asyncio.gather(*reads[:-1])
    assert (store.most, places.running, places.waiting) == (4, 0, 0)


CLOCK = SystemClock()


def router(*names: str, cache: int = 1 << 20) -> tuple[BucketRouter, NodeResources, list[MemoryStore]]:
    shared, stores = NodeResources.of(DataSettings(cache_size=cache)), [MemoryStore(name) for name in names]
    services = [DataService(store, CLOCK, resources=shared.of_bucket(store.name)) for store in stores]
    return BucketRouter(services), shared, stores


async def test_the_same_id_is_another_object_in_each_bucket() -> None:
    node, _, stores = router("a", "b")
    root = new_root_id(CLOCK)
    for bucket in ("a", "b"):
        create = CreateObject(root, {"id": root, "in": bucket})
        (outcome,) = await node.send(InBucket(bucket, ChangeObjects((create,))))
        assert outcome.created
    for bucket in ("a", "b"):
        (outcome,) = await node.send(InBucket(bucket, ReadObjects((root,))))
        assert outcome.unwrap()["in"] == bucket
    (first,) = await node.send(ReadObjects((root,)))
    assert first.unwrap()["in"] == "a"
    await node.send(InBucket("b", Forget(root)))
    await stores[1].delete(f"db/{root[2:19]}/.group.json")
    assert (await node.send(InBucket("b", ReadObjects((root,)))))[0].failure is not None
    assert (await node.send(ReadObjects((root,))))[0].failure is None
    await node.close()


async def test_one_budget_bounds_the_memory_of_all_buckets() -> None:
    node, shared, _ = router("a", "b", cache=1 << 20)
    for number in range(300):
        root = new_root_id(CLOCK)
        create = CreateObject(root, {"id": root, "text": "x" * 2000})
        await node.send(InBucket("ab"[number % 2], ChangeObjects((create,))))
    assert 0 < shared.cache.nbytes <= 1 << 20
    each = [len(BucketCache(shared.cache, bucket)) for bucket in "ab"]
    assert sum(each) == len(shared.cache)
    assert min(each) > 0
    await node.close()


async def test_a_node_tells_its_buckets_and_knows_no_other() -> None:
    node, _, _ = router("a", "b")
    info = await node.send(GetInfo())
    assert (info.bucket, info.buckets) == ("a", ("a", "b"))
    with pytest.raises(NotFound, match="'c'"):
        await node.send(InBucket("c", GetInfo()))
    await node.close()
