"""A server with users refuses changes that a page of another site can send without being allowed to.

A browser adds the name and password that it keeps for a server to forms and plain requests of any page. It asks first
whether a page may send anything else: other methods, headers of its own, other media types (a preflight, Fetch
standard, section 4.8). Bodies are JSON here whatever their media type, so a form could be one.
"""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import hdrs, web

from hsparse.errors import Forbidden
from hsparse.sn.http.error_middleware import AioHandler
from hsparse.sn.http.page_guard import FETCH_SITE, OWN_SITES, named_origins, own_origins

READING = frozenset({hdrs.METH_GET, hdrs.METH_HEAD, hdrs.METH_OPTIONS})
SIMPLE_MEDIA = frozenset({"application/x-www-form-urlencoded", "multipart/form-data", "text/plain"})
"""Media types that a page may send without a preflight (Fetch standard, section 2.2.2)."""


class FormGuard:
    """Refuses what a form of a page sends whose origin is not in `origins`; `*` names no origin.

    Programs send neither `Origin` nor `Sec-Fetch-Site`, and are not asked for a media type.
    """

    def __init__(self, origins: tuple[str, ...]) -> None:
        self._origins = named_origins(origins)

    @web.middleware
    async def middleware(self, request: web.Request, handler: AioHandler) -> web.StreamResponse:
        """Answer with `handler`, or raise `Forbidden`."""
        self.check(request.method, request.headers)
        return await handler(request)

    def check(self, method: str, headers: Mapping[str, str]) -> None:
        """Raise `Forbidden` for a request that changes something, needs no preflight, and is a foreign page's."""
        if method in READING or not self._is_foreign(headers):
            return
        media = headers.get(hdrs.CONTENT_TYPE, "").partition(";")[0].strip().lower()
        # Other methods than POST have a preflight, so these may go without a body.
        if media in SIMPLE_MEDIA or (not media and method == hdrs.METH_POST):
            raise Forbidden(
                "A page of another site sends this as a form does, which needs no permission: send it as "
                "application/json or application/octet-stream, or name the page's origin in --cors-origins."
            )

    def _is_foreign(self, headers: Mapping[str, str]) -> bool:
        """Say whether a page sends it that is neither this server's nor of an origin with a name in the settings."""
        origin, site = headers.get(hdrs.ORIGIN), headers.get(FETCH_SITE)
        if origin in self._origins:
            return False
        if site is not None:
            return site not in OWN_SITES  # true behind a proxy, too, which may have changed Host
        return origin is not None and origin not in own_origins(headers.get(hdrs.HOST))
