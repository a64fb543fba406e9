"""Every route that changes something while the store has no room: a 507 that names the store, or nothing is stored."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator

import pytest

from hsparse.dn.data_settings import DataSettings
from hsparse.dn.membership.ownership import SOLE
from hsparse.dn.service import DataService, NodeResources
from hsparse.errors import StoreFull
from hsparse.model.acl import Principal
from hsparse.sn.route import Route
from hsparse.sn.service_settings import ServiceSettings
from hsparse.versions.wrapping import with_versions
from tests.sn.test_co_tenant import (
    FOLDER,
    OWNER,
    PRIVATE,
    TENANT,
    Ids,
    bodies,
    key_of,
    paths_of,
    private_domain,
)
from tests.support.rest_client import ROUTES, RestClient
from tests.testing.faulty_store import FaultyStore
from tests.testing.manual_clock import ManualClock
from tests.testing.memory_store import MemoryStore

FULL = StoreFull("The store 'lab' has 0 MiB free; free space on its file system.")
CHANGING = [route for route in ROUTES if not route.reads]
STORED = frozenset(
    {"PUT /", "POST /groups", "POST /datasets", "PUT /datasets/{id}/value", "PUT /acls/{user}"}
)
"""Routes whose first right request cannot be answered well without a put."""


@pytest.fixture
async def world() -> AsyncIterator[tuple[RestClient, FaultyStore, Ids]]:
    """A server with a domain and a snapshot of it."""
    clock = ManualClock()
    store = FaultyStore(MemoryStore(clock=clock))
    versioned, ownership = with_versions(store, SOLE, clock)
    node = DataService(versioned, clock, ownership=ownership, resources=NodeResources.of(DataSettings()))
    settings = ServiceSettings(single_user=None)
    rest = await RestClient(node, clock, Principal(OWNER), Principal(TENANT), settings=settings).open()
    await rest("PUT", "/", {"folder": 1}, domain=FOLDER)
    ids = await private_domain(rest)
    assert (await rest("POST", "/snapshots", {}, domain=PRIVATE)).status == 201
    yield rest, store, ids
    store.clear()
    await rest.close()
    await node.close()


@pytest.mark.parametrize("route", CHANGING, ids=lambda route: f"{route.method} {route.path}")
async def test_a_full_store_is_a_507(world: tuple[RestClient, FaultyStore, Ids], route: Route) -> None:
    rest, store, ids = world
    store.fail_before("puts", times=10**9, error=FULL)
    found = []
    for path, body, domain in itertools.product(
        paths_of(route, ids), [*bodies(ids).get(key_of(route), []), None], (PRIVATE, f"{FOLDER}/new.h5")
    ):
        reply = await rest(route.method, path, body, domain=domain)
        found.append(reply.status)
        if reply.status >= 500:
            assert reply.status == 507, (path, body, reply.body)
            assert reply["error"] == {"kind": "store_full", "message": FULL.message}
    assert 507 in found or key_of(route) not in STORED
    store.clear()
    assert (await rest("GET", "/", domain=PRIVATE)).status in (200, 410)
