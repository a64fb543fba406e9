"""The media types of values. A new one is a module beside the others and one row here.

Tests: tests/sn/values/media/test_registry.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiohttp import hdrs, web

from hsparse.sn.http.request import named_types
from hsparse.sn.values.media.arrow import ARROW
from hsparse.sn.values.media.binary import BINARY
from hsparse.sn.values.media.json import JSON
from hsparse.sn.values.media.medium import Medium

MEDIA: dict[str, Medium] = {medium.name: medium for medium in (JSON, BINARY, ARROW)}


def accepted(request: web.Request) -> Medium:
    """Return what a request asks for: the first medium that `Accept` names, else JSON."""
    return _first(request, hdrs.ACCEPT)


def sent(request: web.Request) -> Medium:
    """Return what a body is: JSON when `Content-Type` is missing, as stock clients leave it out."""
    return _first(request, hdrs.CONTENT_TYPE)


def _first(request: web.Request, header: str) -> Medium:
    return next((MEDIA[name] for name in named_types(request, header) if name in MEDIA), JSON)


def answering(request: web.Request, operation: str) -> Callable[..., Any]:
    """Return how a request is answered: by the medium it asks for, or in JSON where that has no such form.

    `operation` is the name of a field of `Medium`.
    """
    found: Callable[..., Any] = getattr(accepted(request), operation) or getattr(JSON, operation)
    return found
