"""Handlers of `/about`, `/info`, `/users`, `/metrics`, `/openapi.json` and the probes `/livez` and `/readyz`."""

from __future__ import annotations

import os
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import yaml
from aiohttp import hdrs, web

from hsparse import __version__
from hsparse.compute import LONG_WORK_BYTES
from hsparse.errors import Busy, Forbidden, Misconfigured
from hsparse.format.filters.pipeline import ADVERTISED
from hsparse.metric import CONTENT_TYPE
from hsparse.sn.http.response import respond_computed
from hsparse.sn.request import Request, respond
from hsparse.sn.service_settings import ServiceSettings
from hsparse.wire.message import GetInfo

READY = "READY"
WAITING = "WAITING"
"""HSDS's name for the state of a service node that cannot use its data nodes."""
HSDS_VERSION = "1.0.2"
"""The version of HSDS whose API this server has; clients gate features on it."""


async def get_about(request: Request) -> web.StreamResponse:
    """Answer with the state and version of the server; clients request it first."""
    error = await request.service.owners.readiness_error()
    nodes = sorted(request.service.owners.node_ids)
    return respond(
        {
            "start_time": int(request.service.start_time),
            "state": READY if error is None else WAITING,
            "hsds_version": HSDS_VERSION,
            "hsparse_version": __version__,
            "name": "hsparse",
            "greeting": "Welcome to hsparse!",
            "about": "hsparse is a service for HDF data, dense and sparse, with the API of HSDS",
            "idempotency_keys": True,
            "node_count": len(nodes),
            "dn_urls": [],
            "dn_ids": nodes,
            "username": request.principal.name,
            "isadmin": request.principal.admin,
        }
        | request.service.about
    )


async def get_users(request: Request) -> web.StreamResponse:
    """Answer with the users that `Authenticator.users` returns; raise `Forbidden` if the principal is not an admin."""
    if not request.principal.admin:
        raise Forbidden("Only an admin may list the users.")
    users = request.service.authenticator.users()
    shown = [{"userName": user.name, "admin": user.admin, "groups": sorted(user.groups)} for user in users]
    return respond({"users": shown})


async def get_info(request: Request) -> web.StreamResponse:
    """Answer with the state of this node and of each data node."""
    nodes = await request.service.owners.ask_all(GetInfo())
    node = {
        "id": "sn-001",
        "type": "sn",
        "start_time": int(request.service.start_time),
        "state": READY,
        "node_count": len(nodes),
    }
    shown = [
        {key: value for key, value in asdict(one).items() if key not in ("bucket", "buckets")}
        for one in nodes
    ]
    return respond({"node": node, "cpu": {"cores": os.cpu_count()}, "data_nodes": shown})


async def get_livez(request: Request) -> web.StreamResponse:
    """Answer that the process is alive."""
    return respond({"state": "ALIVE"})


async def get_readyz(request: Request) -> web.StreamResponse:
    """Answer that this node accepts requests.

    Raises `Busy` if it is about to stop, if it can use no data node, if the store refuses requests, or if a file of
    users cannot be used.
    """
    if not request.service.ready:
        raise Busy("This node is stopping: send requests to another service node.")
    error = await request.service.owners.readiness_error()
    if error is not None:
        raise Busy(error.message)
    try:
        request.service.authenticator.users()
    except Misconfigured as unusable:
        raise Busy(unusable.message) from unusable
    return respond({"state": READY})


async def get_metrics(request: Request) -> web.StreamResponse:
    """Answer with the service node's metrics in Prometheus's format."""
    return web.Response(body=request.service.metrics.text(), headers={hdrs.CONTENT_TYPE: CONTENT_TYPE})


def server_facts(settings: ServiceSettings) -> dict[str, Any]:
    """Return the keys that answers about a domain have about the server: `limits`, `compressors` and `version`."""
    return {
        "limits": {
            "min_chunk_size": settings.min_chunk_size,
            "max_chunk_size": settings.max_chunk_size,
            "max_request_size": settings.max_request_size,
        },
        "compressors": list(ADVERTISED),
        "version": HSDS_VERSION,
    }


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
    return await respond_computed(
        LONG_WORK_BYTES, lambda: web.Response(body=_json(), content_type="application/json")
    )
