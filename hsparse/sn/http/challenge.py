"""HTTP headers: challenges, byte ranges, etags, and idempotency keys.

Challenges are the `WWW-Authenticate` headers of answers (RFC 9110, section 11.6.1). A browser shows its own password
window for a `Basic` challenge. The window is right for a page that a person opens, but not for a request of a script,
because the page has a form of its own.

Byte ranges and conditional requests follow RFC 9110, sections 13 and 14.

`Idempotency-Key` is a client's key for a change: a change that is sent again with the same key is applied once. Its
value is a quoted string of RFC 8941, section 3.3.3 (draft-ietf-httpapi-idempotency-key-header).
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
"""The name of the `Basic` scheme in answers to scripts: browsers do not know this name, so they show no window."""


def is_page(request: web.BaseRequest) -> bool:
    """Return whether a person opens the URL in a browser.

    Browsers send `Sec-Fetch-Mode` only over HTTPS and to loopback addresses. Without this header, the result is whether
    the request accepts HTML and is not sent by a script.
    """
    mode = request.headers.get(FETCH_MODE)
    if mode is not None:
        return mode == NAVIGATE
    return HTML in named_types(request.headers.get(hdrs.ACCEPT, "")) and not _is_script(request)


def _is_script(request: web.BaseRequest) -> bool:
    """Return whether a script of a page sends the request."""
    mode = request.headers.get(FETCH_MODE)
    return (
        mode != NAVIGATE
        if mode is not None
        else hdrs.ORIGIN in request.headers or REQUESTED_WITH in request.headers
    )


def add_challenges(
    request: web.BaseRequest, response: web.StreamResponse, challenges: tuple[str, ...]
) -> None:
    """Add the challenges to a 401; for a script, rename the `Basic` scheme so that browsers show no password window."""
    for challenge in challenges:
        if _is_script(request) and challenge.startswith(BASIC):
            challenge = UNKNOWN_BASIC + challenge.removeprefix(BASIC)
        response.headers.add(hdrs.WWW_AUTHENTICATE, challenge)


def would_sign_in(request: web.BaseRequest, challenges: tuple[str, ...]) -> bool:
    """Return whether to answer 401 instead of 403: if a person opens a page unauthenticated and Basic is supported."""
    asks = any(challenge.startswith(BASIC) for challenge in challenges)
    return asks and is_page(request) and hdrs.AUTHORIZATION not in request.headers


WEAK = "W/"
"""The prefix of a weak etag: answers with the same weak etag are equivalent, but their bytes may differ."""
ONE_RANGE = re.compile(r"\s*bytes\s*=\s*(\d{0,19})\s*-\s*(\d{0,19})\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class HttpRange:
    """The bytes from `start` to `stop` (exclusive) of `size` bytes; an empty file has no satisfiable range."""

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
    """Return the range that a request asks for, or None if it gets all `size` bytes; `etag` is the file's etag.

    The result is None without a Range, for several ranges, for a malformed range, and if If-Range names another etag.
    """
    found = ONE_RANGE.fullmatch(headers.get(hdrs.RANGE, ""))
    if found is None or headers.get(hdrs.IF_RANGE, f'"{etag}"').strip() != f'"{etag}"':
        return None
    first, last = found.groups()
    if first:
        stop = min(size, int(last) + 1) if last else size
        # A header whose last byte is before its first byte is invalid and ignored.
        return None if last and int(last) < int(first) else HttpRange(int(first), stop, size)
    return HttpRange(max(0, size - int(last)), size, size) if last else None


def matches_etag(header: str, etag: str) -> bool:
    """Return whether the value of an If-Match header names the etag or `*`."""
    names = [name.strip() for name in header.split(",")]
    return "*" in names or f'"{etag}"' in names


def is_known(headers: Mapping[str, str], etag: str) -> bool:
    """Return whether an If-None-Match header names `*` or the etag, weak or strong (RFC 9110, section 13.1.2)."""
    header = headers.get(hdrs.IF_NONE_MATCH)
    return header is not None and matches_etag(header.replace(WEAK, ""), etag)


HEADER = "Idempotency-Key"
MAX_KEY = 255
"""The maximum number of characters of an idempotency key."""
STRING = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])+)"')
DIGEST_BYTES = 16


def idempotency_key(request: web.BaseRequest, user: str) -> str:
    """Return a digest of the request's idempotency key and of `user`, or "" if the request has no key.

    Raises `BadRequest` if the key is no quoted string or is too long. The keys of different users never collide.
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
