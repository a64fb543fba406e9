"""The media types of values. A new medium is one module beside the others and one row here."""

from __future__ import annotations

from aiohttp import hdrs, web

from hsparse.sn.http.request import named_types
from hsparse.sn.values.media.arrow import ARROW
from hsparse.sn.values.media.binary import BINARY
from hsparse.sn.values.media.json import JSON
from hsparse.sn.values.media.medium import Medium

MEDIA: dict[str, Medium] = {medium.name: medium for medium in (JSON, BINARY, ARROW)}


def accepted_medium(request: web.BaseRequest) -> Medium:
    """Return the medium for the answer: the first one that `Accept` names, else JSON."""
    return _first_named(request.headers.get(hdrs.ACCEPT, ""))


def body_medium(request: web.BaseRequest) -> Medium:
    """Return the medium of the body: JSON without `Content-Type`, which stock clients leave out."""
    return _first_named(request.headers.get(hdrs.CONTENT_TYPE, ""))


def _first_named(header: str) -> Medium:
    found = MEDIA.get(header)  # most headers are one name
    return found or next((MEDIA[name] for name in named_types(header) if name in MEDIA), JSON)
