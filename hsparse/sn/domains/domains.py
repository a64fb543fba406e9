"""Domains and folders, at `/`: getting, creating, flushing and deleting them, and objects by path."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from hsparse.errors import BadRequest, Conflict, Forbidden
from hsparse.model.right import Right
from hsparse.sn.access import named_domain
from hsparse.sn.context import Context, Domain
from hsparse.sn.domains.domain_creation import create_domain
from hsparse.sn.domains.folders import respond_folder
from hsparse.sn.domains.statistics import told
from hsparse.sn.href import domain_hrefs, hrefs
from hsparse.sn.json_body import read_object, text_list
from hsparse.sn.objects.crawl import Crawl
from hsparse.sn.objects.everything import respond_everything
from hsparse.sn.objects.object_path import find_place, resolve, root_of
from hsparse.sn.objects.objects import respond_floats, with_class
from hsparse.sn.objects.reading import Reading
from hsparse.sn.respond import respond
from hsparse.sn.server_facts import server_facts
from hsparse.wire.message import Record
from hsparse.wire.record_message import DeleteObject, DeleteTree, Forget, ListKeys

MAX_PATHS = 10_000


async def get_domain(context: Context) -> web.StreamResponse:
    """Answer with the domain, an object in it (`h5path`) or, without a domain, the top-level folders."""
    if context.path is None or context.path == "/":
        return await respond_folder(context, "/", hrefs(context, self="/"))
    domain = await named_domain(context, Right.READ)
    h5path = context.arg("h5path")
    if h5path:
        found, record = await resolve(context, domain, h5path)
        links = domain_hrefs(context, found.path, root_of(domain), home=True)
        return respond_floats(with_class(record, found, context) | {"hrefs": links})
    answer = shown_domain(domain)
    if domain.root is not None:
        answer |= await _details(context, domain, domain.root)
    if context.flag("getdnids"):
        answer["dn_ids"] = data_node_ids(context)
    answer["hrefs"] = domain_hrefs(context, domain.path, domain.root)
    if domain.root is None or not context.flag("getobjs"):
        return respond_floats(answer)
    return await _with_objects(context, domain.root, answer)


async def _with_objects(context: Context, root: str, answer: Record) -> web.StreamResponse:
    ignore_nan = context.flag("ignore_nan")

    def whole(id: str, record: Record) -> bytes:
        return context.service.shown.whole(record, ignore_nan=ignore_nan)

    crawl = Crawl(context.service.owners, root, leaves=True)
    return await respond_everything(context, "domain_objs", crawl, whole, answer)


async def post_domain(context: Context) -> web.StreamResponse:
    """Answer with the objects at `h5paths`; `NotFound` when one is not there."""
    paths = text_list(await read_object(context), "h5paths")
    if paths is None:
        raise BadRequest("The body must have h5paths.")
    if len(paths) > MAX_PATHS:
        raise BadRequest(f"h5paths has {len(paths)} paths; the limit is {MAX_PATHS}.")
    domain = await named_domain(context, Right.READ)
    places = {path: await find_place(context, domain, path) for path in paths}

    def show(path: str, record: Record) -> Record:
        return with_class(record, places[path].domain, context)

    reading = Reading(context.service.owners, {path: place.id for path, place in places.items()})
    return await respond_everything(context, "h5paths", reading, show, {})


async def put_domain(context: Context) -> web.StreamResponse:
    """Create a domain or folder or, with `flush` or `rescan`, see that all is stored, and counted.

    All is stored as soon as it is answered, so that a flush has nothing to do.
    """
    body = await read_object(context)
    wants_ids = _truth(context, body, "getdnids")
    if _truth(context, body, "flush") or _truth(context, body, "rescan"):
        domain = await named_domain(context, Right.UPDATE)
        if domain.root is None and _truth(context, body, "rescan"):
            raise BadRequest(f"{domain.path} is a folder: it has nothing to count.")
        if domain.root is not None and _truth(context, body, "rescan"):
            await context.service.statistics.rescan(domain.root)
        if wants_ids and domain.root is not None:
            return respond({"dn_ids": data_node_ids(context)})
        return web.Response(status=204)
    record = await create_domain(context, body)
    keys = ("root", "owner", "acls", "created", "lastModified")
    answer: Record = {key: record[key] for key in keys if key in record}
    answer |= server_facts(context.service.settings)
    return respond(answer | ({"dn_ids": data_node_ids(context)} if wants_ids else {}), status=201)


async def delete_domain(context: Context) -> web.StreamResponse:
    """Delete a domain with all its objects (`keep_root`: without them), or a folder that is empty."""
    body = await read_object(context)
    if _truth(context, body, "meta_only"):
        return respond({})  # asks HSDS to drop a cache entry; data nodes drop theirs by themselves
    domain = await named_domain(context, Right.DELETE)
    if domain.path.count("/") == 1 and not context.principal.admin:
        raise Forbidden(f"{domain.path} is at the top level: only an admin can delete it.")
    owners = context.service.owners
    if domain.root is None:
        inside = await owners.ask_any(ListKeys(domain.path[1:] + "/", delimiter=True, limit=10))
        if inside.prefixes:
            raise Conflict(f"The folder {domain.path} is not empty; delete what is in it first.")
    await owners.apply(DeleteObject(domain.path))
    if domain.root is not None and not _truth(context, body, "keep_root"):
        await owners.ask_any(DeleteTree(domain.root))
        await owners.ask_all(Forget(domain.root))
    return respond(None)


def shown_domain(domain: Domain) -> Record:
    """Return a domain or folder as answers show it."""
    record = domain.record
    shown: Record = {"class": "folder"} if domain.root is None else {"root": domain.root, "class": "domain"}
    return shown | {key: record[key] for key in ("owner", "created", "lastModified") if key in record}


def data_node_ids(context: Context) -> list[str]:
    """Return the ids of the data nodes, always in the same order."""
    return sorted(context.service.owners.nodes)


async def _details(context: Context, domain: Domain, root: str) -> Record:
    details = dict(server_facts(context.service.settings))
    if context.flag("verbose"):
        summary = await context.service.statistics.of_domain(root)
        details |= told(summary, domain.record.get("lastModified", 0))
    return details


def _truth(context: Context, body: dict[str, Any], key: str) -> bool:
    """Return a truth value given in the body or as a parameter."""
    return bool(body[key]) if key in body else context.flag(key)
