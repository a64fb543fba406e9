"""The conformance suite of data nodes: called directly, and over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp.test_utils import TestServer

from hsparse.clock import SystemClock
from hsparse.dn.server import create_node_app
from hsparse.dn.service import DataService
from hsparse.dn.settings import DataSettings
from hsparse.errors import Moved, StoreFailed, Unauthenticated
from hsparse.sn.remote_node import RemoteNode
from hsparse.storage.memory import MemoryStore
from hsparse.testing.node_conformance import *  # noqa: F403
from hsparse.wire.message import DataNode, GetInfo


@pytest.fixture(params=["direct", "direct with a cache of one byte", "http"])
async def node(request: pytest.FixtureRequest) -> AsyncIterator[DataNode]:
    cache = 1 if "cache" in request.param else 2**27
    service = DataService(MemoryStore(), SystemClock(), DataSettings(cache_size=cache))
    if request.param != "http":
        yield service
        await service.close()
        return
    async with TestServer(create_node_app(service, 7, "secret")) as server:
        remote = RemoteNode(str(server.make_url("/")), 7, "secret")
        yield remote
        await remote.close()
    await service.close()


@pytest.mark.parametrize(
    ("epoch", "token", "error"),
    [(6, "secret", Moved), (7, "guess", Unauthenticated), (7, "", Unauthenticated)],
)
async def test_a_node_answers_only_its_own_installation(
    epoch: int, token: str, error: type[Exception]
) -> None:
    service = DataService(MemoryStore(), SystemClock())
    async with TestServer(create_node_app(service, 7, "secret")) as server:
        remote = RemoteNode(str(server.make_url("/")), epoch, token)
        with pytest.raises(error):
            await remote.send(GetInfo())
        await remote.close()
    await service.close()


async def test_a_node_that_is_not_there_is_named() -> None:
    remote = RemoteNode("http://127.0.0.1:1", 1, "")
    with pytest.raises(StoreFailed, match=r"127\.0\.0\.1:1"):
        await remote.send(GetInfo())
    await remote.close()
