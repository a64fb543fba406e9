"""Places of files: their rights for every way to read, what is refused there, and which files they have for others."""

from __future__ import annotations

import asyncio
import threading
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
from hsparse.errors import Forbidden, Misconfigured, NotFound, TooLarge
from hsparse.hdf5.importer.file_data import _LARGE
from hsparse.hdf5.in_place.file_chunks import FileChunk
from hsparse.hdf5.in_place.folders import DirectoryFiles, FolderContent, walked
from hsparse.hdf5.in_place.place_rights import check_names
from hsparse.hdf5.in_place.places import named_folders
from hsparse.hdf5.in_place.served_file import ServedFile
from hsparse.hdf5.in_place.store import MARK, ServedFiles
from hsparse.hdf5.in_place.unknown_roots import UnknownRoots
from hsparse.hdf5.in_place.wrapping import check
from hsparse.model.acl import Principal, Right
from hsparse.model.ids import root_id, storage_key
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
        file.create_dataset("x", data=np.arange(6), chunks=(2,), maxshape=(None,))
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
    "clone onto it": ("POST", "/clone", {"source": FILE}),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_refused_change_leaves_nothing(node: Node, change: str) -> None:
    rest, below = await node.start(), node.below

    async def seen() -> list[Any]:
        domain = (await rest("GET", f"/?domain={FILE}")).body
        listed = (await rest("GET", f"/groups/{domain['root']}/links?domain={FILE}")).body["links"]
        ids = {one["title"]: one["id"] for one in listed} | {"root": domain["root"]}
        value = (await rest("GET", f"/datasets/{ids['x']}/value?domain={FILE}")).body["value"]
        file = await rest("GET", f"/files{FILE}")
        attribute = (await rest("GET", f"/groups/{ids['root']}/attributes/a?domain={FILE}")).body["value"]
        return [ids, value, attribute, file.status, len(file.body)]

    before = await seen()
    assert before[1] == list(range(6))
    keys = [entry.key async for page in below.list("") for entry in page.entries]
    method, path, body = CHANGES[change]
    path = path.format(**before[0])
    reply = await rest(method, f"{path}{'&' if '?' in path else '?'}domain={FILE}", body)
    assert 400 <= reply.status < 500, reply.body
    assert await seen() == before
    assert [entry.key async for page in below.list("") for entry in page.entries] == keys


SECRET = b"TOPSECRET, in no file that is served"


def folders_with_links(place: Path) -> Path:
    """Make folders with links to each other, and to those above; return the place."""
    for folder in ("a/deep", "b"):
        (place / folder).mkdir(parents=True)
        (place / folder / "x.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    for link, target in (
        ("latest", "."),
        ("newest", "."),
        ("a/up", ".."),
        ("a/other", "../b"),
        ("b/other", "../a"),
        ("b/deep", "../a/deep"),
    ):
        (place / link).symlink_to(target)
    return place


def test_a_folder_is_walked_through_once(tmp_path: Path) -> None:
    folder = DirectoryFiles(folders_with_links(tmp_path))
    assert folder.content("").folders == {"a", "b"}
    assert folder.content("a").folders == {"deep", "other"}
    assert folder.content("a/other").folders == {"deep"}
    seen = [content.identity for _, content in walked(folder, "")]
    assert sorted(seen) == sorted(str(tmp_path / one) for one in ("", "a", "a/deep", "b"))


class Page:
    """A folder of a web server, whose links lead to itself: nobody knows what is the same."""

    def content(self, path: str) -> FolderContent:
        return FolderContent({}, frozenset({"latest", "newest"}))


def test_a_folder_that_has_what_is_above_it_is_not_followed() -> None:
    folder: Any = Page()
    assert [path for path, _ in walked(folder, "")] == [""]


class Counted(DirectoryFiles):
    """A directory that counts how often it is listed, and may have to wait for that."""

    listed = 0
    may_go_on: threading.Event | None = None

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.begun = threading.Event()

    def content(self, path: str) -> FolderContent:
        self.listed += 1
        self.begun.set()
        if self.may_go_on is not None:
            assert self.may_go_on.wait(30)
        return super().content(path)


def unknown(number: int) -> str:
    return root_id(MARK + number.to_bytes(6, "big"))


async def test_unknown_ids_are_looked_for_by_few_walks(tmp_path: Path) -> None:
    folder = Counted(folders_with_links(tmp_path))
    store = ServedFiles(MemoryStore(), {"runs": folder})
    key = storage_key(unknown(1))
    for _ in range(3):
        with pytest.raises(NotFound):
            await store.get(key)
    assert folder.listed <= 6
    folder.listed = 0
    keys = [storage_key(unknown(number)) for number in range(2, 60)]
    found = await asyncio.gather(*map(store.get, keys), return_exceptions=True)
    assert {type(one) for one in found} == {NotFound}
    assert folder.listed <= 12


async def test_a_walk_ends_with_its_request(tmp_path: Path) -> None:
    folder = Counted(folders_with_links(tmp_path))
    folder.may_go_on = threading.Event()
    store = ServedFiles(MemoryStore(), {"runs": folder})
    asked = asyncio.create_task(store.get(storage_key(unknown(1))))
    assert await asyncio.to_thread(folder.begun.wait, 30)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    folder.may_go_on.set()
    await store.close()  # what runs in threads has ended
    assert folder.listed == 1


async def test_a_stored_domain_with_such_an_id_is_not_looked_for(tmp_path: Path) -> None:
    below, folder = MemoryStore(), Counted(folders_with_links(tmp_path))
    root = unknown(7)
    await below.put(storage_key(root), b"{}")
    store = ServedFiles(below, {"runs": folder})
    assert (await store.get(storage_key(root))).data == b"{}"
    assert folder.listed == 0


async def test_what_is_remembered_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hsparse.hdf5.in_place.unknown_roots.MOST_UNKNOWN", 3)
    roots = UnknownRoots(MemoryStore(), {}, {}, lambda *_: "")
    for number in range(10):
        await roots.look_for(unknown(number))
    assert len(roots._unknown) == 3


NAMED = [
    ("raw.bin", True), ("RAW.DAT", True), ("sub/frames.img", True), ("other.h5", True),
    ("plain.txt", False), ("none", False), (".hidden.bin", False), (".git/config", False),
    (".git/raw.bin", False), ("sub/.raw.bin", False), ("link.bin", False),
]  # fmt: skip


@pytest.mark.parametrize(("name", "is_there"), NAMED)
def test_a_file_names_what_is_listed_or_raw_data(tmp_path: Path, name: str, is_there: bool) -> None:
    place = tmp_path / "place"
    path = place / name
    path.parent.mkdir(parents=True)
    (place / "target.txt").write_bytes(SECRET)
    if name == "link.bin":
        path.symlink_to("target.txt")
    else:
        path.write_bytes(SECRET)
    with h5py.File(place / "m.h5", "w") as file:
        file.create_dataset("x", (len(SECRET),), "u1", external=[(name, 0, len(SECRET))])
    folder = named_folders([f"runs={place}"])["runs"]
    state = folder.state("m.h5")
    assert state is not None
    _, files = folder.open("m.h5", state)
    if is_there:
        location = files.find(name, "m.h5")
        assert location is not None
        with files.use(location) as source:
            assert source.read(0, len(SECRET)) == SECRET
    else:
        with pytest.raises(Forbidden, match="may not be read for another file"):
            files.find(name, "m.h5")


def test_a_file_of_any_name_is_named_if_it_is_hdf5(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "part", "w") as file:
        file["x"] = np.arange(3)
    folder = named_folders([f"runs={tmp_path}"])["runs"]
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file["x"] = 1
    state = folder.state("m.h5")
    assert state is not None
    assert folder.open("m.h5", state)[1].find("part", "m.h5") is not None


def test_a_chunk_that_cannot_fit_is_refused_and_one_large_one_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hsparse.hdf5.importer.file_data.LARGE_CHUNK", 1024)
    data = np.arange(4 * 2**20, dtype="u1")
    for name in "abc":
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            file.create_dataset("x", data=data, chunks=(len(data) - 1,), compression="lzf")
    folder = DirectoryFiles(tmp_path)

    def read(name: str, most: int) -> bytes:
        state = folder.state(name)
        assert state is not None
        file = ServedFile(f"/runs/{name}", unknown(1), 0.0, lambda: folder.open(name, state), most=most)
        key = next(one for one in file.keys("") if not one.endswith(".json"))
        chunk = file.get(key)
        assert chunk is not None
        return bytes(chunk.encode() if isinstance(chunk, FileChunk) else chunk)

    for name in ("a.h5", "b.h5", "c.h5"):
        assert read(name, len(data))
        assert _LARGE.content is None  # of a file that is closed nothing is kept
        with pytest.raises(TooLarge, match="--chunk-memory"):
            read(name, len(data) // 2)
