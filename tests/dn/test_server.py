"""A data node over HTTP: who may send it messages, and in which version."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from hsparse.clock import SystemClock
from hsparse.dn.server import create_node_app
from hsparse.dn.service import DataService
from hsparse.errors import Outdated, Unanswered, Unauthenticated
from hsparse.storage.memory import MemoryStore
from hsparse.wire.codec import decode_frame, encode_frame
from hsparse.wire.contract import CONTRACT, VERSION, Contract
from hsparse.wire.http import PATH, TOKEN_HEADER, VERSION_HEADER
from hsparse.wire.message import DataNode, GetInfo, Message
from hsparse.wire.record_message import Outcome, ReadObjects
from hsparse.wire.remote_node import RemoteNode
from tests.support import newer_contract
from tests.support.newer_contract import NEXT, NEXT_CONTRACT, CountObjects, as_next


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
            assert response.headers[VERSION_HEADER] == str(VERSION)
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


class NextNode:
    """A data node of the next version."""

    def __init__(self) -> None:
        self.service = DataService(MemoryStore(), SystemClock())
        self.seen: list[object] = []

    async def send(self, message: Message[Any], /) -> Any:
        self.seen.append(message)
        return 7 if isinstance(message, CountObjects) else as_next(await self.service.send(message))

    async def close(self) -> None:
        await self.service.close()


@asynccontextmanager
async def remote(node: DataNode, of: Contract, member: int, contract: Contract) -> AsyncIterator[RemoteNode]:
    """Yield `node`, which understands the contract `of`, to a sender that takes it for a member of a version."""
    async with TestServer(create_node_app(node, "secret", contract=of)) as server:
        found = RemoteNode(str(server.make_url("/")), "secret", member, contract)
        try:
            yield found
        finally:
            await found.close()
            await node.close()


async def test_a_newer_sender_speaks_the_version_of_the_receiver() -> None:
    node = DataService(MemoryStore(), SystemClock())
    async with remote(node, CONTRACT, VERSION, NEXT_CONTRACT) as old:
        (outcome,) = await old.send(as_next(ReadObjects(("g-1",))))
        assert (type(outcome), outcome.failure.kind) == (newer_contract.Outcome, "not_found")
        with pytest.raises(Outdated, match="finish the upgrade"):
            await old.send(CountObjects("g-1"))


async def test_a_newer_receiver_answers_in_the_version_of_the_sender() -> None:
    node = NextNode()
    async with remote(node, NEXT_CONTRACT, NEXT, CONTRACT) as new:
        (outcome,) = await new.send(ReadObjects(("g-1",)))
        assert (type(outcome), outcome.failure.kind) == (Outcome, "not_found")
        assert node.seen == [newer_contract.ReadObjects(("g-1",))]


async def test_newer_nodes_say_what_is_new() -> None:
    node = NextNode()
    async with remote(node, NEXT_CONTRACT, NEXT, NEXT_CONTRACT) as new:
        (outcome,) = await new.send(as_next(ReadObjects(("g-1",))))
        assert outcome.cost == 0.5
        assert node.seen == [as_next(ReadObjects(("g-1",)))]
        assert await new.send(CountObjects("g-1")) == 7


async def test_an_older_process_at_the_address_of_a_member_is_not_the_member() -> None:
    """As after a rollback on the same port: to be asked past, like a member that does not answer."""
    node = DataService(MemoryStore(), SystemClock())
    async with remote(node, CONTRACT, NEXT, NEXT_CONTRACT) as other:
        with pytest.raises(Unanswered, match=f"speaks version {VERSION} .* its member {NEXT}"):
            await other.send(as_next(ReadObjects(("g-1",))))


async def test_a_version_that_is_spoken_no_more_is_told_to_both() -> None:
    later = Contract(3, NEXT_CONTRACT.kinds.values(), {}, oldest=2)
    with pytest.raises(Outdated, match=r"version 1 of the messages, this node 2 to 3"):
        RemoteNode("http://127.0.0.1:1", "", 1, later)
    node = DataService(MemoryStore(), SystemClock())
    async with remote(node, later, 3, CONTRACT) as new:
        with pytest.raises(Outdated, match=r"version 1 of the messages, this node 2 to 3"):
            await new.send(ReadObjects(("g-1",)))


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
