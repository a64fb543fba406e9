"""Which domain a request names, and whether the principal has the right in it that the route needs."""

from __future__ import annotations

from aiohttp import web

from hsparse.errors import BadRequest
from hsparse.sn.policies.policy import Next
from hsparse.sn.records.access import find_allowed, find_still_allowed, request_place
from hsparse.sn.request import Request
from hsparse.sn.route import Route

UNCHECKED_BODY = 1 << 20
"""Bytes of the largest body on routes whose handlers check rights themselves: every client can send one."""


class Access:
    """Finds the bucket and the domain of a request, and checks the right."""

    def applies(self, route: Route) -> bool:
        return route.authenticated

    async def __call__(self, request: Request, next: Next) -> web.StreamResponse:
        request.service, request.domain_path = request_place(request.service, request.http)
        path = request.trace.domain = request.domain_path
        right = request.route.right
        if right is None:
            request.limit = min(UNCHECKED_BODY, request.limit)
            return await next(request)
        if path is None:
            raise BadRequest("No domain given: name it by ?domain= or the X-Hdf-domain header.")
        request.found = await find_allowed(request.service, path, request.principal, right)
        request.checks.append(self._find_again)
        return await next(request)

    async def _find_again(self, request: Request) -> None:
        """Have the domain as it is now; raises if another one is at its path, or the principal lost the right."""
        assert request.route.right is not None
        request.found = await find_still_allowed(
            request.service, request.domain, request.principal, request.route.right
        )
