"""Handlers of the explorer: the pages at `/` and `/docs`, and the files that they use.

A page runs only scripts of this server and contacts no other server (Content Security Policy Level 3). It has no own
rights: it requests data as any client does, with the credentials that the user typed into it.

The package contains the explorer's built files, compressed, under names that change with their content.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files

from aiohttp import hdrs, web

from hsparse.api import (
    AccessPolicy,
    Clock,
    Coding,
    Next,
    NotFound,
    Parts,
    Request,
    Right,
    Route,
    Settings,
    accepted_coding,
    is_known,
    named_types,
    respond,
    respond_computed,
    usable_rights,
)

PAGE = "index.html"
DOCS = "docs.html"
SIGN_IN = "sign-in.html"
NAMED = frozenset({PAGE, DOCS, SIGN_IN, "licences.txt", "sources.txt"})
"""Files whose names do not change with their content; `sources.txt` has the digest of the sources."""
SUFFIX = ".gz"
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A built file: its media type, its gzipped bytes, and their etag."""

    media: str
    compressed: bytes
    etag: str

    def body(self) -> bytes:
        """Return the uncompressed bytes, for clients that do not accept gzip."""
        return gzip.decompress(self.compressed)


@cache
def static_files() -> dict[str, StaticFile]:
    """Return all files by name, read from the package once; all files have about 1 MB."""
    found = {}
    for entry in (files("hsparse.explorer") / "static").iterdir():
        name = entry.name.removesuffix(SUFFIX)
        media = TYPES.get("." + name.rpartition(".")[2])
        if entry.name.endswith(SUFFIX) and media is not None:
            data = entry.read_bytes()
            found[name] = StaticFile(media, data, sha256(data).hexdigest()[:32])
    return found


def static_file(name: str) -> StaticFile:
    """Return a file; raise `NotFound` for unknown names, for example after an update of the server."""
    found = static_files().get(name)
    if found is None:
        raise NotFound(f"The explorer has no file {name[:80]!r}: load the page / again.")
    return found


HTML = "text/html"
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Headers of every file of the explorer."""
YEAR = "public, max-age=31536000, immutable"
"""`Cache-Control` of files whose names change with their content."""
ALWAYS_ASK = "no-cache"


def wants_explorer(request: Request) -> bool:
    """Return whether a browser requests `/`; programs do not name HTML in `Accept`."""
    return HTML in named_types(request.http.headers.get(hdrs.ACCEPT, ""))


async def get_explorer(request: Request) -> web.StreamResponse:
    """Answer with the explorer's page, which names the files of this version."""
    return await _respond(request, static_file(PAGE), ALWAYS_ASK)


async def get_docs(request: Request) -> web.StreamResponse:
    """Answer with the page that shows the OpenAPI document."""
    return await _respond(request, static_file(DOCS), ALWAYS_ASK)


async def get_sign_in(request: Request) -> web.StreamResponse:
    """Answer with the page to which an issuer redirects users; its script reads the issuer's answer from the URL."""
    return await _respond(request, static_file(SIGN_IN), ALWAYS_ASK)


async def get_explorer_file(request: Request) -> web.StreamResponse:
    """`GET /explorer/{file}`: answer with a file that a page uses."""
    name = request.params["file"]
    return await _respond(request, static_file(name), ALWAYS_ASK if name in NAMED else YEAR)


async def get_rights(request: Request) -> web.StreamResponse:
    """Answer with the caller's rights in a domain or folder, so that a page offers only permitted actions.

    Rights to change data are omitted where nobody can change data: on a read-only server, in HDF5 files that are served
    in place, and in snapshots.
    """
    return respond({"rights": usable_rights(request, request.domain)})


async def _respond(request: Request, file: StaticFile, caching: str) -> web.StreamResponse:
    http = request.http
    is_plain = accepted_coding(http.headers.get(hdrs.ACCEPT_ENCODING, ""), (Coding.GZIP,)) is None
    etag = f"{file.etag}-plain" if is_plain else file.etag
    headers = HEADERS | {
        hdrs.CACHE_CONTROL: caching,
        hdrs.ETAG: f'"{etag}"',
        hdrs.VARY: f"{hdrs.ACCEPT}, {hdrs.ACCEPT_ENCODING}",
    }
    if is_known(http.headers, etag):
        return web.Response(status=304, headers=headers)
    headers[hdrs.CONTENT_TYPE] = file.media
    if is_plain:
        work = len(file.compressed)
        return await respond_computed(work, lambda: web.Response(body=file.body(), headers=headers))
    return web.Response(body=file.compressed, headers=headers | {hdrs.CONTENT_ENCODING: Coding.GZIP.value})


class ExplorerPolicy:
    """Answers a browser's request for `/` without a domain with the explorer's page."""

    def applies(self, route: Route) -> bool:
        return route.method == "GET" and route.path == "/"

    async def __call__(self, request: Request, next: Next) -> web.StreamResponse:
        if request.domain_path is None and wants_explorer(request):
            return await get_explorer(request)
        return await next(request)


ROUTES = (
    Route("GET", "/docs", get_docs, None),
    Route("GET", "/explorer/rights", get_rights, Right.READ),
    Route("GET", "/explorer/{file}", get_explorer_file, None),
    Route("GET", "/sign-in", get_sign_in, None),
)


def parts(settings: Settings, clock: Clock) -> Parts:
    """Return the routes and the policy of the explorer."""
    return Parts(ROUTES, ((AccessPolicy, ExplorerPolicy()),))
