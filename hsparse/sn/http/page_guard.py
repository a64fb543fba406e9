"""A server without users answers programs of its machine, not the pages that are open in a browser there.

A page of any site can send requests to a loopback address, and after its name is bound to that address (DNS rebinding)
it can read the answers. It cannot hide its name: browsers send `Host` (RFC 9110, section 7.2) and, with everything but
plain navigation and embedded resources, `Origin` (Fetch standard, section 3.2). Embedded resources have
`Sec-Fetch-Site` where the server's address is a loopback one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

from aiohttp import hdrs, web

from hsparse.errors import Forbidden
from hsparse.sn.http.challenge import FETCH_MODE, NAVIGATE
from hsparse.sn.http.cors import ANY
from hsparse.sn.http.error_middleware import AioHandler

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


class PageGuard:
    """Refuses requests to hosts other than loopback and `hosts`, and those of pages of origins not in `origins`.

    Links from anywhere may be followed. `*` in `origins` names no origin: without users, each has to be named.
    """

    def __init__(self, hosts: tuple[str, ...], origins: tuple[str, ...]) -> None:
        self._hosts = frozenset(host.lower() for host in hosts)
        self._origins = named_origins(origins)
        self._is_ours = lru_cache(HOSTS)(self._names_us)

    @web.middleware
    async def middleware(self, request: web.Request, handler: AioHandler) -> web.StreamResponse:
        """Answer with `handler`, or raise `Forbidden`."""
        self.check(request.method, request.headers)
        return await handler(request)

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
