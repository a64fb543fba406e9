"""Handlers of `/clones`: domains that share the objects of a snapshot until they change them."""

from __future__ import annotations

from contextlib import suppress

from aiohttp import web

from hsparse.errors import BadRequest, Conflict, Forbidden, HsparseError
from hsparse.model.acl import Right
from hsparse.model.ids import heads_of, root_id
from hsparse.sn.domains.domain_creation import acls_of_new, require_creation, require_nothing_below
from hsparse.sn.http.request import read_json_object
from hsparse.sn.records.domain_path import parsed_path
from hsparse.sn.request import Request, respond
from hsparse.versions.dependents import materialize
from hsparse.versions.snapshot_path import parsed_snapshot
from hsparse.versions.snapshot_requests import ask, find_snapshot, remove_snapshot, take_snapshot
from hsparse.versions.version_keys import CLONE_MARK
from hsparse.wire.message import Record
from hsparse.wire.record_message import CreateObject


async def post_clone(request: Request) -> web.StreamResponse:
    """`POST /clones`: create a clone of a snapshot or, without a snapshot's number, of the domain's current state."""
    body = await read_json_object(request)
    request.found = await request.named_domain(Right.READ)
    target, number = _target(request, body), body.get("snapshot")
    if number is not None and (not isinstance(number, int) or isinstance(number, bool)):
        raise BadRequest(f"snapshot must be the number of a snapshot, not {number!r:.40}.")
    source, head = request.domain.path, request.domain.root_group
    if "snapshot" in request.domain.record:
        if number is not None:
            raise BadRequest(f"{source} names a snapshot already: omit the parameter snapshot.")
        number, head = request.domain.record["snapshot"], request.domain.record["head"]
        source = (parsed_snapshot(source) or (source, 0))[0]
    parent = await require_creation(request, target)
    owners, principal = request.service.owners, request.principal
    if principal.anonymous:
        raise Forbidden("Creating a domain needs a user: send a name and password.")
    if (await owners.read(target))[0].failure is None:
        raise Conflict(f"{target} exists already; choose another path for the clone.")
    if not parent.allows(principal, Right.READ):
        await require_nothing_below(request, target)
    taken = number is None
    if number is None:
        request.domain.require(principal, Right.UPDATE)
        number = (await take_snapshot(request, head, "for a clone"))["snapshot"]
    await find_snapshot(request, head, number)
    clone = root_id(CLONE_MARK + request.service.clock.token(6))
    now = request.service.clock.now()
    record: Record = {
        "owner": principal.name,
        "acls": acls_of_new(parent, principal.name),
        "created": now,
        "lastModified": now,
        "root": clone,
        "head": head,
    }
    if before := [one for one in heads_of(request.domain.record) if one != head]:
        record["before"] = before
    try:
        await create_clone(request, source, head, number, target, record)
    except HsparseError:
        if taken:
            with suppress(HsparseError):
                await remove_snapshot(request, head, number)
        raise
    base = {"domain": source, "snapshot": number}
    return respond({"domain": target, "root": clone, "base": base}, status=201)


async def create_clone(
    request: Request, source: str, head: str, number: int, target: str, record: Record
) -> None:
    """Create the domain `target` with `record` as a clone of a snapshot of `source`; undo all steps if one fails."""
    owners, clone = request.service.owners, record["root"]
    try:
        await ask(request, "clone", head, number=number, clone=clone, source=source, domain=target)
        await owners.apply(CreateObject(target, record))
    except HsparseError:
        with suppress(HsparseError):
            await ask(request, "unclone", head, clone=clone)
        raise


def _target(request: Request, body: Record) -> str:
    target = body.get("target")
    if not isinstance(target, str) or not target:
        raise BadRequest("The body must have target: the path of the new domain.")
    bucket, path = parsed_path(target)
    if bucket is not None and bucket != request.service.settings.bucket:
        raise BadRequest(f"A clone is in the bucket of its domain, not in {bucket[:80]!r}.")
    if path == "/" or parsed_snapshot(path) is not None:
        raise BadRequest(f"{path[:80]} cannot be a clone's path: name a new domain, without @ and a number.")
    return path


async def post_materialize(request: Request) -> web.StreamResponse:
    """Copy all objects that a clone shares, so that the clone no longer needs its snapshot."""
    root = request.domain.root_group
    if "snapshot" in request.domain.record:
        raise Forbidden(f"{request.domain.path} is a snapshot, which never changes: name a clone.")
    await request.make_room((await ask(request, "materialized_bytes", root))["bytes"])
    return respond({"copied": await materialize(request.service.owners, root)})
