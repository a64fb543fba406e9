"""Handlers of `/`: domains and folders, and objects by path."""

from __future__ import annotations

from typing import Any

from aiohttp import hdrs, web

from hsparse.errors import BadRequest, Conflict, Forbidden
from hsparse.model.acl import Right
from hsparse.model.schema import check_changeable
from hsparse.sn.about import server_facts
from hsparse.sn.domains.domain_creation import create_domain
from hsparse.sn.domains.domain_deletion import Dependents, DomainDeletions, check_still_kept, require_kept
from hsparse.sn.domains.folder_handlers import respond_folder
from hsparse.sn.http.request import read_json_object, text_list
from hsparse.sn.http.response import (
    Encoded,
    Href,
    encode_unless_long,
    href,
    hrefs,
    respond_computed,
    respond_floats,
)
from hsparse.sn.objects.handlers import ObjectJsonCache, object_json_with_class, object_work
from hsparse.sn.records.crawl import Crawl, RecordReader
from hsparse.sn.records.object_path import PathSteps, resolve_object, resolve_path
from hsparse.sn.records.second_names import (
    forget_first_name,
    forget_second_name,
    given_names,
    may_delete_objects,
)
from hsparse.sn.records.streamed_records import respond_records
from hsparse.sn.request import Domain, Request, respond
from hsparse.sn.statistics import Statistics, statistics_json
from hsparse.wire.message import Record
from hsparse.wire.record_message import ChangedLately, ListKeys, SettleChanges

MAX_PATHS = 10_000
VARYING: dict[str, str] = {hdrs.VARY: hdrs.ACCEPT}
"""Headers of the JSON at `/`; the answer varies, because a browser whose `Accept` names HTML gets a page instead."""
SETTLE_SECONDS = 10.0
"""Seconds after a change of a domain's objects during which clients that cache objects do not get them in bulk."""
FACTS = ("owner", "created", "lastModified", "snapshot")
"""The keys of a domain's record that are copied to the answer."""
MAX_NAME = 256
"""The maximum number of characters of a user's name in an ACL."""


async def get_domain(request: Request) -> web.StreamResponse:
    """Answer with the domain or, with `h5path`, with an object in it; without a domain, list the top-level folder."""
    if request.domain_path is None or request.domain_path == "/":
        return await respond_folder(request, "/", hrefs(request, self="/"), VARYING)
    domain = await request.named_domain(Right.READ)
    h5path = request.arg("h5path")
    if h5path:
        place, record = await resolve_object(request, domain, h5path)
        links = domain_hrefs(request, place.domain.path, domain.root_group, home=True)
        work = object_work(request, record)
        return await respond_computed(
            work,
            lambda: respond_floats(
                object_json_with_class(record, place, request) | {"hrefs": links}, items=work
            ),
        )
    answer = domain_json(domain)
    if domain.root is not None:
        answer |= await _details(request, domain, domain.root)
    if request.flag("getdnids"):
        answer["dn_ids"] = data_node_ids(request)
    answer["hrefs"] = domain_hrefs(request, domain.path, domain.root)
    if domain.root is None or not request.flag("getobjs"):
        return respond_floats(answer)
    # h5pyd 1.0, which sends no include_attrs, caches these objects for as long as the file is open.
    if request.arg("include_attrs") is None and await _is_changing(request, domain.root):
        return respond_floats(answer)
    return await _with_objects(request, domain.root, answer)


async def _is_changing(request: Request, root: str) -> bool:
    return any(await request.service.owners.ask_all(ChangedLately(root, SETTLE_SECONDS)))


async def _with_objects(request: Request, root: str, answer: Record) -> web.StreamResponse:
    ignore_nan = request.flag("ignore_nan")

    def whole(id: str, record: Record) -> Encoded:
        return request.service.component(ObjectJsonCache).object_json(record, ignore_nan=ignore_nan)

    crawl = Crawl(request.service.owners, root, leaves=True)
    return await respond_records(request, "domain_objs", crawl, whole, answer)


async def post_domain(request: Request) -> web.StreamResponse:
    """Answer with the objects at the body's `h5paths`; raise `NotFound` if one of the objects does not exist."""
    paths = text_list(await read_json_object(request), "h5paths")
    if paths is None:
        raise BadRequest("The body must have h5paths: a list of paths of objects.")
    if len(paths) > MAX_PATHS:
        raise BadRequest(f"h5paths has {len(paths)} paths; the limit is {MAX_PATHS}: send several requests.")
    domain = await request.named_domain(Right.READ)
    steps = PathSteps(request)
    places = {path: await resolve_path(request, domain, path, steps=steps) for path in paths}

    def show(path: str, record: Record) -> Encoded:
        return encode_unless_long(
            object_work(request, record), lambda: object_json_with_class(record, places[path], request)
        )

    reading = RecordReader(request.service.owners, {path: place.id for path, place in places.items()})
    return await respond_records(request, "h5paths", reading, show, {})


async def put_domain(request: Request) -> web.StreamResponse:
    """Create a domain or folder or, if the request has `flush` or `rescan`, flush or rescan an existing domain.

    A flush does nothing, because every write is durable when it is answered. A rescan counts the domain's objects.
    """
    body = await read_json_object(request)
    wants_ids = _truth(request, body, "getdnids")
    if _truth(request, body, "flush") or _truth(request, body, "rescan"):
        domain = await request.named_domain(Right.UPDATE)
        if domain.root is None and _truth(request, body, "rescan"):
            raise BadRequest(f"{domain.path} is a folder, which has no objects to count: rescan its domains.")
        if domain.root is not None and _truth(request, body, "rescan"):
            await request.service.owners.ask_all(SettleChanges(domain.root))
            await request.service.component(Statistics).rescan(domain.root)
        if wants_ids and domain.root is not None:
            return respond({"dn_ids": data_node_ids(request)})
        return web.Response(status=204)
    record = await create_domain(request, body)
    keys = ("root", "owner", "acls", "created", "lastModified")
    answer: Record = {key: record[key] for key in keys if key in record}
    answer |= server_facts(request.service.settings)
    return respond(answer | ({"dn_ids": data_node_ids(request)} if wants_ids else {}), status=201)


async def delete_domain(request: Request) -> web.StreamResponse:
    """Delete an empty folder, or a domain with all its objects; with `keep_root`, keep the objects.

    The objects are also kept if the domain is their second name and the principal may not delete their first name.
    """
    body = await read_json_object(request)
    if _truth(request, body, "meta_only"):
        return respond({})  # with this parameter, HSDS only drops a cache entry
    wait = request.wait_seconds()
    domain = await request.named_domain(Right.DELETE, dangling=True)
    if domain.path.count("/") == 1 and not request.principal.admin:
        raise Forbidden(f"{domain.path} is at the top level: only an admin can delete it.")
    owners, keep_root = request.service.owners, _truth(request, body, "keep_root")
    if domain.root is None:
        _check_quota(request, domain)
        inside = await owners.ask_any(ListKeys(domain.path[1:] + "/", delimiter=True, limit=10))
        if inside.prefixes:
            raise Conflict(f"The folder {domain.path} is not empty; delete its members first.")
    keep_root = keep_root or not await may_delete_objects(owners, domain, request.principal)
    kept: tuple[str, ...] = ()
    given = given_names(domain, request.principal) if keep_root else []
    if keep_root and not request.principal.admin:
        kept = await require_kept(request, domain)
    check_changeable(domain.path, domain.record)  # before any second name is released
    dependents = None if keep_root or domain.root is None else request.service.provided(Dependents)
    if dependents is not None:
        await dependents.release(domain.root_group, request.principal)
    await forget_first_name(owners, domain, given, release=True)
    await request.service.component(DomainDeletions).remove(domain, keep_root=keep_root, wait=wait)
    if keep_root:
        await check_still_kept(request, domain, kept)
        await forget_first_name(owners, domain, given, release=False)
        await forget_second_name(owners, domain)
    return respond(None)


def _check_quota(request: Request, folder: Domain) -> None:
    """Raise `Forbidden` if the folder has a quota, because its owner could create it again without the quota."""
    if (folder.record.get("quota") or {}).get("bytes") is not None and not request.principal.admin:
        raise Forbidden(f"{folder.path} has a quota: only an admin can delete it.")


def domain_json(domain: Domain) -> Record:
    """Return the JSON of a domain or folder."""
    record = domain.record
    shown: Record = {"class": "folder"} if domain.root is None else {"root": domain.root, "class": "domain"}
    return shown | {key: record[key] for key in FACTS if key in record}


def domain_hrefs(request: Request, path: str, root: str | None, *, home: bool = False) -> list[Href]:
    """Return the `hrefs` of a domain, or of a folder if `root` is None."""
    found = hrefs(request, self="/")
    if root is None:
        folder = href(request, "/domains")
        found.append({"rel": "domains", "href": folder if folder.endswith("/") else folder + "/"})
    else:
        found += hrefs(
            request, database="/datasets", groupbase="/groups", typebase="/datatypes", root=f"/groups/{root}"
        )
    if home:
        found += hrefs(request, home="/")
    found += hrefs(request, acls="/acls")
    parent = path.rpartition("/")[0]
    if parent:
        bucket = request.service.settings.bucket
        found.append({"rel": "parent", "href": href(request, "/", domain=bucket + parent)})
    return found


def data_node_ids(request: Request) -> list[str]:
    """Return the sorted ids of the data nodes."""
    return sorted(request.service.owners.node_ids)


async def _details(request: Request, domain: Domain, root: str) -> Record:
    details = dict(server_facts(request.service.settings))
    if request.flag("verbose"):
        details |= await statistics_json(request, domain, root)
    return details


def _truth(request: Request, body: dict[str, Any], key: str) -> bool:
    """Return the boolean `key` of the body or, if the body lacks it, the URL's parameter `key`."""
    return bool(body[key]) if key in body else request.flag(key)
