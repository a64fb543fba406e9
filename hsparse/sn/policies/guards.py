"""Which pages in browsers may ask, and read answers.

A server without users answers programs of its machine, not the pages that are open in a browser there. A page of any
site can send requests to a loopback address, and after its name is bound to that address (DNS rebinding) it can read
the answers. It cannot hide its name: browsers send `Host` (RFC 9110, section 7.2) and, with everything but plain
navigation and embedded resources, `Origin` (Fetch standard, section 3.2). Embedded resources have `Sec-Fetch-Site`
where the server's address is a loopback one.

A server with users refuses changes that a page of another site can send without being allowed to. A browser adds the
name and password that it keeps for a server to forms and plain requests of any page. It asks first whether a page may
send anything else: other methods, headers of its own, other media types (a preflight, Fetch standard, section 4.8).
Bodies are JSON here whatever their media type, so a form could be one.

Who may read answers is cross-origin resource sharing (Fetch standard). A request without `Origin` is answered without
permission for anybody: an image or a plain request of any page brings such an answer into the browser's cache, with
what the credentials that the browser keeps may read.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

from aiohttp import hdrs, web

from hsparse.errors import Forbidden
from hsparse.sn.http.challenge import FETCH_MODE, NAVIGATE
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
LOCAL = "localhost"
FETCH_SITE = "Sec-Fetch-Site"
"""How the site of the page that asks is related to this one: `same-origin`, `same-site`, `cross-site` or `none`."""
OWN_SITES = frozenset({"same-origin", "none"})
"""Its values for a server's own pages, and for what no page asked for."""
HOSTS = 256
"""The most values of `Host` whose decisions are remembered."""


def named_origins(origins: tuple[str, ...]) -> frozenset[str]:
    """Return the origins of a setting that are named in it: `*` is not."""
    return frozenset(origin.rstrip("/") for origin in origins) - {ANY}


def own_origins(host: str | None) -> tuple[str, ...]:
    """Return the origins of pages of the server that is asked as `host`."""
    return () if host is None else (f"http://{host}", f"https://{host}")


READING = frozenset({hdrs.METH_GET, hdrs.METH_HEAD, hdrs.METH_OPTIONS})
SIMPLE_MEDIA = frozenset({"application/x-www-form-urlencoded", "multipart/form-data", "text/plain"})
"""Media types that a page may send without a preflight (Fetch standard, section 2.2.2)."""


class PageGuard:
    """Refuses requests to hosts other than loopback and `hosts`, and those of pages of origins not in `origins`.

    Links from anywhere may be followed. `*` in `origins` names no origin: without users, each has to be named.
    """

    def __init__(self, hosts: tuple[str, ...], origins: tuple[str, ...]) -> None:
        self._hosts = frozenset(host.lower() for host in hosts)
        self._origins = named_origins(origins)
        self._is_ours = lru_cache(HOSTS)(self._names_us)

    def applies(self, route: Route) -> bool:
        return True

    async def __call__(self, request: Request, next: Next) -> web.StreamResponse:
        self.check(request.http.method, request.http.headers)
        return await next(request)

    def check(self, method: str, headers: Mapping[str, str]) -> None:
        """Raise `Forbidden` for a host, or a page's origin or site, that is not this server's own."""
        host, origin = headers.get(hdrs.HOST), headers.get(hdrs.ORIGIN)
        if host is not None and not self._is_ours(host):
            raise Forbidden(
                f"This server has no users and answers as localhost, not as {host:.100}: set up users, or name the "
                "host in --allowed-hosts."
            )
        if method == hdrs.METH_OPTIONS or origin in self._origins:
            return
        if origin is not None and origin not in own_origins(host):
            raise Forbidden(
                f"This server has no users and answers no pages of {origin:.100}: set up users, or name the origin in "
                "--cors-origins."
            )
        if headers.get(FETCH_SITE, "none") not in OWN_SITES and headers.get(FETCH_MODE) != NAVIGATE:
            raise Forbidden(
                "This server has no users and is not embedded in pages of other sites: set up users, or let a page "
                "whose origin is in --cors-origins ask by a script."
            )

    def _names_us(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name == LOCAL or name.endswith(f".{LOCAL}") or name in self._hosts:
            return True
        try:
            return ip_address(name).is_loopback
        except ValueError:
            return False


class FormGuard:
    """Refuses what a form of a page sends whose origin is not in `origins`; `*` names no origin.

    Programs send neither `Origin` nor `Sec-Fetch-Site`, and are not asked for a media type.
    """

    def __init__(self, origins: tuple[str, ...]) -> None:
        self._origins = named_origins(origins)

    def applies(self, route: Route) -> bool:
        return route.method not in READING

    async def __call__(self, request: Request, next: Next) -> web.StreamResponse:
        self.check(request.http.method, request.http.headers)
        return await next(request)

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


class Cors:
    """Lets pages of `origins` read answers; `*` is any origin, without cookies."""

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
        """Return the headers of an answer to a page of `origin`."""
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
    """Return what a preflight is told: the method that it asks for or, if no route has it, all methods.

    The request that follows is authenticated as usual.
    """
    asked = http.headers.get(hdrs.ACCESS_CONTROL_REQUEST_METHOD, "")
    return {
        hdrs.ACCESS_CONTROL_ALLOW_METHODS: asked if asked in METHODS else ", ".join(METHODS),
        hdrs.ACCESS_CONTROL_ALLOW_HEADERS: HEADERS,
        hdrs.ACCESS_CONTROL_MAX_AGE: MAX_AGE,
    }
