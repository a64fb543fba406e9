"""What the server answers, told to programs and to people: `/openapi.json`, and `/docs`."""

from __future__ import annotations

import asyncio
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import yaml
from aiohttp import web

from hsparse.sn.context import Context
from hsparse.sn.docs_page import POLICY, docs_page

PATH = Path(__file__).with_name("openapi.yaml")


@cache
def specification() -> dict[str, Any]:
    """Return the OpenAPI document (version 3.1), read once; it is not to be modified."""
    found: dict[str, Any] = yaml.load(PATH.read_bytes(), Loader=yaml.CSafeLoader)
    return found


@cache
def _json() -> bytes:
    return orjson.dumps(specification())


@cache
def _page() -> bytes:
    return docs_page(specification()).encode()


async def get_openapi(context: Context) -> web.StreamResponse:
    """Answer with the OpenAPI document."""
    return web.Response(body=await asyncio.to_thread(_json), content_type="application/json")


async def get_docs(context: Context) -> web.StreamResponse:
    """Answer with the same as a page, which needs nothing from anywhere else."""
    headers = {"Content-Security-Policy": POLICY}
    body = await asyncio.to_thread(_page)
    return web.Response(body=body, content_type="text/html", charset="utf-8", headers=headers)
