"""A server without users answers programs of its machine, not the pages that are open in a browser there.

A page of any site can send requests to a loopback address, and after its name is bound to that address (DNS rebinding)
it can read the answers. It cannot hide its name: browsers send `Host` (RFC 9110, section 7.2) and, with everything but
plain navigation and embedded resources, `Origin` (Fetch standard, section 3.2).
"""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

from aiohttp import hdrs, web

from hsparse.errors import Forbidden
from hsparse.sn.http.cors import ANY
from hsparse.sn.http.error_middleware import AioHandler

LOCAL = "localhost"
FETCH_SITE = "Sec-Fetch-Site"
"""How the site of the page that asks is related to this one: `same-origin`, `same-site`, `cross-site` or `none`."""


def named_origins(origins: tuple[str, ...]) -> frozenset[str]:
    """Return the origins of a setting that are named in it: `*` is not."""
    return frozenset(origin.rstrip("/") for origin in origins) - {ANY}


def own_origins(host: str | None) -> tuple[str, ...]:
    """Return the origins of pages of the server that is asked as `host`."""
    return () if host is None else (f"http://{host}", f"https://{host}")


class PageGuard:
    """Refuses requests to hosts other than loopback and `hosts`, and those of pages of origins not in `origins`.

    `*` in `origins` names no origin: without users, each has to be named.
    """

    def __init__(self, hosts: tuple[str, ...], origins: tuple[str, ...]) -> None:
        self._hosts = frozenset(host.lower() for host in hosts)
        self._origins = named_origins(origins)

    @web.middleware
    async def middleware(self, request: web.Request, handler: AioHandler) -> web.StreamResponse:
        """Answer with `handler`, or raise `Forbidden`."""
        self.check(request.headers.get(hdrs.HOST), request.headers.get(hdrs.ORIGIN), request.method)
        return await handler(request)

    def check(self, host: str | None, origin: str | None, method: str) -> None:
        """Raise `Forbidden` for a host or a page's origin that is not this server's own."""
        if host is not None and not self._is_ours(host):
            raise Forbidden(
                f"This server has no users and answers as localhost, not as {host:.100}: set up users, or name the "
                "host in --allowed-hosts."
            )
        if origin is None or method == hdrs.METH_OPTIONS or origin in self._origins:
            return
        if origin not in own_origins(host):
            raise Forbidden(
                f"This server has no users and answers no pages of {origin:.100}: set up users, or name the origin in "
                "--cors-origins."
            )

    def _is_ours(self, host: str) -> bool:
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
