"""Handlers of the explorer: the page at `/` for browsers, that at `/docs`, and the files that they name.

The page runs scripts of this server alone and talks to no other (Content Security Policy Level 3). It has no rights
of its own: it asks for data as any client does, with what a person typed into it.
"""

from __future__ import annotations

import asyncio

from aiohttp import hdrs, web

from hsparse.sn.coding import Coding, accepted_coding
from hsparse.sn.explorer.static_files import DOCS, NAMED, PAGE, SIGN_IN, StaticFile, static_file
from hsparse.sn.http.challenge import is_known
from hsparse.sn.http.request import named_types
from hsparse.sn.request import Request

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
"""For files whose names change with their content."""
ALWAYS_ASK = "no-cache"


def wants_explorer(request: Request) -> bool:
    """Say whether a browser asks for `/`: programs do not name HTML in `Accept`."""
    return HTML in named_types(request.http, hdrs.ACCEPT)


async def get_explorer(request: Request) -> web.StreamResponse:
    """Answer with the page, which names the files of this version."""
    return await _respond(request, static_file(PAGE), ALWAYS_ASK)


async def get_docs(request: Request) -> web.StreamResponse:
    """Answer with the page that shows the OpenAPI document."""
    return await _respond(request, static_file(DOCS), ALWAYS_ASK)


async def get_sign_in(request: Request) -> web.StreamResponse:
    """Answer with the page to which an issuer sends people back; its script reads what the issuer says in the URL."""
    return await _respond(request, static_file(SIGN_IN), ALWAYS_ASK)


async def get_explorer_file(request: Request) -> web.StreamResponse:
    """`GET /explorer/{file}`: a file that the page names."""
    name = request.params["file"]
    return await _respond(request, static_file(name), ALWAYS_ASK if name in NAMED else YEAR)


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
        return web.Response(body=await asyncio.to_thread(file.body), headers=headers)
    return web.Response(body=file.compressed, headers=headers | {hdrs.CONTENT_ENCODING: Coding.GZIP.value})
