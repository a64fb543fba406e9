"""Which of the three media types a request sends or asks for."""

from __future__ import annotations

from enum import StrEnum

from aiohttp import hdrs, web


class Media(StrEnum):
    """A media type of values."""

    JSON = "application/json"
    BINARY = "application/octet-stream"
    ARROW = "application/vnd.apache.arrow.stream"


NAMES = {media.value: media for media in Media}


def accepted(request: web.Request) -> Media:
    """Return what the request asks for: the first of the three that `Accept` names, else JSON."""
    return _first(request.headers.get(hdrs.ACCEPT, ""))


def sent(request: web.Request) -> Media:
    """Return what the body is: JSON when `Content-Type` is missing, as stock clients leave it out."""
    return _first(request.headers.get(hdrs.CONTENT_TYPE, ""))


def _first(header: str) -> Media:
    for item in header.lower().split(","):
        name = item.partition(";")[0].strip()
        if name in NAMES:
            return NAMES[name]
    return Media.JSON
