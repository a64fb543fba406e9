"""Service nodes over a data node in memory, with a domain to work in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from threading import current_thread, main_thread
from typing import Any

import pytest

from hsparse.concurrency.memory_budget import MemoryBudget
from hsparse.model.acl import Principal
from hsparse.sn import statistics
from hsparse.sn.service_settings import ServiceSettings
from hsparse.wire.message import DataNode
from tests.sn.value_client import SETTINGS, value_client
from tests.support.memory_node import MemoryNode
from tests.support.rest_client import RestClient
from tests.testing.manual_clock import ManualClock
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore

USERS = (
    Principal("test_user1"),
    Principal("test_user2", groups=frozenset({"test_group"})),
    Principal("admin", admin=True),
)
DOMAIN = "/home/test_user1/file.h5"
Watch = Callable[[Any, str], list[bool]]


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


@pytest.fixture
def store() -> CountingStore:
    """The store of `client`."""
    return CountingStore(MemoryStore())


@pytest.fixture
def settings() -> ServiceSettings:
    """The settings of `client`."""
    return SETTINGS


@pytest.fixture
async def client(store: CountingStore, settings: ServiceSettings) -> AsyncIterator[RestClient]:
    """A client with a domain over a real data node."""
    async with value_client(store, settings) as made:
        yield made


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """Watch functions: return the list in which each of their calls notes whether the event loop waits for it."""
    calls: list[bool] = []

    def watched(owner: Any, name: str) -> list[bool]:
        function = getattr(owner, name)

        def noted(*args: Any, **kwargs: Any) -> Any:
            calls.append(current_thread() is main_thread())
            return function(*args, **kwargs)

        monkeypatch.setattr(owner, name, noted)
        return calls

    return watched


def note_holds(budget: MemoryBudget, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the list in which each reservation of a budget's memory notes its bytes."""
    held: list[int] = []
    hold = budget.hold

    def noted(nbytes: int) -> Any:
        held.append(nbytes)
        return hold(nbytes)

    monkeypatch.setattr(budget, "hold", noted)
    return held


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Statistics are waited for as long as they take; tests of the waiting set their own."""
    monkeypatch.setattr(statistics, "COUNT_WAIT_SECONDS", 60.0)
