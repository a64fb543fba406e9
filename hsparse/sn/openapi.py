"""Handler of `/openapi.json`: the OpenAPI document, which the page at `/docs` shows."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import orjson
import yaml
from aiohttp import web

from hsparse.compute import LONG
from hsparse.sn.http.response import respond_computed
from hsparse.sn.request import Request

PATH = Path(__file__).with_name("openapi.yaml")


@cache
def specification() -> dict[str, Any]:
    """Return the OpenAPI document (version 3.1), cached; it must not be modified."""
    found: dict[str, Any] = yaml.load(PATH.read_bytes(), Loader=yaml.CSafeLoader)
    return found


@cache
def _json() -> bytes:
    return orjson.dumps(specification())


async def get_openapi(request: Request) -> web.StreamResponse:
    """Answer with the OpenAPI document."""
    return await respond_computed(LONG, lambda: web.Response(body=_json(), content_type="application/json"))
