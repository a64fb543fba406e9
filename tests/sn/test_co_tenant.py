"""A user with rights in one folder, on every route, against another user's private domain: nothing is told or changed.

The table is made from the route table: a route that takes a body and has none in `BODIES` fails.
"""

from __future__ import annotations

import itertools
import json
import re
import unicodedata
from collections.abc import AsyncIterator, Iterator
from dataclasses import astuple, dataclass
from typing import Any

import pytest

from hsparse.dn.record_form import RecordCodec
from hsparse.dn.service import DataService
from hsparse.hdf5.jobs.job_settings import JobSettings
from hsparse.model.acl import Principal, Right
from hsparse.model.ids import COLLECTIONS, storage_key
from hsparse.sn.route import Route
from tests.support.rest_client import BINARY, ROUTES, Reply, RestClient
from tests.testing.manual_clock import ManualClock
from tests.testing.memory_store import MemoryStore

OWNER, TENANT = "ann", "bob"
FOLDER = "/home/ann/lab"
PRIVATE = f"{FOLDER}/caf\u00e9.h5"
OWN = "/home/bob/own.h5"
SECOND = "/home/bob/second.h5"
"""A second name of the private domain, from when the tenant had all rights there."""
LINKED = "/home/bob/linked.h5"
"""A domain of the tenant with a dataset that is linked to a file of the owner."""
LATER, CHANGED = f"{FOLDER[1:]}/later.bin", f"{FOLDER[1:]}/changed.bin"
HEAD = bytes(4096)
HIDDEN = b"hidden"
"""In each name and value of the private domain and file, and in no request."""
SPELLINGS = (
    PRIVATE,
    PRIVATE + "/",
    "hdf5:/" + PRIVATE,
    "hsparse" + PRIVATE,
    "/" + PRIVATE,
    PRIVATE.replace("/lab", "/lab/../lab"),
    PRIVATE.replace("/", "%2f"),
    PRIVATE.upper(),
    unicodedata.normalize("NFD", PRIVATE),
    "/home/bob/../ann/lab/caf\u00e9.h5",
    FOLDER,
)
"""The private domain as one may try to write it, and the folder that it is in."""
TWIN = str.maketrans("\u00e9\u00c9\u0301", "\u00e8\u00c8\u0300")
"""Makes of the private domain's name, in each spelling, one of a domain that does not exist."""
PLACE = "s3://hsparse/jobs/bob/"
FAR, NEW = "far-\u00e9", "/home/bob/new.h5"
TABLE = {
    "class": "H5T_COMPOUND",
    "fields": [{"name": name, "type": "H5T_STD_I64LE"} for name in ("offset", "size")],
}
TEXT = {"class": "H5T_STRING", "length": 8, "charSet": "H5T_CSET_ASCII", "strPad": "H5T_STR_NULLPAD"}


@dataclass(frozen=True, slots=True)
class Ids:
    """Ids of the private domain, which the tenant has seen somewhere."""

    root: str
    groups: str
    datasets: str
    datatypes: str


def bodies(ids: Ids) -> dict[str, list[Any]]:
    """Return bodies, by method and path, that name what is private."""
    every = [ids.root, ids.groups, ids.datasets, ids.datatypes]
    link, more = {"link": {"id": ids.root, "name": "b"}}, {"b": {"id": ids.datasets}}
    uri = f"s3://hsparse/db/{ids.datasets}/0"
    file = {"class": "H5D_CONTIGUOUS_REF", "file_uri": uri, "offset": 0, "size": 32}
    located = ["chunklocator", "--h5path=/a", f"--filepath={PRIVATE[1:]}/x", "--bucket=hsparse"]
    shaped = {"type": TEXT, "shape": [4]}
    attribute = {"type": "H5T_STD_I8LE", "value": 1}
    values = {"start": [0], "stop": [4], "value": ["x"] * 4}
    return {
        "POST /": [{"h5paths": ["/", "/a", "/hidden-link"]}],
        "PUT /": [
            {"root_id": ids.root},
            {"linked_domain": PRIVATE},
            {"linked_domain": PRIVATE, "linked_bucket": "hsparse"},
            {"folder": 1, "owner": OWNER},
            {"flush": 1},
            {"rescan": 1},
        ],
        "POST /sign-in/token": [{"code": PRIVATE, "verifier": "v" * 43, "nonce": "n" * 43, "redirect_uri": PRIVATE}],
        "PUT /quota": [{"bytes": 0}, {"bytes": None}],
        "PUT /acls/{user}": [{right.value: True for right in Right}],
        "POST /groups": [{}, link, {"id": ids.groups}, [link, {"id": ids.root}]],
        "POST /datatypes": [{"type": TEXT}, {"type": TEXT, **link}, {"type": TEXT, "id": ids.datatypes}],
        "POST /datasets": [
            shaped | link,
            shaped | {"id": ids.datasets},
            {"type": ids.datatypes, "shape": [4]},
            shaped | {"creationProperties": {"layout": file}},
            shaped | {"creationProperties": {"layout": file | {"file_uri": uri.removeprefix("s3://hsparse/")}}},
            shaped | {"creationProperties": {"layout": file | {"file_uri": f"{PRIVATE[1:]}/x"}}},
            {"type": TABLE, "shape": [4], "creationProperties": {"initializer": located}},
        ],
        "PUT /datasets/{id}/shape": [{"shape": [1]}, {"extend": 2}],
        "POST /groups/{id}/links": [{"titles": ["a"]}, {"grp_ids": every[:2]}, {"follow_links": 1}],
        "PUT /groups/{id}/links": [{"links": more}, {"links": more, "grp_ids": every[:2]}],
        "PUT /groups/{id}/links/{title}": [{"id": ids.datasets}, {"h5path": "/a", "h5domain": PRIVATE}],
        "POST /snapshots": [{}, {"message": "x"}],
        "POST /snapshots/{number}/restore": [{}],
        "POST /clones": [{"target": f"{PRIVATE}.clone"}, {"target": PRIVATE}, {"target": PRIVATE, "snapshot": 1}],
        "POST /clones/materialize": [{}],
        "POST /attributes": [{"attr_names": ["a"]}, {"obj_ids": every}, {"obj_ids": {one: ["a"] for one in every}}],
        "PUT /attributes": [{"attributes": {"b": attribute}}, {"attributes": {"b": attribute}, "obj_ids": every}],
        "PUT /attributes/{name}": [attribute, {"type": ids.datatypes, "value": "x"}],
        "PUT /attributes/{name}/value": [{"value": "x"}],
        "PUT /datasets/{id}/value": [values, values | {"append": 4}, {"points": [0], "value": ["x"]}],
        "POST /datasets/{id}/value": [{"select": "[0:4]"}, {"points": [0, 1]}],
        "POST /datasets/values": [{"reads": [{"ids": [ids.datasets], "sparse": sparse}]} for sparse in (True, False)],
        "POST /datasets/{id}/defined": [{"select": "[0:4]"}],
        "POST /datasets/{id}/erase": [{"select": "[0:4]"}, {"points": [0]}],
        "POST /datasets/{id}/reduce": [{"op": "count"}, {"op": "count", "by": ids.datasets}],
        "POST /datasets/{id}/chunks/values": [{"chunks": ["0"], "etags": ["e"], "sizes": [32]}],
        "PUT /datasets/{id}/chunks/{chunk}/value": [b"x" * 32],
        "POST /jobs": [
            {"kind": "export", "domain": PRIVATE, "target": f"{PLACE}out.h5"},
            {"kind": "export", "domain": SECOND, "target": f"{PLACE}out.h5"},
            {"kind": "import", "domain": PRIVATE, "source": f"{PLACE}in.h5"},
            {"kind": "import", "domain": PRIVATE, "source": f"{PLACE}in.h5", "options": {"resume": True}},
            {"kind": "import", "domain": NEW, "source": f"s3://hsparse/db/{ids.datasets}/0"},
            {"kind": "export", "domain": OWN, "target": f"s3://hsparse{PRIVATE}"},
        ],
    }  # fmt: skip


def twin(item: Any) -> Any:
    """Return what is sent, or answered, about the domain that does not exist instead of the private one."""
    if isinstance(item, str):
        return item.translate(TWIN)
    if isinstance(item, bytes):
        return twin(item.decode(errors="surrogateescape")).encode(errors="surrogateescape")
    if isinstance(item, dict):
        return {twin(key): twin(value) for key, value in item.items()}
    return [twin(one) for one in item] if isinstance(item, list | tuple) else item


BODIES = frozenset(bodies(Ids("", "", "", "")))
COUNTS = "/metrics"
"""The route whose answer counts the requests before."""


def key_of(route: Route) -> str:
    """Return the method and path of a route, without the part that all collections have."""
    return f"{route.method} {route.path.replace('/{collection:groups|datasets|datatypes}/{id}', '')}"


def paths_of(route: Route, ids: Ids) -> Iterator[str]:
    """Give the paths of a route with private ids and names in them."""
    if "{path:.+}" in route.path:
        named = (*(PRIVATE + end for end in (".h5", "", "/", "/x")), SECOND, LINKED)
        yield from (route.path.replace("{path:.+}", path[1:]) for path in named)
        return
    path = route.path
    names = {
        "title": "a",
        "name": "a",
        "user": OWNER,
        "chunk": "0",
        "number": "1",
        "job": f"j-{ids.root[2:]}",
        "file": "x",
    }
    for name, text in names.items():
        path = path.replace(f"{{{name}}}", text)
    if "{id}" not in path:
        yield path
    for collection in COLLECTIONS.values():
        each = path.replace("{collection:groups|datasets|datatypes}", collection)
        if "{id}" in each and each.startswith(f"/{collection}/"):
            yield each.replace("{id}", getattr(ids, collection))
    if path.startswith("/groups/{id}"):
        yield path.replace("{id}", ids.root)


@pytest.fixture
async def world() -> AsyncIterator[tuple[RestClient, MemoryStore, Ids]]:
    """A server with a private domain, and a tenant who has a domain of his own."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    node = DataService(store, clock)
    added = (JobSettings(job_places=("s3://hsparse/jobs/{user}/",)),)
    async with RestClient(node, clock, Principal(OWNER), Principal(TENANT), added=added) as rest:
        await rest("PUT", "/", {"folder": 1}, domain=FOLDER)
        ids = await private_domain(rest)
        own = (await rest("PUT", "/", {}, domain=OWN, user=TENANT))["root"]
        await store.put(CHANGED, HEAD + b"public" * 10)
        await file_backed_datasets(rest, own)
        for granted in (True, False):
            rights = {right.value: granted for right in Right}
            assert (await rest("PUT", f"/acls/{TENANT}", rights, domain=PRIVATE)).status == 201
            if granted:
                link = {"linked_domain": PRIVATE}
                assert (await rest("PUT", "/", link, domain=SECOND, user=TENANT)).status == 201
        closed = {right.value: False for right in Right}
        for path in (PRIVATE, FOLDER):
            assert (await rest("PUT", "/acls/default", closed, domain=path)).status == 201
        await store.put(LATER, HIDDEN * 10)
        await store.put(CHANGED, HEAD + HIDDEN * 10)
        external = {"h5path": "/a", "h5domain": PRIVATE}
        for title, body in ((FAR, external), twin((FAR, external))):
            reply = await rest("PUT", f"/groups/{own}/links/{title}", body, domain=OWN, user=TENANT)
            assert reply.status == 201
        yield rest, store, ids


async def private_domain(rest: RestClient) -> Ids:
    """Make the private domain; each of its names and values is hidden."""
    root = (await rest("PUT", "/", {}, domain=PRIVATE))["root"]
    layout = {"layout": {"class": "H5D_CHUNKED", "dims": [4]}}
    made = {}
    for collection, body in (
        ("groups", {}),
        ("datatypes", {"type": TEXT}),
        ("datasets", {"type": TEXT, "shape": [4], "maxdims": [0], "creationProperties": layout}),
    ):
        link = {"link": {"id": root, "name": f"hidden-{collection}"}}
        made[collection] = (await rest("POST", f"/{collection}", body | link, domain=PRIVATE))["id"]
    attribute = {"type": TEXT, "value": "hidden"}
    for one, collection in (*((id, name) for name, id in made.items()), (root, "groups")):
        for name in ("a", "hidden"):
            reply = await rest("PUT", f"/{collection}/{one}/attributes/{name}", attribute, domain=PRIVATE)
            assert reply.status == 201, reply.body
    target = {"id": made["datasets"]}
    assert (await rest("PUT", f"/groups/{root}/links/a", target, domain=PRIVATE)).status == 201
    values = {"value": ["hidden"] * 4}
    assert (await rest("PUT", f"/datasets/{made['datasets']}/value", values, domain=PRIVATE)).status == 200
    return Ids(root=root, **made)


async def file_backed_datasets(rest: RestClient, own: str) -> None:
    """Link datasets of the tenant to files of the owner while the folder is open: one is not there yet, one changes."""
    contiguous = {"class": "H5D_CONTIGUOUS_REF", "file_uri": LATER, "offset": 0, "size": 32}
    changed = contiguous | {"file_uri": CHANGED, "offset": len(HEAD)}
    chunked = {"class": "H5D_CHUNKED_REF", "file_uri": LATER, "dims": [4], "chunks": {"0": [0, 32]}}
    linked = (await rest("PUT", "/", {}, domain=LINKED, user=TENANT))["root"]
    for name, layout, domain, root in (
        ("later", contiguous, OWN, own),
        ("chunked", chunked, OWN, own),
        ("changed", changed, OWN, own),
        ("changed", changed, LINKED, linked),
    ):
        body = {"type": TEXT, "shape": [4], "creationProperties": {"layout": layout}}
        link = {"link": {"id": root, "name": name}}
        assert (await rest("POST", "/datasets", body | link, domain=domain, user=TENANT)).status == 201


async def contents(store: MemoryStore, ids: Ids) -> dict[str, str]:
    """Return the etags of the owner's objects by key; of the private domain all but its second names."""
    tree = ids.root[2:19]
    pages = [page async for page in store.list("")]
    entries = itertools.chain.from_iterable(page.entries for page in pages)
    found = {
        entry.key: entry.etag for entry in entries if tree in entry.key or entry.key.startswith("home/ann")
    }
    key = storage_key(PRIVATE)
    record = RecordCodec(key).decode((await store.get(key)).data)
    return found | {key: json.dumps({**record, "secondNames": None})}


async def attempts(rest: RestClient, route: Route, ids: Ids) -> AsyncIterator[tuple[str, str | None, Reply]]:
    """Send the tenant's requests on a route: in each spelling of the private domain, in his own, in none."""
    given = bodies(ids).get(key_of(route), [None])
    own = (await rest("GET", "/", domain=OWN, user=TENANT))["root"]
    made = (await rest("GET", "/datasets", domain=OWN, user=TENANT))["datasets"]
    private = list(paths_of(route, ids))
    on_own = {re.sub("g-[0-9a-f-]+", own, path) for path in private if path.startswith("/groups/g-")}
    for path, body, domain in itertools.product(private, given, (*SPELLINGS, SECOND, OWN, None)):
        yield path, domain, await rest(route.method, path, body, domain=domain, user=TENANT)
    on_own |= {path.replace(ids.datasets, id) for path in private for id in made if ids.datasets in path}
    for path, body in itertools.product(on_own, given):
        yield path, OWN, await rest(route.method, path, body, domain=OWN, user=TENANT)
    if route.method == "GET":
        for path, accept, h5path in itertools.product({*private, *on_own}, (BINARY, ""), (f"/{FAR}", "/")):
            follow = {"h5path": h5path, "follow_external_links": 1}
            reply = await rest(route.method, path, domain=OWN, user=TENANT, accept=accept, **follow)
            yield path, OWN, reply


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
async def test_a_tenant_learns_and_changes_nothing_of_another(
    world: tuple[RestClient, MemoryStore, Ids], route: Route
) -> None:
    rest, store, ids = world
    assert route.method in ("GET", "HEAD", "DELETE") or key_of(route) in BODIES, (
        "no body that names what is private"
    )
    before = await contents(store, ids)
    assert len(before) > 5
    async for path, domain, reply in attempts(rest, route, ids):
        shown = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        assert HIDDEN not in shown + repr(dict(reply.headers)).encode(), (path, domain, reply.status)
        assert reply.status < 500, (path, domain, reply.body)
        names_private = domain not in (OWN, None) or any(one in path for one in astuple(ids))
        assert route.right is None or not names_private or reply.status >= 400, (path, domain, reply.body)
    assert await contents(store, ids) == before


@pytest.mark.parametrize(
    "route",
    [route for route in ROUTES if route.path != COUNTS],
    ids=lambda route: f"{route.method} {route.path}",
)
async def test_a_name_that_is_there_is_answered_as_one_that_is_not(
    world: tuple[RestClient, MemoryStore, Ids], route: Route
) -> None:
    rest, _, ids = world
    private, given = list(paths_of(route, ids)), bodies(ids).get(key_of(route), [None])
    asked: list[tuple[str, Any, str | None, dict[str, str]]] = [
        (path, body, domain, {})
        for path, body, domain in itertools.product(private, given, (*SPELLINGS, OWN, NEW, None))
    ]
    if route.method == "GET":
        own = (await rest("GET", "/", domain=OWN, user=TENANT))["root"]
        follow = {"h5path": f"/{FAR}/b", "follow_external_links": "1"}
        asked += [(re.sub("g-[0-9a-f-]+", own, path), None, OWN, follow) for path in private]
    for request in asked:
        if twin(request) == list(request):
            continue
        replies = []
        for path, body, domain, params in (request, twin(request)):
            replies.append(await rest(route.method, path, body, domain=domain, user=TENANT, **params))
        there, absent = replies
        # The tenant's own domain has a link to each, in one listing.
        assert (there.status, twin(there.body)) == (absent.status, twin(absent.body)), request


@pytest.mark.parametrize("right", [right for right in Right if right is not Right.READ])
async def test_no_right_but_read_tells_names_or_values(
    world: tuple[RestClient, MemoryStore, Ids], right: Right
) -> None:
    rest, _, ids = world
    assert (await rest("PUT", f"/acls/{TENANT}", {right.value: True}, domain=PRIVATE)).status == 201
    for route in sorted(ROUTES, key=lambda route: route.method == "DELETE"):
        given = bodies(ids).get(key_of(route), [None])
        queries: tuple[dict[str, str], ...] = ({}, {"query": "_ != b'none'"}, {"replace": "1"})
        for path, body, params in itertools.product(paths_of(route, ids), given, queries):
            reply = await rest(route.method, path, body, domain=PRIVATE, user=TENANT, **params)
            shown = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
            assert HIDDEN not in shown + repr(dict(reply.headers)).encode(), (route.method, path, params)
            assert reply.status < 500, (route.method, path, params)


def test_every_body_is_that_of_a_route() -> None:
    assert {key_of(route) for route in ROUTES} >= BODIES
