"""Handlers of the explorer: the page at `/` for browsers, that at `/docs`, and the files that they name.

The page runs scripts of this server alone and talks to no other (Content Security Policy Level 3). It has no rights
of its own: it asks for data as any client does, with what a person typed into it.

Handlers of the sign-in at an issuer: what a page asks before it sends somebody there, and afterwards.

The built files of the explorer, as the package has them: compressed, with names that change with their content.
"""

from __future__ import annotations

import gzip
import re
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files

from aiohttp import hdrs, web

from hsparse.errors import BadRequest, NotFound, Unauthenticated
from hsparse.openid.code_flow import CodeFlow, CodeGrant, IssuedTokens
from hsparse.sn.coding import Coding, accepted_coding
from hsparse.sn.http.challenge import is_known
from hsparse.sn.http.request import named_types, read_json
from hsparse.sn.http.response import respond, respond_computed
from hsparse.sn.request import Request

MAX_CODE = 8192
MAX_URL = 2048
VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}", re.ASCII)


async def get_sign_in_client(request: Request) -> web.StreamResponse:
    """`GET /sign-in/client`: the issuer, where it signs people in, and as which client."""
    flow = _flow(request)
    async with request.without_place():
        found = await flow.description()
    return respond(found)


async def post_sign_in_token(request: Request) -> web.StreamResponse:
    """`POST /sign-in/token`: a token for the code of an issuer, and whom this server takes its bearer for."""
    flow = _flow(request)
    grant = read_grant(await read_json(request))
    async with request.without_place():
        tokens = await flow.exchange(grant)
    token, name = await _accepted(request, tokens)
    answer = respond({"token": token, "username": name})
    answer.headers[hdrs.CACHE_CONTROL] = "no-store"
    return answer


def read_grant(body: object) -> CodeGrant:
    """Return the grant in a body; `BadRequest` names what is wrong, without what is in it."""
    members = body if isinstance(body, dict) else {}
    code = _text(members, "code", MAX_CODE)
    redirect_uri = _text(members, "redirect_uri", MAX_URL)
    return CodeGrant(code, _random_text(members, "verifier"), _random_text(members, "nonce"), redirect_uri)


def _random_text(members: dict[str, object], name: str) -> str:
    """Return a verifier, or a nonce, which is made in the same way (RFC 7636, section 4.1)."""
    value = _text(members, name, 128)
    if not VERIFIER.fullmatch(value):
        raise BadRequest(f"{name} must have 43 to 128 letters, digits, and -._~ (RFC 7636, section 4.1).")
    return value


def _text(members: dict[str, object], name: str, most: int) -> str:
    value = members.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= most:
        raise BadRequest(f"{name} must be a text of 1 to {most} characters.")
    return value


async def _accepted(request: Request, tokens: IssuedTokens) -> tuple[str, str]:
    """Return the token that signs in here, and the user's name.

    It is the one for access; that of identity where the issuer gives none that a server can check.
    """
    authenticator = request.service.authenticator
    try:
        return tokens.access, (await authenticator.principal(f"Bearer {tokens.access}")).name
    except Unauthenticated as refused:
        try:
            return tokens.identity, (await authenticator.principal(f"Bearer {tokens.identity}")).name
        except Unauthenticated:
            raise refused from None


def _flow(request: Request) -> CodeFlow:
    flow = request.service.code_flow
    if flow is None:
        raise NotFound("This server signs nobody in at an issuer: its operator may set --oidc-client-id.")
    return flow


PAGE = "index.html"
DOCS = "docs.html"
SIGN_IN = "sign-in.html"
NAMED = frozenset({PAGE, DOCS, SIGN_IN, "licences.txt", "sources.txt"})
"""Files whose names stay when their content changes; the digest of the sources is among them."""
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
    """A built file: its media type, its bytes as gzip, and their etag."""

    media: str
    compressed: bytes
    etag: str

    def body(self) -> bytes:
        """Return the bytes of the file, for clients that do not accept gzip."""
        return gzip.decompress(self.compressed)


@cache
def static_files() -> dict[str, StaticFile]:
    """Return the files by name. The package has all of them; they are about a megabyte."""
    found = {}
    for entry in (files("hsparse.explorer") / "static").iterdir():
        name = entry.name.removesuffix(SUFFIX)
        media = TYPES.get("." + name.rpartition(".")[2])
        if entry.name.endswith(SUFFIX) and media is not None:
            data = entry.read_bytes()
            found[name] = StaticFile(media, data, sha256(data).hexdigest()[:32])
    return found


def static_file(name: str) -> StaticFile:
    """Return a file; `NotFound` if the explorer has none of that name, as after an update of the server."""
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
"""For files whose names change with their content."""
ALWAYS_ASK = "no-cache"


def wants_explorer(request: Request) -> bool:
    """Say whether a browser asks for `/`: programs do not name HTML in `Accept`."""
    return HTML in named_types(request.http.headers.get(hdrs.ACCEPT, ""))


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
        work = len(file.compressed)
        return await respond_computed(work, lambda: web.Response(body=file.body(), headers=headers))
    return web.Response(body=file.compressed, headers=headers | {hdrs.CONTENT_ENCODING: Coding.GZIP.value})
