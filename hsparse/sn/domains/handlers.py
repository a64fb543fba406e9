"""Handlers of `/` and `/acls`: domains and folders, objects by path, and access control lists."""

from __future__ import annotations

from typing import Any

from aiohttp import hdrs, web

from hsparse.errors import BadRequest, Conflict, ErrorKind, Forbidden, NotFound
from hsparse.model.acl import DEFAULT, Right, check_rights, deciding_entries
from hsparse.model.schema import check_changeable
from hsparse.sn.about import server_facts
from hsparse.sn.domains.domain_creation import create_domain
from hsparse.sn.domains.domain_deletion import DomainDeletions, check_still_kept, require_kept
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
from hsparse.sn.records.listing import respond_records
from hsparse.sn.records.object_path import PathSteps, resolve_object, resolve_path
from hsparse.sn.records.second_names import (
    forget_first_name,
    forget_second_name,
    given_names,
    may_delete_objects,
)
from hsparse.sn.request import Domain, Request, respond
from hsparse.sn.statistics import Statistics, summary_json
from hsparse.wire.message import Record
from hsparse.wire.record_message import ChangedLately, ListKeys, PutAcl, SettleChanges

MAX_PATHS = 10_000
VARYING: dict[str, str] = {hdrs.VARY: hdrs.ACCEPT}
"""Of the JSON at `/`, where a browser gets a page."""
SETTLING = 10.0
"""Seconds after a change for which clients that keep a domain's objects are not given them."""
FACTS = ("owner", "created", "lastModified", "snapshot")
MAX_NAME = 256
"""Characters of a user's name in an ACL."""
ACL_ATTEMPTS = 16
"""How often a change of an ACL is checked again because what allows it was changed meanwhile."""


async def get_domain(request: Request) -> web.StreamResponse:
    """Answer with the domain, an object in it (`h5path`) or, without a domain, with the top-level folders."""
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
    # h5pyd 1.0, which sends no include_attrs, would keep these objects as they are now for as long as it has the file.
    if request.arg("include_attrs") is None and await _is_changing(request, domain.root):
        return respond_floats(answer)
    return await _with_objects(request, domain.root, answer)


async def _is_changing(request: Request, root: str) -> bool:
    return any(await request.service.owners.ask_all(ChangedLately(root, SETTLING)))


async def _with_objects(request: Request, root: str, answer: Record) -> web.StreamResponse:
    ignore_nan = request.flag("ignore_nan")

    def whole(id: str, record: Record) -> Encoded:
        return request.service.component(ObjectJsonCache).object_json(record, ignore_nan=ignore_nan)

    crawl = Crawl(request.service.owners, root, leaves=True)
    return await respond_records(request, "domain_objs", crawl, whole, answer)


async def post_domain(request: Request) -> web.StreamResponse:
    """Answer with the objects at `h5paths`; `NotFound` if one does not exist."""
    paths = text_list(await read_json_object(request), "h5paths")
    if paths is None:
        raise BadRequest("The body must have h5paths.")
    if len(paths) > MAX_PATHS:
        raise BadRequest(f"h5paths has {len(paths)} paths; the limit is {MAX_PATHS}.")
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
    """Create a domain or folder; `flush` makes sure that all is stored, `rescan` counts the objects.

    Every write is durable when it is answered, so a flush has nothing to do.
    """
    body = await read_json_object(request)
    wants_ids = _truth(request, body, "getdnids")
    if _truth(request, body, "flush") or _truth(request, body, "rescan"):
        domain = await request.named_domain(Right.UPDATE)
        if domain.root is None and _truth(request, body, "rescan"):
            raise BadRequest(f"{domain.path} is a folder: it has nothing to count.")
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
    """Delete a domain with all its objects (`keep_root`: without them), or a folder that is empty.

    A second name goes without the objects where the principal may not delete these by the first.
    """
    body = await read_json_object(request)
    if _truth(request, body, "meta_only"):
        return respond({})  # HSDS's parameter to drop a cache entry; nothing to do here
    wait = request.wait_seconds()
    domain = await request.named_domain(Right.DELETE, dangling=True)
    if domain.path.count("/") == 1 and not request.principal.admin:
        raise Forbidden(f"{domain.path} is at the top level: only an admin can delete it.")
    owners, keep_root = request.service.owners, _truth(request, body, "keep_root")
    if domain.root is None:
        _check_quota(request, domain)
        inside = await owners.ask_any(ListKeys(domain.path[1:] + "/", delimiter=True, limit=10))
        if inside.prefixes:
            raise Conflict(f"The folder {domain.path} is not empty; delete what is in it first.")
    keep_root = keep_root or not await may_delete_objects(owners, domain, request.principal)
    kept: tuple[str, ...] = ()
    given = given_names(domain, request.principal) if keep_root else []
    if keep_root and not request.principal.admin:
        kept = await require_kept(request, domain)
    check_changeable(domain.path, domain.record)  # what is refused must release no second name
    await forget_first_name(owners, domain, given, release=True)
    await request.service.component(DomainDeletions).remove(domain, keep_root=keep_root, wait=wait)
    if keep_root:
        await check_still_kept(request, domain, kept)
        await forget_first_name(owners, domain, given, release=False)
        await forget_second_name(owners, domain)
    return respond(None)


def _check_quota(request: Request, folder: Domain) -> None:
    """Raise `Forbidden` for a folder that somebody would make anew without its quota."""
    if (folder.record.get("quota") or {}).get("bytes") is not None and not request.principal.admin:
        raise Forbidden(f"{folder.path} has a quota: only an admin can delete it.")


def domain_json(domain: Domain) -> Record:
    """Return the JSON of a domain or folder."""
    record = domain.record
    shown: Record = {"class": "folder"} if domain.root is None else {"root": domain.root, "class": "domain"}
    return shown | {key: record[key] for key in FACTS if key in record}


def domain_hrefs(request: Request, path: str, root: str | None, *, home: bool = False) -> list[Href]:
    """Return the links of a domain or, with `root` None, of a folder."""
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
    """Return the ids of the data nodes, in a stable order."""
    return sorted(request.service.owners.node_ids)


async def _details(request: Request, domain: Domain, root: str) -> Record:
    details = dict(server_facts(request.service.settings))
    if request.flag("verbose"):
        summary = await request.service.component(Statistics).of_domain(root)
        details |= summary_json(summary, domain.record.get("lastModified", 0))
    return details


def _truth(request: Request, body: dict[str, Any], key: str) -> bool:
    """Return a truth value in the body or, without it, in the parameters."""
    return bool(body[key]) if key in body else request.flag(key)


async def get_acls(request: Request) -> web.StreamResponse:
    """List a domain's or folder's ACLs."""
    acls = request.domain.record.get("acls") or {}
    listed = [{"userName": user, **acls[user]} for user in sorted(acls)]
    return respond({"acls": listed, "hrefs": _acl_hrefs(request, request.domain)})


async def get_acl(request: Request) -> web.StreamResponse:
    """Answer with one user's rights; for the principal's own and the default rights, the right to read is enough."""
    user = request.params["user"]
    own = user in (request.principal.name, DEFAULT)
    domain = await request.named_domain(Right.READ if own else Right.READ_ACL)
    rights: Record | None = (domain.record.get("acls") or {}).get(user)
    if rights is None:
        raise NotFound(f"{domain.path} has no ACL for {user!r}.")
    return respond({"acl": {**rights, "userName": user}, "hrefs": _acl_hrefs(request, domain)})


async def put_acl(request: Request) -> web.StreamResponse:
    """Set some or all of a user's rights; those left out stay as they are."""
    user = request.params["user"]
    if not 0 < len(user) <= MAX_NAME:
        raise BadRequest(f"A user's name has 1 to {MAX_NAME} characters.")
    body = await read_json_object(request)
    body.pop("userName", None)
    await _change_acl(request, user, check_rights(body))
    return respond({}, status=201)


async def delete_acl(request: Request) -> web.StreamResponse:
    """Remove a user's entry, so that those of the user's groups, or `default`, decide."""
    user = request.params["user"]
    if user not in (request.domain.record.get("acls") or {}):
        raise NotFound(f"{request.domain.path} has no ACL for {user!r}.")
    await _change_acl(request, user, None)
    return respond({"hrefs": _acl_hrefs(request, request.domain)})


async def _change_acl(request: Request, user: str, rights: dict[str, bool] | None) -> None:
    """Set rights of a user, or remove them all with the entry.

    The data node applies it only where what allows it still stands: who loses the right meanwhile cannot give it back
    to themselves.
    """
    if request.domain.path == "/":
        raise BadRequest("The top level has no ACLs of its own: only admins create domains there.")
    owners, origin = request.service.owners, request.service.settings.bucket + request.domain.path
    for _ in range(ACL_ATTEMPTS):
        domain = await request.named_domain(Right.UPDATE_ACL)
        allowed_by = deciding_entries(domain.record.get("acls") or {}, request.principal)
        change = PutAcl(domain.path, user, rights, origin, domain.identity, allowed_by)
        [outcome] = await owners.change(change)
        if outcome.failure is None or outcome.failure.kind != ErrorKind.CONFLICT:
            break
    outcome.unwrap()


def _acl_hrefs(request: Request, domain: Domain) -> list[Href]:
    root = {"root": f"/groups/{domain.root}"} if domain.root is not None else {}
    return hrefs(request, self="/acls", **root, home="/", owner="/")
