"""The rights of a place of `--files`: those of a folder, for every way to read what is in it, and after a restart."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from hsparse.config import load_settings
from hsparse.dn.membership.ownership import SOLE, PartlyTrusted
from hsparse.dn.record_form import RecordCodec
from hsparse.dn.service import DataService
from hsparse.errors import Forbidden, Misconfigured
from hsparse.hdf5.in_place.place_rights import check_names
from hsparse.hdf5.in_place.places import named_folders
from hsparse.hdf5.in_place.store import ServedFiles
from hsparse.hdf5.in_place.wrapping import check
from hsparse.model.acl import Principal, Right
from tests.support.rest_client import ROUTES, RestClient
from tests.testing.manual_clock import ManualClock
from tests.testing.memory_store import MemoryStore

ADMIN, ANN, BOB = Principal("admin", admin=True), Principal("ann"), Principal("bob")
FILE, OWN, VIRTUAL, LINKING = "/runs/sub/a.h5", "/home/own.h5", "/home/virtual.h5", "/home/linking.h5"
NEAR = "/near/m.h5"
"""A file in another place, for all to read, which names that one."""
READING = [one for one in ROUTES if one.method == "GET" and one.right is Right.READ]
NONE: dict[str, bool] = {right.value: False for right in Right}
READ = NONE | {"read": True}


class Node:
    """A server over a store and a place, which can be started again."""

    def __init__(self, folder: Path) -> None:
        self.below, self._folder, self._clock = MemoryStore(), folder, ManualClock()
        self._open: list[Any] = []

    async def start(self) -> RestClient:
        places = [f"runs={self._folder}", f"near={self._folder.parent / 'next'}"]
        store = ServedFiles(self.below, named_folders(places))
        node = DataService(store, self._clock, ownership=PartlyTrusted(SOLE, store.trusts))
        rest = await RestClient(node, self._clock, ADMIN, ANN, BOB).open()
        self._open += [rest, node]
        return rest

    async def stop(self) -> None:
        for one in self._open:
            await one.close()
        self._open.clear()


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    (tmp_path / "data" / "sub").mkdir(parents=True)
    with h5py.File(tmp_path / "data" / "sub" / "a.h5", "w") as file:
        file["x"] = np.arange(6)
        file["g/y"] = 1
        file["t"] = np.dtype("i4")
        file.attrs["a"] = 1
    (tmp_path / "next").mkdir()
    with h5py.File(tmp_path / "next" / "m.h5", "w") as file:
        for name, path in (("absolute", f"{tmp_path}/data/sub/a.h5"), ("relative", "../data/sub/a.h5")):
            file[name] = h5py.ExternalLink(path, "/x")
            layout = h5py.VirtualLayout((6,), "i8")
            layout[:] = h5py.VirtualSource(path, "x", (6,))
            file.create_virtual_dataset(f"virtual {name}", layout)
    found = Node(tmp_path / "data")
    yield found
    await found.stop()


async def prepared(rest: RestClient) -> dict[str, str]:
    """Make domains that lead to the file, for all to read; return ids by what they are of."""
    open_to_all = dict.fromkeys(READ, True)
    ids: dict[str, str] = {}
    for path in (OWN, VIRTUAL, LINKING):
        ids[path] = (await rest("PUT", "/", {}, domain=path))["root"]
        assert (await rest("PUT", "/acls/default", open_to_all, domain=path)).status == 201
        await rest("PUT", "/acls/anonymous", READ, domain=path)
    for name in ("absolute", "relative"):
        ids[name] = (await rest("GET", "/datasets/", domain=NEAR, h5path=f"/virtual {name}"))["id"]
    await rest("PUT", "/acls/anonymous", READ, domain="/near")
    link = {"h5domain": FILE, "h5path": "/x"}
    assert (await rest("PUT", f"/groups/{ids[LINKING]}/links/x", link, domain=LINKING)).status == 201
    whole = {"class": "H5S_SEL_ALL"}
    mapping = {"file": FILE, "dataset": "x", "source": whole, "virtual": whole}
    layout = {"class": "H5D_VIRTUAL", "mappings": [mapping]}
    made = await rest(
        "POST",
        "/datasets",
        {"type": "H5T_STD_I64LE", "shape": [6], "creationProperties": {"layout": layout}},
        domain=VIRTUAL,
    )
    assert made.status == 201, made.body
    ids["virtual"] = made["id"]
    ids["groups"] = (await rest("GET", "/", domain=FILE))["root"]
    for collection, path in (("datasets", "/x"), ("datatypes", "/t")):
        ids[collection] = (await rest("GET", f"/{collection}/", domain=FILE, h5path=path))["id"]
    return ids


async def statuses(rest: RestClient, ids: dict[str, str], user: str | None) -> dict[str, int]:
    """Return the status of each way to read what is in the place."""
    found = {}
    for route in READING:
        for collection in ("groups", "datasets", "datatypes") if "{collection" in route.path else ("",):
            path = route.path.replace("{collection:groups|datasets|datatypes}", collection)
            kind = next((one for one in ("groups", "datasets", "datatypes") if f"/{one}" in path), "")
            path = path.replace("{id}", ids.get(kind, "")).replace("{name}", "a").replace("{title}", "x")
            path = path.replace("{chunk}", "0")
            more = (
                {"h5path": {"datasets": "/x", "datatypes": "/t"}.get(kind, "/")}
                if path.endswith("s/")
                else {}
            )
            reduced = {"op": "sum"} if path.endswith("/reduce") else {}
            reply = await rest("GET", path, user=user, domain=FILE, **more, **reduced)
            found[f"GET {path}"] = reply.status
    for path in ("/runs", "/runs/sub", FILE):
        found[f"domain {path}"] = (await rest("GET", "/", user=user, domain=path)).status
    for path in ("/runs", "/runs/sub"):
        found[f"list {path}"] = (await rest("GET", "/domains", user=user, domain=path)).status
    for path in ("/runs/none.h5", "/runs/sub/none.h5"):
        found[f"missing {path}"] = (await rest("GET", "/", user=user, domain=path)).status
    found["file"] = (await rest("GET", f"/files{FILE}", user=user, domain=None)).status
    found["virtual"] = (
        await rest("GET", f"/datasets/{ids['virtual']}/value", user=user, domain=VIRTUAL)
    ).status
    for name in ("absolute", "relative"):
        values = await rest("GET", f"/datasets/{ids[name]}/value", user=user, domain=NEAR)
        assert values.status != 200 or values["value"] == list(range(6))
        found[f"near, virtual {name}"] = values.status
        near = {"h5path": f"/{name}", "follow_external_links": 1}
        found[f"near, {name}"] = (await rest("GET", "/datasets/", user=user, domain=NEAR, **near)).status
    followed = {"h5path": "/x", "follow_external_links": 1}
    found["link"] = (await rest("GET", "/datasets/", user=user, domain=LINKING, **followed)).status
    linked = {"linked_domain": FILE}
    found["name"] = (await rest("PUT", "/", linked, user=user, domain=f"/home/{user}/n.h5")).status
    return found


def are_closed(found: dict[str, int]) -> bool:
    return set(found.values()) == {403}


def are_open(found: dict[str, int]) -> bool:
    """Say whether nothing is refused for rights: a route may not fit the object that it is asked for."""
    statuses = [status for name, status in found.items() if name != "name"]
    return 403 not in statuses and all(found[name] == 200 for name in found if name.startswith("near"))


STATES: list[tuple[dict[str, dict[str, bool]], Sequence[str | None], Sequence[str | None]]] = [
    ({}, ("admin", "ann", "bob"), (None,)),
    ({"default": NONE}, ("admin",), ("ann", "bob", None)),
    ({"default": NONE, "ann": READ}, ("admin", "ann"), ("bob", None)),
    ({"anonymous": READ}, ("admin", "ann", None), ()),
    ({"default": NONE, "anonymous": READ}, ("admin", None), ("ann",)),
]


@pytest.mark.parametrize(("acls", "may", "may_not"), STATES)
async def test_every_way_to_read_asks_for_the_rights_of_the_place(
    node: Node, acls: dict[str, dict[str, bool]], may: Sequence[str | None], may_not: Sequence[str | None]
) -> None:
    rest = await node.start()
    ids = await prepared(rest)
    for who, rights in acls.items():
        assert (await rest("PUT", f"/acls/{who}", rights, domain="/runs")).status == 201
    for restarted in (False, True):
        if restarted:
            await node.stop()
            rest = await node.start()
        for user in may:
            found = await statuses(rest, ids, user)
            assert are_open(found), (user, found)
        for user in may_not:
            found = await statuses(rest, ids, user)
            assert are_closed(found), (user, found)


async def test_the_rights_are_those_of_the_place_alone(node: Node) -> None:
    """They are shown where they are, changed by who may, and nothing else of a place changes."""
    rest = await node.start()
    refused = await rest("PUT", "/acls/ann", READ, domain=FILE)
    assert (refused.status, "/runs: change them there" in str(refused.body)) == (403, True)
    assert (await rest("PUT", "/acls/ann", READ, domain="/runs", user="ann")).status == 403
    assert (await rest("PUT", "/acls/ann", {"updateACL": True}, domain="/runs")).status == 201
    assert (await rest("PUT", "/acls/bob", NONE, domain="/runs", user="ann")).status == 201
    assert (await rest("DELETE", "/acls/bob", domain="/runs", user="ann")).status == 200
    assert (await rest("DELETE", "/", domain="/runs")).status in (403, 409)
    assert (await rest("PUT", "/", {"folder": True}, domain="/runs/new")).status == 403
    store = ServedFiles(node.below, named_folders([f"runs={node._folder}"]))
    key = "runs/.domain.json"
    stored = await store.get(key)
    other = RecordCodec(key).decode(stored.data) | {"owner": "eve"}
    with pytest.raises(Forbidden, match="only its rights can be changed"):
        await store.put_if_match(key, RecordCodec(key).encode(other), stored.etag)


@pytest.mark.parametrize("stored", ["runs/.domain.json", "runs/a.h5/.domain.json", "runs/sub/raw.bin"])
async def test_a_place_hides_nothing_that_is_stored(stored: str) -> None:
    store = MemoryStore()
    await store.put(stored, b'{"owner": "ann"}')
    with pytest.raises(Misconfigured, match="/runs exists in the store"):
        await check(load_settings(files=("runs=/nowhere",)), store)
    await check(load_settings(files=("others=/nowhere",)), store)


@pytest.mark.parametrize("name", ["home", "db"])
async def test_names_that_the_server_needs(name: str) -> None:
    with pytest.raises(Misconfigured, match=f"the folder /{name} has"):
        await check_names(MemoryStore(), [name])


async def test_the_rights_that_were_set_are_no_reason_to_refuse_a_start(node: Node) -> None:
    rest = await node.start()
    assert (await rest("PUT", "/acls/default", NONE, domain="/runs")).status == 201
    await check(load_settings(files=(f"runs={node._folder}",)), node.below)
