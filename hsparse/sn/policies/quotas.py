"""Quotas as a policy: what a request adds to its domain must find room in the folders above it."""

from __future__ import annotations

from aiohttp import web

from hsparse.sn.policies.policy import Next
from hsparse.sn.quotas.quotas import DomainNames, Quotas
from hsparse.sn.records.second_names import names_of
from hsparse.sn.request import OBJECT_BYTES, Request
from hsparse.sn.route import Route


class QuotaPolicy:
    """Gives requests that change something their room."""

    def applies(self, route: Route) -> bool:
        return route.authenticated and not route.reads and route.method != "DELETE"

    async def __call__(self, request: Request, next: Next) -> web.StreamResponse:
        quotas = request.service.component(Quotas)
        names = DomainNames(request.domain_path or "/") if request.found is None else names_of(request.found)
        if not quotas.may_limit(names):
            return await next(request)
        with quotas.growth(names, request.principal) as request.room:
            if request.route.grows:
                length = min(request.http.content_length or 0, request.limit)
                await request.room.check(max(length, OBJECT_BYTES))
            return await next(request)
