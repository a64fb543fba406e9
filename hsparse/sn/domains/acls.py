"""A domain's access control lists."""

from __future__ import annotations

from aiohttp import web

from hsparse.errors import BadRequest, NotFound
from hsparse.model.acl import DEFAULT, check_rights
from hsparse.model.right import Right
from hsparse.sn.access import named_domain
from hsparse.sn.context import Context, Domain
from hsparse.sn.href import Href, hrefs
from hsparse.sn.json_body import read_object
from hsparse.sn.respond import respond
from hsparse.wire.message import Record
from hsparse.wire.record_message import PutAcl

MAX_NAME = 256


async def get_acls(context: Context) -> web.StreamResponse:
    """List a domain's or folder's ACLs."""
    acls = context.domain.record.get("acls") or {}
    listed = [{"userName": user, **acls[user]} for user in sorted(acls)]
    return respond({"acls": listed, "hrefs": _hrefs(context, context.domain)})


async def get_acl(context: Context) -> web.StreamResponse:
    """Answer with one user's rights: one's own and the default ones need only the right to read."""
    user = context.request.match_info["user"]
    own = user in (context.principal.name, DEFAULT)
    domain = await named_domain(context, Right.READ if own else Right.READ_ACL)
    rights: Record | None = (domain.record.get("acls") or {}).get(user)
    if rights is None:
        raise NotFound(f"{domain.path} has no ACL for {user!r}.")
    return respond({"acl": {**rights, "userName": user}, "hrefs": _hrefs(context, domain)})


async def put_acl(context: Context) -> web.StreamResponse:
    """Set some or all of a user's rights; those left out stay as they are."""
    user = context.request.match_info["user"]
    if not 0 < len(user) <= MAX_NAME:
        raise BadRequest(f"A user's name has 1 to {MAX_NAME} characters.")
    body = await read_object(context)
    rights = check_rights({key: value for key, value in body.items() if key != "userName"})
    if context.domain.path == "/":
        raise BadRequest("The top level has no ACLs of its own: only admins create domains there.")
    await context.service.owners.apply(PutAcl(context.domain.path, user, rights))
    return respond({}, status=201)


def _hrefs(context: Context, domain: Domain) -> list[Href]:
    root = {"root": f"/groups/{domain.root}"} if domain.root is not None else {}
    return hrefs(context, self="/acls", **root, home="/", owner="/")
