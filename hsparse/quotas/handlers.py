"""Handlers of `/quota`, which show and set the quota of a folder, and the policy that enforces quotas.

The policy checks that the bytes that a request adds to its domain fit into the quotas of the folders above it.
"""

from __future__ import annotations

from aiohttp import web

from hsparse.api import (
    OBJECT_BYTES,
    AccessPolicy,
    BadRequest,
    Clock,
    DomainNames,
    FolderLimits,
    Forbidden,
    Next,
    Parts,
    Record,
    Request,
    Right,
    Route,
    SetFields,
    Settings,
    hrefs,
    names_of,
    read_json_object,
    respond,
)
from hsparse.quotas.folder_usage import QUOTA
from hsparse.quotas.quotas import UNLIMITED, Quotas, is_home

DEFAULT = "default"
"""Value that removes a folder's own quota; the setting `home_quota` then applies to a home folder."""


async def get_quota(request: Request) -> web.StreamResponse:
    """Return the quota of the folder itself, its used bytes, and the time when these were counted."""
    folder = _folder(request)
    limit, usage = await request.service.component(Quotas).of_folder(folder)
    used, counted = (None, None) if usage is None else (usage.used, usage.counted)
    links = hrefs(request, self="/quota", home="/", domains="/domains")
    return respond({"bytes": limit, "used": used, "counted": counted, "hrefs": links})


async def put_quota(request: Request) -> web.StreamResponse:
    """Set the folder's quota; null means no quota, not even the setting's for a home folder. Admins only."""
    folder = _folder(request)
    if not request.principal.admin:
        raise Forbidden("Only an admin can set a quota.")
    body = await read_json_object(request)
    if set(body) != {"bytes"}:
        raise BadRequest("The body must have bytes, and nothing else: a number, or null for no quota.")
    nbytes = body["bytes"]
    if nbytes is None and is_home(folder):
        fields: Record = {"bytes": UNLIMITED, "used": None, "counted": None}
    elif nbytes is None or nbytes == DEFAULT:
        fields = {"bytes": None, "used": None, "counted": None}
    elif isinstance(nbytes, int) and not isinstance(nbytes, bool) and 0 <= nbytes <= UNLIMITED:
        fields = {"bytes": nbytes}
    else:
        raise BadRequest(
            f"bytes must be a number from 0 to {UNLIMITED}, null or '{DEFAULT}', not {nbytes!r:.40}."
        )
    await request.service.owners.apply(SetFields(folder, fields, within=QUOTA))
    request.service.component(Quotas).forget(folder)
    return respond({"bytes": nbytes})


def _folder(request: Request) -> str:
    """Return the path of the request's folder; raise `BadRequest` for a domain and for the top level."""
    domain = request.domain
    if domain.root is not None:
        raise BadRequest(f"{domain.path} is a domain: only folders have quotas.")
    if domain.path == "/":
        raise BadRequest("The top level has no quota: name a folder.")
    return domain.path


class QuotaPolicy:
    """Sets `Request.room` of requests that change a domain to a `Growth`, which checks the quotas above the domain."""

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
            quotas.free.keep(path, (record, until))
            return await next(request)
        with quotas.growth(names, request.principal) as request.room:
            if request.route.grows:
                length = min(request.http.content_length or 0, request.limit)
                await request.room.check(max(length, OBJECT_BYTES))
            return await next(request)


ROUTES = (Route("GET", "/quota", get_quota, Right.READ), Route("PUT", "/quota", put_quota, Right.READ))


def parts(settings: Settings, clock: Clock) -> Parts:
    """Return a service node's parts for quotas, or none if the store is read-only; quotas may be set at any time."""
    if settings.store.read_only:
        return Parts()
    policies = ((AccessPolicy, QuotaPolicy()),)
    return Parts(ROUTES, policies, components=(Quotas,), provides={FolderLimits: Quotas})
