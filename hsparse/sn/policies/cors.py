"""Cross-origin resource sharing (Fetch standard): which pages of other origins may read answers.

The answer to a request without `Origin` grants no permission. Images and simple requests of any page send no `Origin`,
and with the browser's credentials they can bring answers into the browser's cache.
"""

from __future__ import annotations

from aiohttp import hdrs, web

from hsparse.sn.policies.policy import Next
from hsparse.sn.request import Request
from hsparse.sn.route import Route

ANY = "*"
METHODS = ("GET", "HEAD", "POST", "DELETE", "PUT", "OPTIONS")
HEADERS = (
    "Authorization, Content-Type, Accept, Range, If-Range, If-Match, If-None-Match, X-Hdf-domain, X-Hdf-bucket, "
    "X-Request-ID, Request-Timeout"
)
EXPOSED = (
    "Retry-After, WWW-Authenticate, ETag, Accept-Ranges, Content-Range, X-Hdf-filter-mask, X-Hdf-section-size, "
    "X-Hdf-section-unfiltered-size, X-Hdf-marker, X-Request-ID"
)
MAX_AGE = "86400"
FOR_ANY: dict[str, str] = {hdrs.ACCESS_CONTROL_ALLOW_ORIGIN: ANY, hdrs.ACCESS_CONTROL_EXPOSE_HEADERS: EXPOSED}


class Cors:
    """Cross-origin resource sharing: lets pages of `origins` read answers; `*` allows any origin, without cookies."""

    def __init__(self, origins: tuple[str, ...]) -> None:
        self._any = ANY in origins
        self._origins = frozenset(origin.rstrip("/") for origin in origins)

    def applies(self, route: Route) -> bool:
        return bool(self._origins)

    async def __call__(self, request: Request, next: Next) -> web.StreamResponse:
        origin = request.http.headers.get(hdrs.ORIGIN)
        if origin is None:
            return await next(request)
        allowed = self.headers(origin)
        request.headers.update(allowed)
        if allowed and request.http.method == hdrs.METH_OPTIONS:
            request.headers.update(_preflight(request.http))
        return await next(request)

    def headers(self, origin: str) -> dict[str, str]:
        """Return the CORS headers of an answer to a page of `origin`, or {} if that page may not read the answer."""
        if self._any:
            return FOR_ANY
        if origin not in self._origins:
            return {}
        return {
            hdrs.ACCESS_CONTROL_ALLOW_ORIGIN: origin,
            hdrs.ACCESS_CONTROL_ALLOW_CREDENTIALS: "true",
            hdrs.ACCESS_CONTROL_EXPOSE_HEADERS: EXPOSED,
        }


def _preflight(http: web.BaseRequest) -> dict[str, str]:
    """Return the headers of a preflight's answer. They allow the requested method, or all methods if it is unknown.

    The request that follows the preflight is authenticated as usual.
    """
    asked = http.headers.get(hdrs.ACCESS_CONTROL_REQUEST_METHOD, "")
    return {
        hdrs.ACCESS_CONTROL_ALLOW_METHODS: asked if asked in METHODS else ", ".join(METHODS),
        hdrs.ACCESS_CONTROL_ALLOW_HEADERS: HEADERS,
        hdrs.ACCESS_CONTROL_MAX_AGE: MAX_AGE,
    }
