"""A data node over HTTP: who may send it messages."""

from __future__ import annotations

import pytest
from aiohttp.test_utils import TestClient, TestServer

from hsparse.clock import SystemClock
from hsparse.dn.server import create_node_app
from hsparse.dn.service import DataService
from hsparse.storage.memory import MemoryStore
from hsparse.wire.codec import encode_frame
from hsparse.wire.http import EPOCH_HEADER, PATH, TOKEN_HEADER
from hsparse.wire.message import GetInfo


@pytest.mark.parametrize(
    ("token", "status"), [("secret", 200), ("", 401), ("other", 401), ("\udcff\udcfe", 401), ("\u00e9", 401)]
)
async def test_only_those_with_the_token(token: str, status: int) -> None:
    node = DataService(MemoryStore(), SystemClock())
    frame = b"".join(bytes(piece) for piece in encode_frame(GetInfo()))
    async with TestClient(TestServer(create_node_app(node, 7, "secret"))) as client:
        headers = {TOKEN_HEADER: token, EPOCH_HEADER: "7"}
        async with client.post(PATH, data=frame, headers=headers) as response:
            assert response.status == status
    await node.close()
