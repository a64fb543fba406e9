"""Handlers that list, get and delete objects, and that create groups and committed types."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from math import prod

from aiohttp import web

from hsparse.bounded_cache import BoundedCache
from hsparse.errors import BadRequest, Forbidden, NotFound
from hsparse.model.attribute import answer_work
from hsparse.model.dataspace import dims_of
from hsparse.model.ids import collection_of, is_root
from hsparse.sn.http.requested_type import read_type
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

MAX_PREVIEWED_ELEMENTS = 100
"""The maximum number of elements that the link `preview` of a dataset selects."""


CACHE_BYTES = 32 << 20
"""The maximum of memory in bytes of an `ObjectJsonCache`."""
RECORD_WEIGHT = 8
"""Estimated bytes of memory of a record for each byte of its JSON."""
JsonKey = tuple[str, ...]
"""The key of an entry: an object's id, and the parameters of the request that its JSON depends on."""


class ObjectJsonCache:
    """An LRU cache of the JSON of objects, and of answers with objects.

    An entry is valid for one record (compared with `is`), because records are never modified: a changed object has a
    new record. Records from a remote data node are new Python objects each time, so they are always encoded again.
    """

    def __init__(self, budget: int = CACHE_BYTES) -> None:
        self._made: BoundedCache[JsonKey, tuple[Record, bytes]] = BoundedCache(budget, budget, entry_size=0)

    @classmethod
    def of(cls, service: Service) -> ObjectJsonCache:
        """Make the cache of a service."""
        return cls()

    def object_json(self, record: Record, *, ignore_nan: bool = False) -> Encoded:
        """Return an object's JSON with its links and attributes or, if encoding takes long, a function that returns it.

        The function may be called in any thread; its result is not cached.
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
        """Return the JSON cached under `key`, or None if there is none or it was cached for another record object."""
        cached = self._made.use(key)
        return None if cached is None or cached[0] is not record else cached[1]

    def keep(self, key: JsonKey, record: Record, data: bytes) -> None:
        """Cache JSON under `key`; it must depend on nothing but the record and `key`."""
        self._made.keep(key, (record, data), sum(map(len, key)) + (1 + RECORD_WEIGHT) * len(data))


async def list_objects(request: Request) -> web.StreamResponse:
    """Answer with the ids of a collection's objects that hard links reach from the root group, but not its own id."""
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
    """Answer with the object whose id is in the URL or, for a group with `h5path`, with the object at that path."""
    h5path = request.arg("h5path")
    if not h5path or request.collection != "groups":
        return await answer_object(request, request.domain, await request.record(), {})
    place, record = await resolve_object(request, request.domain, h5path, request.object_id())
    _check_collection(h5path, record, request.collection)
    return await answer_object(request, place.domain, record, {})


async def get_object_by_path(request: Request) -> web.StreamResponse:
    """Answer with the object at `h5path`; raise `NotFound` if it is not in the collection in the URL."""
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
        raise NotFound(f"{h5path!r} is not one of the {collection}: use its own collection's path.")


async def delete_object(request: Request) -> web.StreamResponse:
    """Delete the object whose id is in the URL. As in HSDS, links to the object and a group's members stay."""
    id = request.object_id()
    if is_root(id):
        raise Forbidden(f"{id} is the root group: delete the domain instead.")
    await remove(request.service.owners, id)
    return respond({})


async def answer_object(
    request: Request, domain: Domain, record: Record, extra: Record
) -> web.StreamResponse:
    """Answer with one object and the keys of `extra`; the answer is cached if it depends on the record alone."""
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
    """Return the `work` (`respond_computed`) of an answer with an object: the approximate number of elements in it."""
    return answer_work((record.get("attributes") or {}).values()) if request.flag("include_attrs") else 0


def object_json_with_class(record: Record, place: ResolvedPath, request: Request) -> Record:
    """Return an object's JSON with `class`, `domain` and, if an external link led to the object, its `h5path` there."""
    found = {"domain": place.domain.path, "class": OBJECT_CLASSES[collection_of(record["id"])]}
    if place.away is not None:
        found["h5path"] = place.away
    return _requested_json(request, record) | found


def _requested_json(request: Request, record: Record) -> Record:
    """Return the JSON of an object. The request chooses whether it has links and attributes, and their order."""
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
    """Return the `hrefs` of an answer with an object."""
    collection = collection_of(record["id"])
    own = f"/{collection}/{record['id']}"
    paths = {"self": own}
    if collection == "groups":
        paths["links"] = f"{own}/links"
    paths |= {"root": f"/groups/{record['root']}", "home": "/", "attributes": f"{own}/attributes"}
    if collection == "datasets" and record["shape"]["class"] != "H5S_NULL":
        dims = dims_of(record["shape"]) or ()
        if prod(dims) > MAX_PREVIEWED_ELEMENTS:
            preview = f"select={preview_select(dims)}"
            return [
                *hrefs(request, **paths),
                {"rel": "preview", "href": href(request, f"{own}/value", more=preview)},
            ]
        paths["data"] = f"{own}/value"
    return hrefs(request, **paths)


def preview_select(dims: Sequence[int]) -> str:
    """Return a select string of at most `MAX_PREVIEWED_ELEMENTS` elements: index 0 but for the last two dimensions."""
    *_, rows, columns = (1, *(min(dim, MAX_PREVIEWED_ELEMENTS) for dim in dims))
    if rows <= columns:
        columns = min(columns, MAX_PREVIEWED_ELEMENTS // rows)
    else:
        rows = min(rows, MAX_PREVIEWED_ELEMENTS // columns)
    stops = [1] * (len(dims) - 2) + [rows, columns][-len(dims) :]
    return f"[{','.join(f'0:{stop}' for stop in stops)}]"


async def post_groups(request: Request) -> web.StreamResponse:
    """Create one group or many."""
    return await post_objects(request, "groups", _fill_group)


async def _fill_group(request: Request, record: Record, body: Record) -> None:
    """Add nothing, because groups have no keys of their own; raise `BadRequest` if the body has a type."""
    if "type" in body:
        raise BadRequest("A group has no type: create a dataset, or commit a type by POST /datatypes.")


async def get_dataset(request: Request) -> web.StreamResponse:
    """Answer with one dataset; with `verbose`, also with the number and the bytes of its chunks, if they are known."""
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
