"""Who may keep an answer: caches of browsers and proxies (RFC 9111)."""

from __future__ import annotations

from aiohttp import hdrs, web

UNKEPT = "private, no-store"
ASK_AGAIN = "private, no-cache"
"""For answers with an etag: the user's own cache may keep them, and asks whether they are still valid."""


def keep_private(request: web.BaseRequest, response: web.StreamResponse) -> None:
    """Keep an answer to a request with credentials from caches, unless the answer has rules of its own."""
    if hdrs.AUTHORIZATION in request.headers and hdrs.CACHE_CONTROL not in response.headers:
        response.headers[hdrs.CACHE_CONTROL] = ASK_AGAIN if hdrs.ETAG in response.headers else UNKEPT
