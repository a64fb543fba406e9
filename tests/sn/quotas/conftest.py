"""A data node for several service nodes, each with its users."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from hsparse.dn.service import DataService
from hsparse.model.acl import Principal
from hsparse.quotas import folder_usage
from hsparse.quotas.settings import QuotaSettings
from hsparse.sn.service_settings import ServiceSettings
from tests.support.rest_client import RestClient
from tests.testing.manual_clock import ManualClock
from tests.testing.memory_store import MemoryStore

USERS = (Principal("ann"), Principal("ben"), Principal("admin", admin=True))
Start = Callable[..., Awaitable[RestClient]]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock=clock)


@pytest.fixture
async def start(store: MemoryStore, clock: ManualClock) -> AsyncIterator[Start]:
    """Start a service node with these settings, over one data node."""
    node = DataService(store, clock)
    clients = []

    async def begin(**settings: int) -> RestClient:
        chosen = ServiceSettings(single_user=None, min_chunk_size=1)
        added = (QuotaSettings(**settings),)
        clients.append(await RestClient(node, clock, *USERS, settings=chosen, added=added).open())
        return clients[-1]

    yield begin
    for client in clients:
        await client.close()
    await node.close()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts are waited for as long as they take."""
    monkeypatch.setattr(folder_usage, "COUNT_WAIT_SECONDS", 60.0)
