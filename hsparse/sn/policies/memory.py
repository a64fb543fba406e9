"""Memory for the body of a request, and what a body may be."""

from __future__ import annotations

from aiohttp import hdrs, web

from hsparse.errors import BadRequest
from hsparse.sn.http.response import respond_error
from hsparse.sn.policies.policy import Next
from hsparse.sn.request import Request
from hsparse.sn.route import Route

IDENTITY = "identity"
CHUNKED = "chunked"
CONTINUE = "100-continue"
WITH_BODY = frozenset({"PUT", "POST", "DELETE"})


class Bodies:
    """Refuses bodies that nobody reads, and gives back the memory that one has taken."""

    def applies(self, route: Route) -> bool:
        return route.authenticated and route.method in WITH_BODY

    async def __call__(self, request: Request, next: Next) -> web.StreamResponse:
        http = request.http
        if not http.body_exists:
            return await next(request)
        if http.headers.get(hdrs.EXPECT, CONTINUE).lower() != CONTINUE:
            refusal = BadRequest("The Expect header may only say 100-continue; leave it out.")
            return respond_error(refusal, status=417)
        if not request.route.streams:
            request.check_length()
        if http.headers.get(hdrs.CONTENT_ENCODING, IDENTITY).lower() != IDENTITY:
            raise BadRequest("A request's body must not be compressed: leave out Content-Encoding.")
        if http.headers.get(hdrs.TRANSFER_ENCODING, CHUNKED).strip().lower() != CHUNKED:
            raise BadRequest(
                "The only Transfer-Encoding of a request's body is chunked; leave out the others."
            )
        try:
            return await next(request)
        finally:
            if request.memory is not None:
                await request.memory.aclose()
