"""A data node over HTTP: who may send it messages, and in which version."""

from __future__ import annotations

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from hsparse.clock import SystemClock
from hsparse.dn.server import create_node_app
from hsparse.dn.service import DataService
from hsparse.errors import Outdated, Unanswered, Unauthenticated
from hsparse.testing.memory_store import MemoryStore
from hsparse.wire.codec import VERSION, decode_frame, encode_frame
from hsparse.wire.message import GetInfo
from hsparse.wire.remote_node import PATH, TOKEN_HEADER, VERSION_HEADER, RemoteNode


@pytest.mark.parametrize(
    ("token", "status"), [("secret", 200), ("", 401), ("other", 401), ("\udcff\udcfe", 401), ("\u00e9", 401)]
)
async def test_only_those_with_the_token(token: str, status: int) -> None:
    node = DataService(MemoryStore(), SystemClock())
    frame = b"".join(bytes(piece) for piece in encode_frame(GetInfo()))
    async with TestClient(TestServer(create_node_app(node, "secret"))) as client:
        headers = {TOKEN_HEADER: token, VERSION_HEADER: str(VERSION)}
        async with client.post(PATH, data=frame, headers=headers) as response:
            assert response.status == status
    await node.close()


@pytest.mark.parametrize(
    ("version", "status"),
    [(str(VERSION), 200), (str(VERSION + 1), 501), ("0", 501), ("", 400), ("x", 400), ("\u0661", 400)],
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
                assert f"version {version} of the messages, this node {VERSION}:" in failure.message
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
    async with TestServer(create_node_app(node, "secret", version=VERSION + 1)) as server:
        remote = RemoteNode(str(server.make_url("/")), "secret")
        with pytest.raises(Outdated, match=f"version {VERSION} of the messages, this node {VERSION + 1}"):
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
