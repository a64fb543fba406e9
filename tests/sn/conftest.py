"""Service nodes over a data node in memory, with a domain to work in."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from hsparse.model.acl import Principal
from hsparse.sn import statistics
from hsparse.wire.message import DataNode
from tests.support.memory_node import MemoryNode
from tests.support.rest_client import RestClient
from tests.testing.manual_clock import ManualClock

USERS = (
    Principal("test_user1"),
    Principal("test_user2", groups=frozenset({"test_group"})),
    Principal("admin", admin=True),
)
DOMAIN = "/home/test_user1/file.h5"


class TickingClock(ManualClock):
    """A clock that goes on by a second at each look, so that times tell the order of things."""

    def now(self) -> float:
        self.time += 1.0
        return self.time


@pytest.fixture
def node() -> DataNode:
    """A data node over a store in memory."""
    return MemoryNode(TickingClock())


@pytest.fixture
async def bare(node: DataNode) -> AsyncIterator[RestClient]:
    """A client of a new, empty server."""
    async with RestClient(node, TickingClock(), *USERS) as client:
        yield client


@pytest.fixture
async def rest(bare: RestClient) -> RestClient:
    """A client whose domain exists and is empty."""
    bare.domain = DOMAIN
    reply = await bare("PUT", "/", {})
    assert reply.status == 201
    return bare


@pytest.fixture
async def root(rest: RestClient) -> str:
    """The root group of the domain."""
    id = (await rest("GET", "/"))["root"]
    assert isinstance(id, str)
    return id


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Statistics are waited for as long as they take; tests of the waiting set their own."""
    monkeypatch.setattr(statistics, "COUNT_WAIT_SECONDS", 60.0)
