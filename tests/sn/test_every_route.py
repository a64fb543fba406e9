"""Every route: who may do what in a domain, a folder, and a place of served files; and a store without room.

Each user has one right alone, but for the owner, who has all of them; one who may not is answered 401 or 403. What the
answers of others tell is in test_co_tenant.py, what a place's in in_place/test_places.py.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from hsparse.dn.data_settings import DataSettings
from hsparse.dn.membership.ownership import SOLE, PartlyTrusted
from hsparse.dn.service import DataService, NodeResources
from hsparse.errors import StoreFull
from hsparse.hdf5.in_place.places import named_folders
from hsparse.hdf5.in_place.store import ServedFiles
from hsparse.hdf5.jobs.job_settings import JobSettings
from hsparse.model.acl import Principal, Right
from hsparse.sn.route import Route
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

GIVEN = {"reader": "read", "creator": "create", "updater": "update", "deleter": "delete"}
NAMES = {"N": None, "R": "reader", "C": "creator", "U": "updater", "D": "deleter", "O": OWNER, "A": "admin"}
WHO = {
    "all": "NRCUDOA",
    "users": "RCUDOA",
    "read": "ROA",
    "create": "COA",
    "update": "UOA",
    "delete": "DOA",
    "own": "OA",
    "admin": "A",
    "nobody": "",
    "change": "CUOA",
}
"""By a word of the table: nobody signed in, and who has the right to read, create, update, delete; owner, and admin."""
PLACE, FILE = "/runs", "/runs/sub/a.h5"
LAST = ("DELETE /acls/{user}", "DELETE /")
"""Routes that take away what others need."""
REFUSED = (401, 403)
TABLE = """
GET /about all all all
GET /info all all all
GET /users admin admin admin
GET /livez all all all
GET /readyz all all all
GET /metrics all all all
GET /openapi.json all all all
GET / read read read
POST / read read read
PUT / change update change
GET /domains read read read
GET /acls own own own
GET /acls/{user} own own own
PUT /acls/{user} own own nobody
GET /attributes/{name} read read read
PUT /attributes/{name} create create create
GET /attributes read read read
POST /attributes read read read
PUT /attributes create create nobody
GET /attributes/{name}/value read read read
PUT /attributes/{name}/value update update update
GET /groups/{id} read read read
GET /groups read read read
POST /groups create create create
GET /groups/ read read read
GET /datatypes/{id} read read read
GET /datatypes read read read
POST /datatypes create create own
GET /datatypes/ read read read
GET /datasets/{id} read read read
GET /datasets read read read
POST /datasets create create create
GET /datasets/ read read read
GET /datasets/{id}/type read read read
GET /datasets/{id}/shape read read read
PUT /datasets/{id}/shape update update update
GET /datasets/{id}/value read read read
PUT /datasets/{id}/value update update update
POST /datasets/{id}/value read read read
POST /datasets/values read read read
GET /datasets/{id}/defined read read read
POST /datasets/{id}/defined read read read
GET /datasets/{id}/density read read read
POST /datasets/{id}/erase update update update
GET /datasets/{id}/reduce read read read
POST /datasets/{id}/reduce read read read
GET /groups/{id}/links read read read
POST /groups/{id}/links read read read
PUT /groups/{id}/links create create nobody
GET /groups/{id}/links/{title} read read read
PUT /groups/{id}/links/{title} create create nobody
GET /datasets/{id}/chunks read read read
GET /datasets/{id}/chunks/selection read read read
POST /datasets/{id}/chunks/values read read read
GET /datasets/{id}/chunks/{chunk} read read read
GET /datasets/{id}/chunks/{chunk}/value read read read
PUT /datasets/{id}/chunks/{chunk}/value update update update
GET /datasets/{id}/map read read read
GET /map read read read
GET /files/{path:.+} read read read
HEAD /files/{path:.+} read read read
POST /jobs read read read
GET /jobs users users users
GET /jobs/{job} users users users
POST /snapshots update update update
GET /snapshots read read read
GET /snapshots/{number} read read read
POST /snapshots/{number}/restore own update own
GET /snapshots/{number}/diff read read read
GET /changes read read read
POST /clones read read read
POST /clones/materialize update update update
GET /docs all all all
GET /explorer/rights read read read
GET /explorer/{file} all all all
GET /sign-in all all all
GET /sign-in/client all all all
POST /sign-in/token all all all
GET /quota read read read
PUT /quota read admin read
DELETE /attributes/{name} delete delete delete
DELETE /attributes delete delete delete
DELETE /groups/{id} delete delete nobody
DELETE /datatypes/{id} delete delete nobody
DELETE /datasets/{id} delete delete nobody
DELETE /datasets/{id}/value update update update
DELETE /groups/{id}/links delete delete delete
DELETE /groups/{id}/links/{title} delete delete delete
DELETE /jobs/{job} users users users
DELETE /snapshots/{number} delete delete delete
DELETE / delete delete nobody
DELETE /acls/{user} own own nobody
"""
"""Method, path, and who may in a domain, a folder and a place."""


def own_bodies(user: str | None, domain: str) -> dict[str, list[Any]]:
    """Return bodies by which a user copies the domain, or names it again, into what is their own."""
    home, place = f"/home/{user}", f"s3://hsparse/jobs/{user}/"
    return {
        "POST /clones": [{"target": f"{home}/clone.h5", "snapshot": 1}],
        "POST /jobs": [{"kind": "export", "domain": domain, "target": f"{place}out.h5"}],
    }


@asynccontextmanager
async def world(resource: str, folder: Path) -> AsyncIterator[tuple[RestClient, Ids]]:
    """Give a server with a domain in a folder, or a file in a place, and its ids; each user has one right there."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    users = [Principal(OWNER), Principal("admin", admin=True), *(Principal(name) for name in GIVEN)]
    if resource == FILE:
        served = ServedFiles(store, named_folders([f"runs={folder}"]))
        node = DataService(served, clock, ownership=PartlyTrusted(SOLE, served.trusts))
    else:
        versioned, ownership = with_versions(store, SOLE, clock)
        resources = NodeResources.of(DataSettings())
        node = DataService(versioned, clock, ownership=ownership, resources=resources)
    added = (JobSettings(job_places=("s3://hsparse/jobs/{user}/",)),)
    async with RestClient(node, clock, *users, added=added) as rest:
        owner = "admin" if resource == FILE else OWNER
        if resource == FILE:
            root = (await rest("GET", "/", domain=FILE, user="admin"))["root"]
            found = {
                name: (await rest("GET", f"/{name}/", domain=FILE, h5path=path, user="admin"))["id"]
                for name, path in (("groups", "/g"), ("datasets", "/x"), ("datatypes", "/t"))
            }
            ids = Ids(root=root, **found)
        else:
            await rest("PUT", "/", {"folder": 1}, domain=FOLDER)
            ids = await private_domain(rest)
            assert (await rest("POST", "/snapshots", {}, domain=PRIVATE)).status == 201
        every = {right.value: True for right in Right}
        for path in (PLACE,) if resource == FILE else (PRIVATE, FOLDER):
            for user, right in {"default": "", **GIVEN}.items():
                rights = {one.value: one.value == right for one in Right}
                assert (await rest("PUT", f"/acls/{user}", rights, domain=path, user=owner)).status == 201
            await rest("PUT", f"/acls/{OWNER}", every, domain=path, user=owner)
        yield rest, ids


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("runs")
    (path / "sub").mkdir()
    with h5py.File(path / "sub" / "a.h5", "w") as file:
        file["x"] = np.arange(6)
        file["g/y"] = 1
        file["t"] = np.dtype("i4")
        file.attrs["a"] = 1
    return path


@pytest.mark.parametrize("who", NAMES)
@pytest.mark.parametrize("resource", [PRIVATE, FOLDER, FILE], ids=["domain", "folder", "place"])
async def test_who_may_do_what(resource: str, who: str, folder: Path) -> None:
    column = [PRIVATE, FOLDER, FILE].index(resource)
    user, wrong = NAMES[who], []
    async with world(resource, folder) as (rest, ids):
        for route in sorted(ROUTES, key=lambda one: (one.method == "DELETE", LAST.count(key_of(one)))):
            key = key_of(route)
            given = [*bodies(ids).get(key, [None]), *own_bodies(user, resource).get(key, [])]
            paths = [f"/files{resource}"] if "{path" in key else list(paths_of(route, ids))
            statuses = [
                (await rest(route.method, path, body, domain=resource, user=user)).status
                for path, body in itertools.product(paths, given)
            ]
            may = any(status not in REFUSED for status in statuses)
            if may != (who in WHO[table().get(key, ("nobody",) * 3)[column]]):
                wrong.append((key, sorted(set(statuses))))
    assert not wrong


def table() -> dict[str, list[str]]:
    """Return the words of the table by method and path."""
    lines = [line.split() for line in TABLE.strip().splitlines()]
    return {f"{method} {path}": words for method, path, *words in lines}


def test_the_table_has_every_route_and_no_other() -> None:
    assert table().keys() == {key_of(route) for route in ROUTES}


FULL = StoreFull("The store 'lab' has 0 MiB free; free space on its file system.")
CHANGING = [route for route in ROUTES if not route.reads]
STORED = frozenset(
    {"PUT /", "POST /groups", "POST /datasets", "PUT /datasets/{id}/value", "PUT /acls/{user}"}
)
"""Routes whose first right request cannot be answered well without a put."""


@pytest.fixture
async def full_world() -> AsyncIterator[tuple[RestClient, FaultyStore, Ids]]:
    """A server with a domain and a snapshot of it."""
    clock = ManualClock()
    store = FaultyStore(MemoryStore(clock=clock))
    versioned, ownership = with_versions(store, SOLE, clock)
    node = DataService(versioned, clock, ownership=ownership, resources=NodeResources.of(DataSettings()))
    async with RestClient(node, clock, Principal(OWNER), Principal(TENANT)) as rest:
        await rest("PUT", "/", {"folder": 1}, domain=FOLDER)
        ids = await private_domain(rest)
        assert (await rest("POST", "/snapshots", {}, domain=PRIVATE)).status == 201
        yield rest, store, ids
        store.clear()


@pytest.mark.parametrize("route", CHANGING, ids=lambda route: f"{route.method} {route.path}")
async def test_a_full_store_is_a_507(full_world: tuple[RestClient, FaultyStore, Ids], route: Route) -> None:
    rest, store, ids = full_world
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
