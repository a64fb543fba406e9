"""Who is asked to sign in, and how: the `WWW-Authenticate` of answers (RFC 9110, section 11.6.1).

A browser shows its own window for a password when it meets a `Basic` challenge. That is right for a page that a person
opens, and wrong for a script of a page, which shows a form of its own.

Byte ranges and conditional requests: RFC 9110, sections 13 and 14.

The header `Idempotency-Key`: a client's name for a change, under which it may send that again.

It is as in draft-ietf-httpapi-idempotency-key-header: a string of RFC 8941, section 3.3.3, in quotation marks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

from aiohttp import hdrs, web

from hsparse.errors import BadRequest
from hsparse.sn.http.request import named_types

FETCH_MODE = "Sec-Fetch-Mode"
NAVIGATE = "navigate"
REQUESTED_WITH = "X-Requested-With"
HTML = "text/html"
BASIC = "Basic "
UNKNOWN_BASIC = "xBasic "
"""The scheme's name for scripts: no browser knows it, so none shows a window."""


def is_page(request: web.BaseRequest) -> bool:
    """Say whether a person opens the URL in a browser.

    Browsers send `Sec-Fetch-Mode` to HTTPS and to this machine; elsewhere only pages are asked for as HTML.
    """
    mode = request.headers.get(FETCH_MODE)
    if mode is not None:
        return mode == NAVIGATE
    return HTML in named_types(request.headers.get(hdrs.ACCEPT, "")) and not _is_script(request)


def _is_script(request: web.BaseRequest) -> bool:
    """Say whether a script of a page sends the request."""
    mode = request.headers.get(FETCH_MODE)
    return (
        mode != NAVIGATE
        if mode is not None
        else hdrs.ORIGIN in request.headers or REQUESTED_WITH in request.headers
    )


def add_challenges(
    request: web.BaseRequest, response: web.StreamResponse, challenges: tuple[str, ...]
) -> None:
    """Add the challenges to a 401: for a script, `Basic` by a name that no browser knows."""
    for challenge in challenges:
        if _is_script(request) and challenge.startswith(BASIC):
            challenge = UNKNOWN_BASIC + challenge.removeprefix(BASIC)
        response.headers.add(hdrs.WWW_AUTHENTICATE, challenge)


def would_sign_in(request: web.BaseRequest, challenges: tuple[str, ...]) -> bool:
    """Say whether a sign-in helps with a 403: a person opened a page without credentials, and a window will ask."""
    asks = any(challenge.startswith(BASIC) for challenge in challenges)
    return asks and is_page(request) and hdrs.AUTHORIZATION not in request.headers


WEAK = "W/"
"""In front of an etag of answers that mean the same, but may differ in their bytes."""
ONE_RANGE = re.compile(r"\s*bytes\s*=\s*(\d{0,19})\s*-\s*(\d{0,19})\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class HttpRange:
    """The bytes from `start` to before `stop` of `size`; an empty file has no satisfiable range."""

    start: int
    stop: int
    size: int

    @property
    def content_range(self) -> str:
        """The value of the header Content-Range."""
        return f"bytes {self.start}-{self.stop - 1}/{self.size}"

    @property
    def satisfiable(self) -> bool:
        return self.start < self.stop


def requested_range(headers: Mapping[str, str], etag: str, size: int) -> HttpRange | None:
    """Return the range in a request for `size` bytes with `etag`, None for the whole.

    The whole is sent without a Range, for several ranges, for a malformed one, and if If-Range names another etag.
    """
    found = ONE_RANGE.fullmatch(headers.get(hdrs.RANGE, ""))
    if found is None or headers.get(hdrs.IF_RANGE, f'"{etag}"').strip() != f'"{etag}"':
        return None
    first, last = found.groups()
    if first:
        stop = min(size, int(last) + 1) if last else size
        # A last byte before the first one makes the header invalid, which is then ignored.
        return None if last and int(last) < int(first) else HttpRange(int(first), stop, size)
    return HttpRange(max(0, size - int(last)), size, size) if last else None


def matches_etag(header: str, etag: str) -> bool:
    """Say whether an If-Match names the etag, or any (`*`)."""
    names = [name.strip() for name in header.split(",")]
    return "*" in names or f'"{etag}"' in names


def is_known(headers: Mapping[str, str], etag: str) -> bool:
    """Say whether an If-None-Match names the etag, weak or strong (RFC 9110, section 13.1.2), or any."""
    header = headers.get(hdrs.IF_NONE_MATCH)
    return header is not None and matches_etag(header.replace(WEAK, ""), etag)


HEADER = "Idempotency-Key"
MAX_KEY = 255
"""The most characters of a key."""
STRING = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])+)"')
DIGEST_BYTES = 16


def idempotency_key(request: web.BaseRequest, user: str) -> str:
    """Return a digest of the user and the key in a request's header, empty without one.

    Keys of two users have nothing to do with each other. `BadRequest` for one that is no string, or too long.
    """
    values = request.headers.getall(HEADER, [])
    if not values:
        return ""
    match = STRING.fullmatch(values[0].strip(" \t")) if len(values) == 1 else None
    if match is None or len(match[1]) > MAX_KEY:
        raise BadRequest(
            f'{HEADER} must be one string of 1 to {MAX_KEY} ASCII characters in quotation marks, like "8e03978e-40d5".'
        )
    return sha256(f"{user}\0{match[1]}".encode()).digest()[:DIGEST_BYTES].hex()
