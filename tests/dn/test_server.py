"""A data node over HTTP: who may send it messages."""

from __future__ import annotations

import pytest
from aiohttp.test_utils import TestClient, TestServer

from hsparse.clock import SystemClock
from hsparse.dn.server import create_node_app
from hsparse.dn.service import DataService
from hsparse.storage.memory import MemoryStore
from hsparse.wire.codec import encode_frame
from hsparse.wire.http import PATH, TOKEN_HEADER, VERSION, VERSION_HEADER
from hsparse.wire.message import GetInfo


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
    ("version", "status"), [(str(VERSION), 200), (str(VERSION + 1), 500), ("", 500), ("x", 500)]
)
async def test_only_versions_that_are_understood(version: str, status: int) -> None:
    node = DataService(MemoryStore(), SystemClock())
    frame = b"".join(bytes(piece) for piece in encode_frame(GetInfo()))
    async with TestClient(TestServer(create_node_app(node, "secret"))) as client:
        headers = {TOKEN_HEADER: "secret", VERSION_HEADER: version}
        async with client.post(PATH, data=frame, headers=headers) as response:
            assert response.status == status
    await node.close()
