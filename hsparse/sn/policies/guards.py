"""Protection against web pages of other sites: which pages in browsers may send requests.

A server without users answers programs on its machine, but not pages that are open in a browser there. A page of any
site can send requests to a loopback address, and after its name is bound to that address (DNS rebinding) it can read
the answers. The page cannot hide its name: browsers send `Host` (RFC 9110, section 7.2) and, except for plain
navigation and embedded resources, `Origin` (Fetch standard, section 3.2). Requests for embedded resources have
`Sec-Fetch-Site` if the server's address is a loopback address.

A server with users refuses changes that a page of another site can send without permission. A browser adds the name and
password that it keeps for a server to forms and simple requests of any page. For other requests (other methods, custom
headers, other media types) it first asks for permission (a preflight, Fetch standard, section 4.8). This server parses
bodies as JSON whatever their media type, so a form could contain a valid body.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

from aiohttp import hdrs, web

from hsparse.errors import Forbidden
from hsparse.sn.http.challenge import FETCH_MODE, NAVIGATE
from hsparse.sn.policies.cors import ANY
from hsparse.sn.policies.policy import Next
from hsparse.sn.request import Request
from hsparse.sn.route import Route

LOCAL = "localhost"
FETCH_SITE = "Sec-Fetch-Site"
"""The relation of the requesting page's site to the server's: `same-origin`, `same-site`, `cross-site` or `none`."""
OWN_SITES = frozenset({"same-origin", "none"})
"""The values of `Sec-Fetch-Site` for the server's own pages, and for requests that no page caused."""
MAX_CACHED_HOSTS = 256
"""The maximum number of values of `Host` whose decisions are cached."""


def named_origins(origins: tuple[str, ...]) -> frozenset[str]:
    """Return the origins in the setting `cors_origins`, without `*`."""
    return frozenset(origin.rstrip("/") for origin in origins) - {ANY}


def own_origins(host: str | None) -> tuple[str, ...]:
    """Return the origins of the server's own pages, given the header `Host` of a request."""
    return () if host is None else (f"http://{host}", f"https://{host}")


READING = frozenset({hdrs.METH_GET, hdrs.METH_HEAD, hdrs.METH_OPTIONS})
SIMPLE_MEDIA = frozenset({"application/x-www-form-urlencoded", "multipart/form-data", "text/plain"})
"""Media types that a page may send without a preflight (Fetch standard, section 2.2.2)."""


class PageGuard:
    """Refuses requests to hosts other than loopback and `hosts`, and requests from pages of origins not in `origins`.

    Navigation by links from any page is allowed. `*` in `origins` is ignored: without users, each origin must be named.
    """

    def __init__(self, hosts: tuple[str, ...], origins: tuple[str, ...]) -> None:
        self._hosts = frozenset(host.lower() for host in hosts)
        self._origins = named_origins(origins)
        self._is_ours = lru_cache(MAX_CACHED_HOSTS)(self._names_us)

    def applies(self, route: Route) -> bool:
        return True

    async def __call__(self, request: Request, next: Next) -> web.StreamResponse:
        self.check(request.http.method, request.http.headers)
        return await next(request)

    def check(self, method: str, headers: Mapping[str, str]) -> None:
        """Raise `Forbidden` if the host is not allowed, or if a page of a site not in `origins` sent the request."""
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
                "This server has no users and refuses to be embedded in pages of other sites: set up users, or request "
                "it by a script of a page whose origin is in --cors-origins."
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
    """Refuses changes that a form of a foreign page can send; pages of `origins` are not foreign, `*` is ignored.

    Programs send neither `Origin` nor `Sec-Fetch-Site`, so their requests need no particular media type.
    """

    def __init__(self, origins: tuple[str, ...]) -> None:
        self._origins = named_origins(origins)

    def applies(self, route: Route) -> bool:
        return route.method not in READING

    async def __call__(self, request: Request, next: Next) -> web.StreamResponse:
        self.check(request.http.method, request.http.headers)
        return await next(request)

    def check(self, method: str, headers: Mapping[str, str]) -> None:
        """Raise `Forbidden` if a foreign page sends a request that changes something and needs no preflight."""
        if method in READING or not self._is_foreign(headers):
            return
        media = headers.get(hdrs.CONTENT_TYPE, "").partition(";")[0].strip().lower()
        # Methods other than POST need a preflight, so they are allowed without a body.
        if media in SIMPLE_MEDIA or (not media and method == hdrs.METH_POST):
            raise Forbidden(
                "A page of another site sent this request without a preflight, as forms do: send it as "
                "application/json or application/octet-stream, or name the page's origin in --cors-origins."
            )

    def _is_foreign(self, headers: Mapping[str, str]) -> bool:
        """Return whether the request comes from a page that is neither this server's nor of an origin in `origins`."""
        origin, site = headers.get(hdrs.ORIGIN), headers.get(FETCH_SITE)
        if origin in self._origins:
            return False
        if site is not None:
            return site not in OWN_SITES  # unlike Origin, correct even behind a proxy that changes Host
        return origin is not None and origin not in own_origins(headers.get(hdrs.HOST))
