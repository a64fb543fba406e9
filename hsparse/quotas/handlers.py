"""Handlers of `/quota`: how many bytes the domains below a folder may take, and take.

Quotas as a policy: what a request adds to its domain must find room in the folders above it.
"""

from __future__ import annotations

from aiohttp import web

from hsparse.clock import Clock
from hsparse.config import Settings
from hsparse.errors import BadRequest, Forbidden
from hsparse.model.acl import Right
from hsparse.quotas.quotas import MAX_KNOWN, Quotas
from hsparse.sn.app import Parts
from hsparse.sn.http.request import read_json_object
from hsparse.sn.http.response import hrefs
from hsparse.sn.policies.access import Access
from hsparse.sn.policies.policy import Next
from hsparse.sn.records.second_names import DomainNames, FolderLimits, names_of
from hsparse.sn.request import OBJECT_BYTES, Request, respond
from hsparse.sn.route import Route
from hsparse.wire.message import Record
from hsparse.wire.record_message import PutQuota

MAX_BYTES = 2**63 - 1


async def get_quota(request: Request) -> web.StreamResponse:
    """Answer with the folder's own quota, what is used of it, and when that was counted."""
    folder = _folder(request)
    limit, usage = await request.service.component(Quotas).of_folder(folder)
    used, counted = (None, None) if usage is None else (usage.used, usage.counted)
    links = hrefs(request, self="/quota", home="/", domains="/domains")
    return respond({"bytes": limit, "used": used, "counted": counted, "hrefs": links})


async def put_quota(request: Request) -> web.StreamResponse:
    """Set the folder's quota or, with null, remove it; only admins may."""
    folder = _folder(request)
    if not request.principal.admin:
        raise Forbidden("Only an admin can set a quota.")
    body = await read_json_object(request)
    if set(body) != {"bytes"}:
        raise BadRequest("The body must have bytes, and nothing else: a number, or null for no quota.")
    nbytes = body["bytes"]
    if nbytes is None:
        fields: Record = {"bytes": None, "used": None, "counted": None}
    elif isinstance(nbytes, int) and not isinstance(nbytes, bool) and 0 <= nbytes <= MAX_BYTES:
        fields = {"bytes": nbytes}
    else:
        raise BadRequest(f"bytes must be a number from 0 to {MAX_BYTES}, or null, not {nbytes!r:.40}.")
    await request.service.owners.apply(PutQuota(folder, fields))
    request.service.component(Quotas).forget(folder)
    return respond({"bytes": nbytes})


def _folder(request: Request) -> str:
    """Return the path of the request's folder; `BadRequest` for a domain, and for the top level."""
    domain = request.domain
    if domain.root is not None:
        raise BadRequest(f"{domain.path} is a domain: quotas are of folders.")
    if domain.path == "/":
        raise BadRequest("The top level has no quota: name a folder.")
    return domain.path


class QuotaPolicy:
    """Gives requests that change something their room."""

    def applies(self, route: Route) -> bool:
        return route.authenticated and not route.reads and route.method != "DELETE"

    async def __call__(self, request: Request, next: Next) -> web.StreamResponse:
        quotas, path = request.service.component(Quotas), request.domain_path or "/"
        record = None if request.found is None else request.found.record
        now = request.service.clock.monotonic()
        known, until = quotas.free.get(path, (None, 0.0))
        if until > now and known is record:
            return await next(request)
        names = DomainNames(path) if request.found is None else names_of(request.found)
        if (until := quotas.free_until(names)) > now:
            quotas.free[path] = record, until
            if len(quotas.free) > MAX_KNOWN:
                quotas.free.popitem(last=False)
            return await next(request)
        with quotas.growth(names, request.principal) as request.room:
            if request.route.grows:
                length = min(request.http.content_length or 0, request.limit)
                await request.room.check(max(length, OBJECT_BYTES))
            return await next(request)


ROUTES = (Route("GET", "/quota", get_quota, Right.READ), Route("PUT", "/quota", put_quota, Right.READ))


def parts(settings: Settings, clock: Clock) -> Parts:
    """Return quotas: an admin may set one at any time. Where nothing grows there are none, and nothing is counted."""
    if settings.store.read_only:
        return Parts()
    policies = ((Access, QuotaPolicy()),)
    return Parts(ROUTES, policies, components=(Quotas,), provides={FolderLimits: Quotas})
