"""A data node over HTTP: who may send it messages, in which version, and what one that hangs up costs."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from hsparse.clock import SystemClock
from hsparse.dn.server import create_node_app
from hsparse.dn.service import DataService
from hsparse.errors import Outdated, Unanswered, Unauthenticated
from hsparse.wire.codec import MESSAGE_VERSION, decode_frame, encode_frame
from hsparse.wire.message import GetInfo
from hsparse.wire.remote_node import PATH, TOKEN_HEADER, VERSION_HEADER, RemoteNode
from tests.testing.memory_store import MemoryStore


@pytest.mark.parametrize(
    ("token", "status"), [("secret", 200), ("", 401), ("other", 401), ("\udcff\udcfe", 401), ("\u00e9", 401)]
)
async def test_only_those_with_the_token(token: str, status: int) -> None:
    node = DataService(MemoryStore(), SystemClock())
    frame = b"".join(bytes(piece) for piece in encode_frame(GetInfo()))
    async with TestClient(TestServer(create_node_app(node, "secret"))) as client:
        headers = {TOKEN_HEADER: token, VERSION_HEADER: str(MESSAGE_VERSION)}
        async with client.post(PATH, data=frame, headers=headers) as response:
            assert response.status == status
    await node.close()


@pytest.mark.parametrize(
    ("version", "status"),
    [
        (str(MESSAGE_VERSION), 200),
        (str(MESSAGE_VERSION + 1), 501),
        ("0", 501),
        ("", 400),
        ("x", 400),
        ("\u0661", 400),
    ],
)
async def test_only_versions_that_are_understood(version: str, status: int) -> None:
    node = DataService(MemoryStore(), SystemClock())
    frame = b"".join(bytes(piece) for piece in encode_frame(GetInfo()))
    async with TestClient(TestServer(create_node_app(node, "secret"))) as client:
        headers = {TOKEN_HEADER: "secret", VERSION_HEADER: version}
        async with client.post(PATH, data=frame, headers=headers) as response:
            assert response.status == status
            if status == 501:
                failure = decode_frame(await response.read())
                assert f"version {version} of the messages, this node {MESSAGE_VERSION}:" in failure.message
    await node.close()


async def test_a_node_without_a_token_answers_nobody() -> None:
    node = DataService(MemoryStore(), SystemClock())
    async with TestServer(create_node_app(node, "")) as server:
        remote = RemoteNode(str(server.make_url("/")), "")
        with pytest.raises(Unauthenticated, match="HSPARSE_NODE_TOKEN"):
            await remote.send(GetInfo())
        await remote.close()
    await node.close()


async def test_a_node_of_another_version_carries_out_nothing() -> None:
    node = DataService(MemoryStore(), SystemClock())
    async with TestServer(create_node_app(node, "secret", version=MESSAGE_VERSION + 1)) as server:
        remote = RemoteNode(str(server.make_url("/")), "secret")
        with pytest.raises(
            Outdated, match=f"version {MESSAGE_VERSION} of the messages, this node {MESSAGE_VERSION + 1}"
        ):
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
    frame = b"".join(bytes(piece) for piece in encode_frame(GetInfo()))
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: node\r\nContent-Length: {len(frame)}\r\nExpect: 100-continue\r\n"
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
        writer.write(frame if sent == "all of it" else frame[: len(frame) // 2])
        if sent == "all of it":
            await reader.readuntil(b"200 OK\r\n")
        writer.transport.abort()
        await ended  # and it raises nothing, which aiohttp would log
    await runner.cleanup()
    assert not caplog.records
