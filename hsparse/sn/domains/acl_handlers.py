"""Handlers of `/acls`: the access control lists of domains and folders."""

from __future__ import annotations

from aiohttp import web

from hsparse.attempts import MAX_CHANGE_ATTEMPTS
from hsparse.errors import BadRequest, ErrorKind, Forbidden, NotFound
from hsparse.model.acl import DEFAULT, Right, check_rights, deciding_entries
from hsparse.model.file_backed import PLACE
from hsparse.sn.domains.handlers import MAX_NAME
from hsparse.sn.http.request import read_json_object
from hsparse.sn.http.response import (
    Href,
    hrefs,
)
from hsparse.sn.request import Domain, Request, respond
from hsparse.wire.message import Record
from hsparse.wire.record_message import PutAcl


async def get_acls(request: Request) -> web.StreamResponse:
    """Answer with all ACL entries of a domain or folder, sorted by user."""
    acls = request.domain.record.get("acls") or {}
    listed = [{"userName": user, **acls[user]} for user in sorted(acls)]
    return respond({"acls": listed, "hrefs": _acl_hrefs(request, request.domain)})


async def get_acl(request: Request) -> web.StreamResponse:
    """Answer with a user's ACL entry; the right to read is enough for the principal's own entry and for `default`."""
    user = request.params["user"]
    own = user in (request.principal.name, DEFAULT)
    domain = await request.named_domain(Right.READ if own else Right.READ_ACL)
    rights: Record | None = (domain.record.get("acls") or {}).get(user)
    if rights is None:
        raise NotFound(f"{domain.path} has no ACL entry for {user!r}; /acls lists all entries.")
    return respond({"acl": {**rights, "userName": user}, "hrefs": _acl_hrefs(request, domain)})


async def put_acl(request: Request) -> web.StreamResponse:
    """Set the rights of a user that the body names; the user's other rights stay unchanged."""
    user = request.params["user"]
    if not 0 < len(user) <= MAX_NAME:
        raise BadRequest(f"A user's name has 1 to {MAX_NAME} characters.")
    body = await read_json_object(request)
    body.pop("userName", None)
    await _change_acl(request, user, check_rights(body))
    return respond({}, status=201)


async def delete_acl(request: Request) -> web.StreamResponse:
    """Remove a user's ACL entry; the entries of the user's groups, or `default`, then decide on the user's rights."""
    user = request.params["user"]
    if user not in (request.domain.record.get("acls") or {}):
        raise NotFound(f"{request.domain.path} has no ACL entry for {user!r}; /acls lists all entries.")
    await _change_acl(request, user, None)
    return respond({"hrefs": _acl_hrefs(request, request.domain)})


async def _change_acl(request: Request, user: str, rights: dict[str, bool] | None) -> None:
    """Set rights of a user, or remove the user's entry if `rights` is None.

    The data node applies the change only if the ACL entries that allow it are unchanged, so that a principal who loses
    the right to change ACLs meanwhile cannot grant it to themselves again.
    """
    if request.domain.path == "/":
        raise BadRequest("The top level has no ACLs, so only admins create domains there: name a domain.")
    owners, origin = request.service.owners, request.service.settings.bucket + request.domain.path
    for _ in range(MAX_CHANGE_ATTEMPTS):
        domain = await request.named_domain(Right.UPDATE_ACL)
        if PLACE in domain.record:
            raise Forbidden(f"{domain.path} has the rights of {domain.record[PLACE]}: change them there.")
        allowed_by = deciding_entries(domain.record.get("acls") or {}, request.principal)
        change = PutAcl(domain.path, user, rights, origin, domain.identity, allowed_by)
        [outcome] = await owners.change(change)
        if outcome.failure is None or outcome.failure.kind != ErrorKind.CONFLICT:
            break
    outcome.unwrap()


def _acl_hrefs(request: Request, domain: Domain) -> list[Href]:
    root = {"root": f"/groups/{domain.root}"} if domain.root is not None else {}
    return hrefs(request, self="/acls", **root, home="/", owner="/")
