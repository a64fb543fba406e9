"""What groups, datasets and committed types have in common: listing, getting, deleting."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

from aiohttp import web

from hsparse.errors import BadRequest, Forbidden, NotFound
from hsparse.model.objid import collection_of, is_root
from hsparse.sn.context import Context, Domain
from hsparse.sn.href import Href, hrefs
from hsparse.sn.json_text import encode_floats
from hsparse.sn.objects.crawl import Crawl
from hsparse.sn.objects.object_path import check_member, resolve, root_of
from hsparse.sn.objects.page import ordered, page_of
from hsparse.sn.objects.shown import CLASSES, shown_object
from hsparse.sn.objects.walk import paths_to
from hsparse.sn.owners import Owners
from hsparse.sn.respond import JSON_TYPE, respond
from hsparse.wire.chunk_message import FenceDeleted
from hsparse.wire.message import Record
from hsparse.wire.record_message import DeleteObject, DeleteTree


async def list_objects(context: Context, collection: str) -> web.StreamResponse:
    """Answer with the ids of a collection's objects that can be reached, the root group excluded."""
    root = context.domain.root
    ids = await _reachable(context, root, collection) if root is not None else []
    answer: Record = {collection: page_of(context, ids, "object")}
    paths = {"self": f"/{collection}"} | ({"root": f"/groups/{root}"} if root else {}) | {"home": "/"}
    return respond(answer | {"hrefs": hrefs(context, **paths)})


async def _reachable(context: Context, root: str, collection: str) -> list[str]:
    crawl = Crawl(context.service.owners, root, leaves=False)
    groups: list[str] = []
    batches = crawl.batches()
    async with aclosing(batches):
        async for batch in batches:
            if collection == "groups":
                groups += [id for id, _ in batch]
    if collection == "groups":
        return sorted(id for id in groups if id != root)
    return crawl.ids(collection[0] if collection == "datasets" else "t")


async def get_object(context: Context, collection: str, **extra: Any) -> web.StreamResponse:
    """Answer with the object of the request's id or, of a group's, at `h5path` from there; adds `extra`."""
    h5path = context.arg("h5path")
    if not h5path or collection != "groups":
        record = await requested(context, collection)
        return await answer_object(context, context.domain, record, extra)
    domain, record = await resolve(context, context.domain, h5path, requested_id(context, collection))
    _check_collection(h5path, record, collection)
    return await answer_object(context, domain, record, extra)


async def get_object_by_path(context: Context, collection: str) -> web.StreamResponse:
    """Answer with the object at `h5path`; `NotFound` when it is in another collection."""
    h5path = context.arg("h5path")
    if not h5path:
        raise BadRequest(f"Name one of the {collection} by its id or by h5path.")
    if not h5path.startswith("/") and context.arg("grpid") is None:
        raise BadRequest("The parameter h5path must be absolute, or relative to the group grpid.")
    domain, record = await resolve(context, context.domain, h5path)
    _check_collection(h5path, record, collection)
    return await answer_object(context, domain, record, {})


def _check_collection(h5path: str, record: Record, collection: str) -> None:
    if collection_of(record["id"]) != collection:
        raise NotFound(f"{h5path!r} is not one of the {collection}.")


async def delete_object(context: Context, collection: str) -> web.StreamResponse:
    """Delete the object of the request's id; the links to it stay, as in HSDS."""
    id = requested_id(context, collection)
    if is_root(id):
        raise Forbidden(f"{id} is the root group: delete the domain instead.")
    await remove(context.service.owners, id)
    return respond({})


async def remove(owners: Owners, id: str) -> None:
    """Delete an object and, of a dataset, its chunks; `NotFound` or `Gone` when there is none."""
    await owners.apply(DeleteObject(id))
    if collection_of(id) == "datasets":
        await owners.ask_all(FenceDeleted(id))
        await owners.ask_any(DeleteTree(id))


async def requested(context: Context, collection: str | None = None) -> Record:
    """Return the record of the request's object."""
    return await context.service.owners.record(requested_id(context, collection))


def requested_id(context: Context, collection: str | None = None) -> str:
    """Return the id in the request's path, checked; of any collection, the path's own, without one."""
    return check_member(context.request.match_info["id"], context.domain, collection or context.collection)


async def answer_object(
    context: Context, domain: Domain, record: Record, extra: Record
) -> web.StreamResponse:
    """Answer with one object and what the parameters ask for beside it."""
    collection = collection_of(record["id"])
    answer = _shown(context, record)
    answer["domain"] = domain.path
    if collection == "groups":
        answer["bucket"] = context.service.settings.bucket
    if context.flag("getalias"):
        answer["alias"] = await paths_to(context.service.owners, root_of(domain), record["id"])
    return respond_floats(answer | extra | {"hrefs": object_hrefs(context, record)})


def with_class(record: Record, domain: Domain, context: Context) -> Record:
    """Return an object as it is shown where a client could not know its class: found by path."""
    found = {"domain": domain.path, "class": CLASSES[collection_of(record["id"])]}
    return _shown(context, record) | found


def _shown(context: Context, record: Record) -> Record:
    """Return an object with what the parameters ask for, links and attributes by `CreateOrder`."""
    shown = shown_object(
        record,
        links=context.flag("include_links"),
        attributes=context.flag("include_attrs"),
        ignore_nan=context.flag("ignore_nan"),
    )
    if context.arg("CreateOrder") is not None:
        for key in ("links", "attributes"):
            if key in shown:
                shown[key] = {name: shown[key][name] for name in ordered(context, shown[key])}
    return shown


def object_hrefs(context: Context, record: Record) -> list[Href]:
    """Return the links of an object's answer."""
    collection = collection_of(record["id"])
    own = f"/{collection}/{record['id']}"
    paths = {"self": own}
    if collection == "groups":
        paths["links"] = f"{own}/links"
    paths |= {"root": f"/groups/{record['root']}", "home": "/", "attributes": f"{own}/attributes"}
    if collection == "datasets" and record["shape"]["class"] != "H5S_NULL":
        paths["data"] = f"{own}/value"
    return hrefs(context, **paths)


def respond_floats(value: Any, status: int = 200) -> web.Response:
    """Answer with JSON in which floats that are not finite are `NaN` and `Infinity`, as Python reads them."""
    return web.Response(body=encode_floats(value), status=status, headers={"Content-Type": JSON_TYPE})
