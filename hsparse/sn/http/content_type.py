"""Media types by name, and those that a request's headers name."""

from __future__ import annotations

from collections.abc import Iterator

from aiohttp import hdrs, web

JSON = "application/json"
BINARY = "application/octet-stream"
ARROW = "application/vnd.apache.arrow.stream"


def named_types(request: web.Request, header: str) -> Iterator[str]:
    """Yield the media types that a header names, in its order, without their parameters."""
    for item in request.headers.get(header, "").lower().split(","):
        yield item.partition(";")[0].strip()


def accepts_binary(request: web.Request) -> bool:
    """Say whether `Accept` names bytes before the other forms in which values can be answered."""
    known = (JSON, BINARY, ARROW)
    return next((name for name in named_types(request, hdrs.ACCEPT) if name in known), JSON) == BINARY
