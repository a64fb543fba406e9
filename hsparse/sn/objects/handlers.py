"""Handlers of groups and committed types, and those of all objects: listing, getting, deleting."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from contextlib import aclosing
from math import prod

from aiohttp import web

from hsparse.errors import BadRequest, Forbidden, NotFound
from hsparse.model.attribute import answer_work
from hsparse.model.dataspace import dims_of
from hsparse.model.ids import collection_of, is_root
from hsparse.sn.http.request import read_type
from hsparse.sn.http.response import (
    Encoded,
    Href,
    encode_unless_long,
    href,
    hrefs,
    respond_computed,
    respond_floats,
)
from hsparse.sn.objects.create import post_objects, remove
from hsparse.sn.records.crawl import Crawl
from hsparse.sn.records.listing import ordered_names, page_of
from hsparse.sn.records.object_json import OBJECT_CLASSES, object_json
from hsparse.sn.records.object_path import ResolvedPath, paths_to, resolve_object
from hsparse.sn.request import JSON_HEADERS, Domain, Request, respond
from hsparse.sn.service import Service
from hsparse.sn.statistics import Statistics
from hsparse.wire.message import Record

PREVIEWED = 100
"""The most elements that the link from a dataset to its values selects."""


CACHE_BYTES = 32 << 20
"""The most bytes of memory of the cache."""
RECORD_WEIGHT = 8
"""Estimated bytes of memory of a record, for each byte of its JSON."""
JsonKey = tuple[str, ...]
"""An object's id, and what its JSON depends on besides the record."""


class ObjectJsonCache:
    """JSON of objects and answers with it, evicted least recently used first.

    An entry is valid for one record, compared by identity: records are not modified, a changed object has a new one.
    Records from a remote data node are new each time and are encoded again.
    """

    def __init__(self, budget: int = CACHE_BYTES) -> None:
        self._budget = budget
        self._made: OrderedDict[JsonKey, tuple[Record, bytes]] = OrderedDict()
        self._nbytes = 0

    @classmethod
    def of(cls, service: Service) -> ObjectJsonCache:
        """Make the cache of a service node."""
        return cls()

    def object_json(self, record: Record, *, ignore_nan: bool = False) -> Encoded:
        """Return an object's JSON with its links and attributes.

        For one of many elements a function is returned, which makes it, in any thread; it is not kept.
        """
        key = record["id"], "ignore_nan" if ignore_nan else ""
        data = self.get(key, record)
        if data is not None:
            return data
        found = encode_unless_long(
            answer_work((record.get("attributes") or {}).values()),
            lambda: object_json(record, links=True, attributes=True, ignore_nan=ignore_nan),
        )
        if isinstance(found, bytes):
            self.keep(key, record, found)
        return found

    def get(self, key: JsonKey, record: Record) -> bytes | None:
        """Return what was kept by `key` for this very record, else None."""
        cached = self._made.get(key)
        if cached is None or cached[0] is not record:
            return None
        self._made.move_to_end(key)
        return cached[1]

    def keep(self, key: JsonKey, record: Record, data: bytes) -> None:
        """Keep JSON that is made of a record, and else only of `key`: its id, and what was asked."""
        before = self._made.pop(key, None)
        if before is not None:
            self._nbytes -= _weight(key, before[1])
        self._made[key] = record, data
        self._nbytes += _weight(key, data)
        while self._nbytes > self._budget:
            oldest, (_, dropped) = self._made.popitem(last=False)
            self._nbytes -= _weight(oldest, dropped)


def _weight(key: JsonKey, data: bytes) -> int:
    return sum(map(len, key)) + (1 + RECORD_WEIGHT) * len(data)


async def list_objects(request: Request) -> web.StreamResponse:
    """Answer with the ids of a collection's objects that can be reached, the root group excluded."""
    collection, root = request.collection, request.domain.root
    ids = await _reachable(request, root, collection) if root is not None else []
    answer: Record = {collection: page_of(request, ids, "object")}
    paths = {"self": f"/{collection}"} | ({"root": f"/groups/{root}"} if root else {}) | {"home": "/"}
    return respond(answer | {"hrefs": hrefs(request, **paths)})


async def _reachable(request: Request, root: str, collection: str) -> list[str]:
    crawl = Crawl(request.service.owners, root, leaves=False)
    groups: list[str] = []
    batches = crawl.batches()
    async with aclosing(batches):
        async for batch in batches:
            if collection == "groups":
                groups += [id for id, _ in batch]
    if collection == "groups":
        return sorted(id for id in groups if id != root)
    return crawl.ids(collection[0] if collection == "datasets" else "t")


async def get_object(request: Request) -> web.StreamResponse:
    """Answer with the object of the request's id, or at `h5path` from that group."""
    h5path = request.arg("h5path")
    if not h5path or request.collection != "groups":
        return await answer_object(request, request.domain, await request.record(), {})
    place, record = await resolve_object(request, request.domain, h5path, request.object_id())
    _check_collection(h5path, record, request.collection)
    return await answer_object(request, place.domain, record, {})


async def get_object_by_path(request: Request) -> web.StreamResponse:
    """Answer with the object at `h5path`; `NotFound` if it is in another collection."""
    h5path, collection = request.arg("h5path"), request.collection
    if not h5path:
        raise BadRequest(f"Name one of the {collection} by its id or by h5path.")
    if not h5path.startswith("/") and request.arg("grpid") is None:
        raise BadRequest("The parameter h5path must be absolute, or relative to the group grpid.")
    place, record = await resolve_object(request, request.domain, h5path)
    _check_collection(h5path, record, collection)
    return await answer_object(request, place.domain, record, {})


def _check_collection(h5path: str, record: Record, collection: str) -> None:
    if collection_of(record["id"]) != collection:
        raise NotFound(f"{h5path!r} is not one of the {collection}.")


async def delete_object(request: Request) -> web.StreamResponse:
    """Delete the object of the request's id; the links to it, and the members of a group, stay, as in HSDS."""
    id = request.object_id()
    if is_root(id):
        raise Forbidden(f"{id} is the root group: delete the domain instead.")
    await remove(request.service.owners, id)
    return respond({})


async def answer_object(
    request: Request, domain: Domain, record: Record, extra: Record
) -> web.StreamResponse:
    """Answer with one object and what the parameters include; remember the answer if all of it is the record's."""
    if extra or request.flag("getalias"):
        return await _make_answer(request, domain, record, extra)
    http, cache = request.http, request.service.component(ObjectJsonCache)
    key = record["id"], domain.path, http.scheme, http.host, http.rel_url.raw_query_string
    body = cache.get(key, record)
    if body is not None:
        return web.Response(body=body, headers=JSON_HEADERS)
    response = await _make_answer(request, domain, record, extra)
    assert isinstance(response.body, bytes)
    cache.keep(key, record, response.body)
    return response


async def _make_answer(request: Request, domain: Domain, record: Record, extra: Record) -> web.Response:
    more: Record = {"domain": domain.path}
    if collection_of(record["id"]) == "groups":
        more["bucket"] = request.service.settings.bucket
    if request.flag("getalias"):
        more["alias"] = await paths_to(request.service.owners, domain.root_group, record["id"])
    more |= extra | {"hrefs": object_hrefs(request, record)}
    work = object_work(request, record)
    return await respond_computed(
        work, lambda: respond_floats(_requested_json(request, record) | more, items=work)
    )


def object_work(request: Request, record: Record) -> int:
    """Return how many elements of attributes an answer with an object has; for many it is made in a thread."""
    return answer_work((record.get("attributes") or {}).values()) if request.flag("include_attrs") else 0


def object_json_with_class(record: Record, place: ResolvedPath, request: Request) -> Record:
    """Return the JSON of an object with what a client cannot know of one found by path: its class, and where it is.

    `h5path` is there only if an external link led to it.
    """
    found = {"domain": place.domain.path, "class": OBJECT_CLASSES[collection_of(record["id"])]}
    if place.away is not None:
        found["h5path"] = place.away
    return _requested_json(request, record) | found


def _requested_json(request: Request, record: Record) -> Record:
    """Return the JSON of an object with what the parameters include; `CreateOrder` orders links and attributes."""
    found = object_json(
        record,
        links=request.flag("include_links"),
        attributes=request.flag("include_attrs"),
        ignore_nan=request.flag("ignore_nan"),
    )
    if request.arg("CreateOrder") is not None:
        for key in ("links", "attributes"):
            if key in found:
                found[key] = {name: found[key][name] for name in ordered_names(request, found[key])}
    return found


def object_hrefs(request: Request, record: Record) -> list[Href]:
    """Return the links of an object's answer."""
    collection = collection_of(record["id"])
    own = f"/{collection}/{record['id']}"
    paths = {"self": own}
    if collection == "groups":
        paths["links"] = f"{own}/links"
    paths |= {"root": f"/groups/{record['root']}", "home": "/", "attributes": f"{own}/attributes"}
    if collection == "datasets" and record["shape"]["class"] != "H5S_NULL":
        dims = dims_of(record["shape"]) or ()
        if prod(dims) > PREVIEWED:
            preview = f"select={preview_select(dims)}"
            return [
                *hrefs(request, **paths),
                {"rel": "preview", "href": href(request, f"{own}/value", more=preview)},
            ]
        paths["data"] = f"{own}/value"
    return hrefs(request, **paths)


def preview_select(dims: Sequence[int]) -> str:
    """Return a selection of at most `PREVIEWED` elements: of the last two dimensions, the first of the others."""
    *_, rows, columns = (1, *(min(dim, PREVIEWED) for dim in dims))
    if rows <= columns:
        columns = min(columns, PREVIEWED // rows)
    else:
        rows = min(rows, PREVIEWED // columns)
    stops = [1] * (len(dims) - 2) + [rows, columns][-len(dims) :]
    return f"[{','.join(f'0:{stop}' for stop in stops)}]"


async def post_groups(request: Request) -> web.StreamResponse:
    """Create one group or many."""
    return await post_objects(request, "groups", _fill_group)


async def _fill_group(request: Request, record: Record, body: Record) -> None:
    """A group has only the keys of all objects; `BadRequest` for a type, which is meant for another collection."""
    if "type" in body:
        raise BadRequest("A group has no type: create a dataset, or commit a type by POST /datatypes.")


async def get_dataset(request: Request) -> web.StreamResponse:
    """Answer with one dataset; with `verbose` also its number of chunks and their bytes.

    If counting takes too long, these are of the last count of the domain, if any.
    """
    record, extra = await request.record(), {}
    if request.flag("verbose"):
        counts = await request.service.component(Statistics).of_dataset(record["root"], record["id"])
        extra = {} if counts is None else {"num_chunks": counts[0], "allocated_size": counts[1]}
    return await answer_object(request, request.domain, record, extra)


async def post_datatypes(request: Request) -> web.StreamResponse:
    """Commit one type or many."""
    return await post_objects(request, "datatypes", _fill_datatype)


async def _fill_datatype(request: Request, record: Record, body: Record) -> None:
    record["type"] = (await read_type(request, body)).item
