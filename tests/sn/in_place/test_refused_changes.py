"""A change of a served file is refused, and leaves nothing: the file is read as before, and nothing is stored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from hsparse.dn.membership.ownership import SOLE, PartlyTrusted
from hsparse.dn.service import DataService
from hsparse.hdf5.in_place.places import named_folders
from hsparse.hdf5.in_place.store import ServedFiles
from hsparse.model.acl import Principal
from tests.support.rest_client import RestClient
from tests.testing.manual_clock import ManualClock
from tests.testing.memory_store import MemoryStore

DOMAIN = "/runs/a.h5"
INT: dict[str, Any] = {"type": "H5T_STD_I64LE"}
CHANGES: dict[str, tuple[str, str, Any]] = {
    "delete the domain": ("DELETE", "/", None),
    "delete it and wait": ("DELETE", "/?wait=5", None),
    "delete its name": ("DELETE", "/?keep_root=1", None),
    "create it again": ("PUT", "/", {}),
    "delete a dataset": ("DELETE", "/datasets/{x}", None),
    "delete a group": ("DELETE", "/groups/{g}", None),
    "delete the root": ("DELETE", "/groups/{root}", None),
    "delete a type": ("DELETE", "/datatypes/{t}", None),
    "delete a link": ("DELETE", "/groups/{root}/links/x", None),
    "link": ("PUT", "/groups/{root}/links/y", {"h5path": "/x"}),
    "create a dataset": ("POST", "/datasets", INT | {"shape": [2], "h5path": "new"}),
    "create a group": ("POST", "/groups", {"h5path": "new"}),
    "set an attribute": ("PUT", "/datasets/{x}/attributes/b", INT | {"shape": [], "value": 1}),
    "delete an attribute": ("DELETE", "/groups/{root}/attributes/a", None),
    "write": ("PUT", "/datasets/{x}/value", {"value": list(range(6))}),
    "erase": ("DELETE", "/datasets/{x}/value?select=[0:2]", None),
    "append": ("PUT", "/datasets/{x}/value", {"append": 1, "value": [1]}),
    "grow": ("PUT", "/datasets/{x}/shape", {"shape": [8]}),
    "take a snapshot": ("POST", "/snapshots", {}),
    "clone onto it": ("POST", "/clone", {"source": DOMAIN}),
}


@pytest.fixture
async def below() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
async def rest(tmp_path: Path, below: MemoryStore) -> AsyncIterator[RestClient]:
    (tmp_path / "data").mkdir()
    with h5py.File(tmp_path / "data" / "a.h5", "w") as file:
        file.create_dataset("x", data=np.arange(6), chunks=(2,), maxshape=(None,))
        file["g/y"] = 1
        file["t"] = np.dtype("i4")
        file.attrs["a"] = 1
    clock = ManualClock()
    store = ServedFiles(below, named_folders([f"runs={tmp_path / 'data'}"]))
    node = DataService(store, clock, ownership=PartlyTrusted(SOLE, store.trusts))
    client = await RestClient(node, clock, Principal("admin", admin=True)).open()
    yield client
    await client.close()
    await node.close()


@pytest.mark.parametrize("change", CHANGES)
async def test_a_refused_change_leaves_nothing(rest: RestClient, below: MemoryStore, change: str) -> None:
    async def seen() -> list[Any]:
        domain = (await rest("GET", f"/?domain={DOMAIN}")).body
        listed = (await rest("GET", f"/groups/{domain['root']}/links?domain={DOMAIN}")).body["links"]
        ids = {one["title"]: one["id"] for one in listed} | {"root": domain["root"]}
        value = (await rest("GET", f"/datasets/{ids['x']}/value?domain={DOMAIN}")).body["value"]
        file = await rest("GET", f"/files{DOMAIN}")
        attribute = (await rest("GET", f"/groups/{ids['root']}/attributes/a?domain={DOMAIN}")).body["value"]
        return [ids, value, attribute, file.status, len(file.body)]

    before = await seen()
    assert before[1] == list(range(6))
    keys = [entry.key async for page in below.list("") for entry in page.entries]
    method, path, body = CHANGES[change]
    path = path.format(**before[0])
    reply = await rest(method, f"{path}{'&' if '?' in path else '?'}domain={DOMAIN}", body)
    assert 400 <= reply.status < 500, reply.body
    assert await seen() == before
    assert [entry.key async for page in below.list("") for entry in page.entries] == keys
