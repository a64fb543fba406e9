"""Cross-origin resource sharing: which pages in browsers may read answers (Fetch standard).

A request without `Origin` is answered without permission for anybody. An image or a plain request of any page brings
such an answer into the browser's cache, with what the credentials that the browser keeps may read.
"""

from __future__ import annotations

from aiohttp import hdrs, web

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
VARYING: dict[str, str] = {hdrs.VARY: hdrs.ORIGIN}
"""Of every answer: a cache must not give one origin another's, nor a page what was answered to none."""


class Cors:
    """The headers that let pages of `origins` read answers; `*` is any origin, without cookies."""

    def __init__(self, origins: tuple[str, ...]) -> None:
        self._any = ANY in origins
        self._origins = frozenset(origin.rstrip("/") for origin in origins)

    def headers(self, origin: str | None) -> dict[str, str]:
        """Return the headers of an answer to a page of `origin`, None without a page."""
        if origin is None:
            return {}
        if self._any:
            return FOR_ANY
        if origin not in self._origins:
            return {}
        return {
            hdrs.ACCESS_CONTROL_ALLOW_ORIGIN: origin,
            hdrs.ACCESS_CONTROL_ALLOW_CREDENTIALS: "true",
            hdrs.ACCESS_CONTROL_EXPOSE_HEADERS: EXPOSED,
        }

    def add(self, request: web.BaseRequest, response: web.StreamResponse) -> None:
        """Add the headers to an answer."""
        response.headers.update(self.headers(request.headers.get(hdrs.ORIGIN)))
        response.headers.extend(VARYING)

    async def preflight(self, request: web.Request) -> web.Response:
        """Answer a preflight: with the method that it asks for or, if no route has it, with all methods.

        The request that follows is authenticated as usual.
        """
        asked = request.headers.get(hdrs.ACCESS_CONTROL_REQUEST_METHOD, "")
        return web.Response(
            headers={
                hdrs.ACCESS_CONTROL_ALLOW_METHODS: asked if asked in METHODS else ", ".join(METHODS),
                hdrs.ACCESS_CONTROL_ALLOW_HEADERS: HEADERS,
                hdrs.ACCESS_CONTROL_MAX_AGE: MAX_AGE,
            }
            if self.headers(request.headers.get(hdrs.ORIGIN))
            else {}
        )
